"""What a child has in its environment, and how it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import SMALL, Run, cli, machine_file, run

import rocmprobe
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.child import Child
from rocmprobe.engine.launch import databases_folder, environment, kernels_folder, must_spawn
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.results import Setting
from rocmprobe.worker.messages import Spec

JUNK = {
    "MIOPEN_FIND_MODE": "7", "MIOPEN_USER_DB_PATH": "/nowhere", "HSA_NO_SCRATCH_RECLAIM": "0",
    "PYTHONHASHSEED": "3", "PYTHONOPTIMIZE": "0", "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
}  # fmt: skip
#: A torch whose import tells what the child sees, and ends it.
TELLS = """
import os, sys
for name in (
    "MIOPEN_FIND_MODE", "MIOPEN_USER_DB_PATH", "HSA_NO_SCRATCH_RECLAIM", "HSA_OVERRIDE_GFX_VERSION",
    "PYTHONHASHSEED",
):
    print(name, os.environ.get(name))
print("cwd", os.getcwd(), "session", os.getsid(0) == os.getpid())
sys.stdout.flush()
os._exit(0)
"""


def seen_by_a_child(folder: Path, setting: Setting, spawn: bool) -> dict[str, str]:
    environ = environment(setting, folder, folder, {}, os.environ)
    child = Child(environ, folder, spawn)
    child.send(Spec("cpu", "onednn", setting, 0.1, environ))
    assert child.exit(60) == "0"
    assert child.start_method == ("spawn" if spawn else "fork")
    return dict(line.split(" ", 1) for line in child.log.text().splitlines())


@pytest.fixture
def junk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in JUNK.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(TELLS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def setting(name: str) -> Setting:
    return next(each for each in settings_for("miopen", "all") if each.name == name)


@pytest.mark.usefixtures("junk")
def test_the_user_s_variables_do_not_reach_a_child_but_the_override_does(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    assert seen_by_a_child(folder, setting("find-fast"), spawn=True) == {
        "MIOPEN_FIND_MODE": "2",
        "MIOPEN_USER_DB_PATH": str(folder / "miopen-db"),
        "HSA_NO_SCRATCH_RECLAIM": "None",
        "PYTHONHASHSEED": "None",
        "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
        "cwd": f"{folder} session True",
    }


def test_where_compilers_are_and_what_is_loaded_first_reaches_every_child(tmp_path: Path) -> None:
    user = {
        "MIOPEN_EXPERIMENTAL_GCN_ASM_PATH": "/usr/bin/clang-21", "HIP_CLANG_PATH": "/usr/lib/llvm-21/bin",
        "HIP_DEVICE_LIB_PATH": "/usr/lib/amdgcn/bitcode", "CCC_OVERRIDE_OPTIONS": "# x-isystem x/usr/include",
        "ROCM_PATH": "/opt/rocm", "LD_PRELOAD": "/usr/lib/libcard.so",
    }  # fmt: skip
    given = environment(setting("default"), tmp_path, tmp_path, {}, {**user, "MIOPEN_DEBUG_CONV_FFT": "0"})
    assert {name: given.get(name) for name in user} == user
    assert "MIOPEN_DEBUG_CONV_FFT" not in given


@pytest.mark.usefixtures("junk")
def test_as_found_keeps_them(tmp_path: Path) -> None:
    as_found = setting("as-found")
    assert must_spawn(as_found)
    seen = seen_by_a_child(tmp_path, as_found, spawn=True)
    assert {name: seen[name] for name in seen if name in JUNK} == {
        name: JUNK[name] for name in JUNK if name in seen
    }


def test_a_simulated_owner_s_variables_reach_a_child_as_a_real_owner_s_do(tmp_path: Path) -> None:
    dropped = {"library": "miopen", "effect": "raise", "when": {"MIOPEN_FIND_ENFORCE": "3|4"}}
    # All settings keep this variable, and the value of the machine replaces the value of this process.
    kept = {"library": "rocblas", "effect": "raise", "when": {"HSA_ENABLE_SDMA": "0"}}
    machine = machine_file(tmp_path / "machine.toml", dropped, kept)
    with machine.open("a") as stream:
        stream.write('[variables]\nMIOPEN_FIND_ENFORCE = "3"\nHSA_ENABLE_SDMA = "0"\n')
    told = Run(tmp_path / "out", cli(
        "run", "--out", tmp_path / "out", "--simulate", machine, *SMALL[:2], "--settings",
        "as-found,vendor-off", *SMALL[4:], env={"HSA_ENABLE_SDMA": "1"},
    ))  # fmt: skip
    assert {name: told.of(name).state for name in ("as-found", "default", "vendor-off")} == {
        "as-found": "error",
        "default": "pass",
        "vendor-off": "error",
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Run:
    arguments = [argument.replace("vendor-off", "as-found") for argument in SMALL]
    return run(tmp_path_factory.mktemp("both") / "out", "--device", "cpu", *arguments, env=JUNK)


@pytest.mark.thorough
def test_default_forks_as_found_spawns_and_both_give_the_same(both: Run) -> None:
    methods = {trial.setting: trial.start_method for trial in both.results.trials}
    assert methods == {"default": "fork", "as-found": "spawn"}
    assert both.of("default").state == both.of("as-found").state == "pass"
    assert both.of("default").numerics == both.of("as-found").numerics


@pytest.mark.thorough
def test_a_forked_child_gets_a_built_environment_too(tmp_path: Path) -> None:
    # In a process of its own, whose fork server finds the torch that tells.
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        f"import os\nif 'MIOPEN_USER_DB_PATH' in os.environ:\n    exec({TELLS!r})\nraise ImportError"
    )
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.4.0'\ncuda = None\nhip = None\n")
    told = run(
        tmp_path / "out", "--device", "cpu", "--only", "copy", "--settings", "vendor-off",
        env={**JUNK, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    trial = told.results.trials[0]
    assert trial.start_method == "fork"
    assert "MIOPEN_FIND_MODE None\n" in trial.log
    assert "miopen-db\n" in trial.log
    assert "HSA_NO_SCRATCH_RECLAIM None\n" in trial.log
    assert "HSA_OVERRIDE_GFX_VERSION 10.3.0\n" in trial.log
    assert "session True" in trial.log


@pytest.mark.parametrize(("flag", "expected"), [("-s", "1 0"), ("-E", "0 1"), ("-I", "1 1")])
def test_a_worker_finds_the_modules_that_the_parent_finds(tmp_path: Path, flag: str, expected: str) -> None:
    (tmp_path / "flags.py").write_text(
        "import sys; print(sys.flags.no_user_site, sys.flags.ignore_environment)"
    )
    package = str(Path(rocmprobe.__file__).parent.parent)
    program = (
        f"import sys; sys.path.append({package!r})\nimport subprocess\n"
        "from rocmprobe.engine.launch import worker_command\n"
        "subprocess.run(worker_command('flags'), cwd=sys.argv[1], check=True)\n"
    )
    done = subprocess.run(
        [sys.executable, flag, "-c", program, tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == expected


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        ("default", True), ("find-normal", True), ("gemm-only", True), ("no-winograd", True),
        ("vendor-off", True), ("serial-compile", False), ("clean-db", False), ("no-cache", False),
        ("tuned", False),
    ],
)  # fmt: skip
def test_settings_that_only_choose_among_kernels_share_the_compiled_ones(
    tmp_path: Path, name: str, shared: bool
) -> None:
    case = Case("cuda:0", name, "convolution", "float32")
    default = Case("cuda:0", "default", "convolution", "float32")
    kernels = kernels_folder(tmp_path, case, setting(name))
    assert (kernels == kernels_folder(tmp_path, default, setting("default"))) is shared
    assert databases_folder(tmp_path, case) != kernels or not shared
    environ = environment(setting(name), databases_folder(tmp_path, case), kernels, {}, {})
    assert environ["MIOPEN_CUSTOM_CACHE_DIR"] == str(kernels / "miopen-cache")
    assert environ["MIOPEN_USER_DB_PATH"] == str(databases_folder(tmp_path, case) / "miopen-db")


def test_a_start_up_compiles_its_own_kernels(tmp_path: Path) -> None:
    case = Case("cuda:0", "default", "start-up", "float32", "conv2d-fp32-n1-c2-i8x8-k4-f3x3")
    assert kernels_folder(tmp_path, case, setting("default")) == databases_folder(tmp_path, case)


@pytest.mark.thorough
def test_a_worker_on_a_real_device_does_not_import_the_simulation() -> None:
    program = """
import sys, torch, rocmprobe.worker.server, rocmprobe.worker.torch_driver
print(*(name for name in sys.modules if name.startswith("rocmprobe.simulate.")))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["rocmprobe.simulate.injector"]
