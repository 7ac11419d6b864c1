"""`rocmprobe install`: what it prints for which machine, and its constraints."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocmprobe.cli import main
from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.installation import Place, plan
from rocmprobe.knowledge.options import options
from rocmprobe.model.results import Fact, Gpu, Machine
from rocmprobe.model.results_file import to_json

STABLE, NIGHTLY = (
    "https://stable.repo.amd.com/rocm/whl-next/",
    "https://nightly.repo.amd.com/rocm/whl-next/",
)


def asked(*arguments: object) -> tuple[int, str]:
    """Exit code and output of the command, in this process."""
    done = CliRunner().invoke(main, ["install", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def answer(*arguments: object) -> dict[str, Any]:
    code, output = asked("--json", *arguments)
    assert code == 0, output
    data: dict[str, Any] = json.loads(output)
    return data


def facts(**given: str) -> list[str]:
    return [word for name, value in given.items() for word in ("--fact", f"{name}={value}")]


def commands(stack: dict[str, Any]) -> str:
    return "\n".join(line for step in stack["steps"] for line in step["commands"])


ARCH, FEDORA, UBUNTU = "Arch Linux", "Fedora Linux 44", "Ubuntu 24.04 LTS"
#: The card, its system, the first stack, and what its commands hold.
MACHINES = [
    ("RX 5600 XT", UBUNTU, "amd-stable-10.1", (
        "pip install 'torch[device-gfx1010]==2.14.0+rocm10.1.0' "
        "'torchvision[device-gfx1010]==0.29.0a0+rocm10.1.0' torchaudio==2.11.0.3+rocm10.1.0 "
        f"--index-url {STABLE}",
        "unset HSA_OVERRIDE_GFX_VERSION", "export AMDGCN_USE_BUFFER_OPS=0",
        'export TRITON_CACHE_DIR="$HOME/amd-stable-10.1/triton_cache_dir"',
        'export TORCHINDUCTOR_CACHE_DIR="$HOME/amd-stable-10.1/torchinductor_cache_dir"',
    )),
    ("RX 5700 XT", "Windows 11", "amd-nightly", (
        'pip install "torch[device-gfx1010]" "torchvision[device-gfx1010]" "torchaudio" '
        f"--index-url {NIGHTLY}",
        'py -3.12 -m venv "$HOME\\amd-nightly"', '$env:AMDGCN_USE_BUFFER_OPS = "0"', "Select-String",
        '$env:TRITON_CACHE_DIR = "$HOME\\amd-nightly\\triton_cache_dir"',
    )),
    ("RX 5700", ARCH, "arch", ("sudo pacman -Syu python-pytorch-rocm", "unset HSA_OVERRIDE_GFX_VERSION")),
    ("RX 5700 XT", FEDORA, "fedora", ("sudo dnf install python3-torch",)),
    ("RX 5500 XT", UBUNTU, "amd-stable-7.14", (
        "'torch[device-gfx1012]==2.12.0+rocm7.14.1'", "unset HSA_OVERRIDE_GFX_VERSION",
    )),
    ("Radeon Pro V520", UBUNTU, "amd-stable-10.1", ("'torch[device-gfx1011]==2.14.0+rocm10.1.0'",)),
    ("BC-250", UBUNTU, "amd-stable-10.1", (
        "'torch[device-gfx1010]==2.14.0+rocm10.1.0'", "export HSA_OVERRIDE_GFX_VERSION=10.1.0",
    )),
    ("RX 6700 XT", UBUNTU, "official-rocm7.14", (
        "python3.12 -m venv ~/official-rocm7.14", "torch==2.14.1+rocm7.14",
        "export HSA_OVERRIDE_GFX_VERSION=10.3.0", "--index-url https://download.pytorch.org/whl/rocm7.14",
    )),
    ("RX 7900 XTX", UBUNTU, "amd-stable-10.1", ("device-gfx1100",)),
    ("RX 9070 XT", "Windows 11", "amd-stable-10.1", ('"torch[device-gfx1201]==2.14.0+rocm10.1.0"',)),
    ("Radeon VII", UBUNTU, "official-rocm6.3", ("torch==2.7.1+rocm6.3",)),
    ("RX 580", UBUNTU, "rocm-gfx803", (
        "ghcr.io/schaka/rocm-migraphx-ort-torch-builder:rocm7.14-gfx803 bash",
    )),
]  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "system", "stack", "held"), MACHINES, ids=[f"{a}-{b}" for a, b, *_ in MACHINES]
)
def test_the_commands_for_a_machine(gpu: str, system: str, stack: str, held: tuple[str, ...]) -> None:
    first = answer(*facts(gpu=gpu, os=system))["stacks"][0]
    assert first["stack"] == stack
    for part in held:
        assert part in commands(first)
    assert first["status"] != "fails"
    assert all("https://" in each["source"] and each["date"] for each in first["sources"])
    code, text = asked(*facts(gpu=gpu, os=system))
    assert code == 0
    for line in commands(first).splitlines():
        assert line in text.splitlines(), "a command is one line, whole"
    assert ("rocmprobe run" in commands(first)) == (system != "Windows 11")


def test_when_a_row_was_checked() -> None:
    _, text = asked(*facts(gpu="RX 5700 XT", os=UBUNTU), "--stack", "official-rocm5.7")
    assert "with limits (checked in November 2026). One" in " ".join(text.split())
    assert "(2025-11-20, checked 2026-11)" in text
    # This report's stack fails without its variables.
    assert "export MIOPEN_DEBUG_CONV_GEMM=0\n" in text

    _, text = asked(*facts(true_gfx="gfx1102", os=UBUNTU), "--stack", "official-rocm5.7")
    assert "Reported, but not checked for more than a year (source from 2024)." in " ".join(text.split())


def test_what_nobody_tested_is_called_so() -> None:
    for gpu in ("Radeon Pro V520", "BC-250"):
        assert "Published, but untested" in " ".join(asked(*facts(gpu=gpu, os=UBUNTU))[1].split())


def test_wheels_for_one_chip_alone_pin_the_torch_that_has_them() -> None:
    first = answer(*facts(true_gfx="gfx90c", os=UBUNTU))["stacks"][0]
    torch, vision = "'torch[device-gfx90c]~=2.12.0'", "'torchvision[device-gfx90c]~=0.27.0'"
    assert f"pip install {torch} {vision} 'torchaudio~=2.11.0' --index-url {NIGHTLY}" in commands(first)
    assert "amd-nightly-torch2.12" not in {
        each["stack"] for each in answer(*facts(gpu="RX 6800", os=UBUNTU))["stacks"]
    }


def test_a_chip_that_computes_wrong_with_every_torch_gets_none() -> None:
    code, text = asked(*facts(true_gfx="gfx1033", os=UBUNTU))
    assert code == 1
    assert "No published torch is known to work here." in text
    assert "gradcheck fails" in text


@pytest.mark.parametrize("gpu", ["RX 580", "Radeon VII", "RX 5700 XT"])
def test_no_stack_that_is_recommended_ends_without_torch(gpu: str) -> None:
    """Cloning a repository installs nothing."""
    for stack in answer(*facts(gpu=gpu, os=UBUNTU))["stacks"]:
        install = [line for step in stack["steps"] if step["what"] == "Install" for line in step["commands"]]
        if stack["status"] != "fails" and stack["stack"] != "rocm-rdna1":
            assert not install or not install[-1].startswith("git clone"), stack["stack"]


def test_code_for_the_chip_needs_no_override_and_takes_it_away() -> None:
    assert "HSA_OVERRIDE" not in commands(answer(*facts(gpu="RX 7900 XTX"))["stacks"][0])
    found = answer(*facts(gpu="RX 7900 XTX", HSA_OVERRIDE_GFX_VERSION="11.0.0"))["stacks"][0]
    assert "unset HSA_OVERRIDE_GFX_VERSION" in commands(found)


@pytest.mark.parametrize("gpu", ["GTX 1080", "NVIDIA GeForce RTX 4090", "gt 710", "Intel Arc A770"])
def test_a_card_that_is_not_of_amd_is_called_so(gpu: str) -> None:
    code, output = asked(*facts(gpu=gpu))
    assert code == 3
    assert output.startswith(f"rocmprobe: {gpu!r} is not an AMD card; name the card")
    assert output.count("\n") == 1


def machine(tmp_path: Path, *gpus: Gpu, **given: str) -> Path:
    path = tmp_path / "machine.json"
    known = {name.replace("_", "."): Fact(value) for name, value in given.items()}
    path.write_text(json.dumps(to_json(Machine(gpus, known))))
    return path


def card(gfx: str, apu: bool = False, name: str = "a card") -> Gpu:
    return Gpu(
        native_isa=Fact(gfx), effective_isa=Fact(gfx), vendor=Fact("amd"), name=Fact(name), apu=Fact(apu)
    )


def test_the_machine_of_detect(tmp_path: Path) -> None:
    path = machine(
        tmp_path, card("gfx1036", apu=True), card("gfx1010"), os_id="ubuntu", python_version="3.13.2"
    )
    found = answer("--facts", path)
    assert (found["chips"], found["system"], found["distribution"]) == (
        ["gfx1010"],
        "linux",
        "ubuntu",
    )
    assert "python3.13 -m venv" in commands(found["stacks"][0])
    assert "device-gfx1036" not in json.dumps(found), "the GPU in the processor is not what torch is for"


def test_what_cannot_run_is_among_those_that_fail() -> None:
    """A Vega of a processor runs the code of gfx900, for which rocBLAS of ROCm 7.2 has no kernels."""
    found = {each["stack"]: each for each in answer(*facts(true_gfx="gfx90c", os=UBUNTU))["stacks"]}
    fails = found["official-rocm7.2"]
    assert fails["status"] == "fails"
    assert "it cannot run: rocBLAS of ROCm 7.2 has no kernels for gfx900 (https://" in fails["evidence"]
    assert list(found)[-1] == "official-rocm7.2"


def test_what_a_library_lacks_is_a_limit_that_is_told_once() -> None:
    named = "hipBLASLt of ROCm 6.3 has no kernels for gfx1030 (ROCm/hipBLASLt "
    found = {each["stack"]: each for each in answer(*facts(true_gfx="gfx1032", os=UBUNTU))["stacks"]}
    assert any(text.startswith(named) for text in found["official-rocm6.3"]["limits"])
    for stack in found.values():
        assert sum("hipBLASLt of ROCm" in text for text in stack["limits"]) <= 1
    text = asked(*facts(true_gfx="gfx1032", os=UBUNTU), "--stack", "official-rocm6.3")[1]
    assert f"- {named[:40]}" in text


def test_what_windows_lacks_is_a_limit_there_alone() -> None:
    for system, held in (("Windows 11", True), (UBUNTU, False)):
        (stack,) = answer(*facts(gpu="RX 5700 XT", os=system), "--stack", "amd-stable-10.1")["stacks"]
        assert any("Visual Studio Build Tools" in text for text in stack["limits"]) is held


def test_two_cards_get_the_code_for_both(tmp_path: Path) -> None:
    path = machine(tmp_path, card("gfx1100"), card("gfx1201"), os_id="ubuntu")
    assert "torch[device-gfx1100,device-gfx1201]" in commands(answer("--facts", path)["stacks"][0])


def test_a_simulated_machine() -> None:
    found = answer("--simulate", "rdna1-rocm52-conv-dead")
    assert found["gpu"] == "AMD Radeon RX 5600 XT"
    statuses = {each["stack"]: each["status"] for each in found["stacks"]}
    assert statuses["official-rocm7.2"] == "fails"
    assert list(statuses.values()).index("fails") >= len(statuses) - 4


def test_a_machine_without_an_answer() -> None:
    code, text = asked(*facts(true_gfx="gfx1010", os="WSL2"))
    assert code == 1
    assert "No published torch is known to work here." in text
    assert "WSL" in text


def test_an_unknown_chip() -> None:
    code, text = asked(*facts(true_gfx="gfx9999", os="Linux"))
    assert code == 1
    assert "The chip gfx9999 is unknown" in text
    assert "No published torch" not in text


def test_a_machine_without_an_amd_gpu(tmp_path: Path) -> None:
    code, text = asked("--facts", machine(tmp_path))
    assert (code, len(text.splitlines())) == (3, 1)
    assert "no AMD GPU was found; check in this order: `lspci" in text


def test_the_constraints_of_an_installed_nightly_are_its_own_version(tmp_path: Path) -> None:
    file = tmp_path / "c.txt"
    version = "2.14.0a0+rocm10.2.0a20260922"
    for _ in range(2):
        asked(*facts(gpu="RX 5700", torch=version), "--stack", "amd-nightly", "--constraints", file)
    assert file.read_text() == f"# rocmprobe install: constraints of amd-nightly\ntorch=={version}\n"


def test_the_constraints_of_a_stable_stack_pin_each_package_with_its_build(tmp_path: Path) -> None:
    """Without the local part (+rocm), pip may replace torch by another build."""
    file = tmp_path / "c.txt"
    assert asked(*facts(gpu="RX 5700", os=UBUNTU), "--constraints", file)[0] == 0
    comment, *pins = file.read_text().splitlines()
    assert comment.startswith("#")
    assert pins[:2] == ["torch==2.14.0+rocm10.1.0", "torchvision==0.29.0a0+rocm10.1.0"]


def test_every_command_for_linux_is_taken_by_a_shell() -> None:
    lines = [
        line
        for target in gpus.all_targets()
        for system in ("linux", "wsl")
        for option in options(target.gfx, system)
        for _, commands in plan(option, Place((target.gfx,), system=system, python="3.11")).steps
        for line in commands
    ]
    assert len(lines) > 500
    assert not [line for line in lines if "{" in line]
    script = "\n".join(dict.fromkeys(lines))
    done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_of_a_file_gets_into_a_command(tmp_path: Path) -> None:
    """Commands are copied into a shell, and files come from others."""
    evil = "$(touch evil); `touch evil` & touch evil"
    path = tmp_path / "machine.json"
    cards = (card("gfx1010", name=evil), card(f"gfx1030:{evil}", name=evil))
    facts = {name: Fact(f"3.12{evil}") for name in ("os.id", "os.name", "python.version")}
    variables = {f"HSA_OVERRIDE_GFX_VERSION{evil}": Fact(evil), "HSA_OVERRIDE_GFX_VERSION_1": Fact(evil)}
    for torch in (f"2.13.0+rocm7.2{evil}", f"{evil}+rocm7.2"):
        written = Machine(cards, {**facts, "torch.version": Fact(torch)}, variables)
        path.write_text(json.dumps(to_json(written)))
        found = answer("--facts", path)
        assert "touch evil" not in "".join(map(commands, found["stacks"]))
        assert "unset HSA_OVERRIDE_GFX_VERSION HSA_OVERRIDE_GFX_VERSION_1" in commands(found["stacks"][0])
        assert "evil" not in json.dumps([each["constraints"] for each in found["stacks"]])
