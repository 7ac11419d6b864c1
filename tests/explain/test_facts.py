"""Facts that a log prints, facts that its owner gives, and what follows from both."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_logs import COLLECT_ENV, ROCMINFO

from rocmprobe.explain.facts import Facts, facts_in, facts_of, gfx_of_card, known, merge_and_derive
from rocmprobe.model.results import BadInput
from rocmprobe.text.log import of_text

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"

PRINTED = {
    "HIP version: 5.4.23020": {"rocm": "5.4.23020"},
    "/opt/rocm-5.7.0/lib/libamdhip64.so.5": {"rocm": "5.7.0"},
    "docker run rocm/pytorch:rocm6.0_ubuntu20.04_py3.9_pytorch_2.1.1": {"rocm": "6.0", "torch": "2.1.1"},
    "pip install torch --index-url https://download.pytorch.org/whl/rocm6.1": {"rocm": "6.1"},
    "torch                    2.0.1+rocm5.4.2": {"torch": "2.0.1+rocm5.4.2", "rocm": "5.4.2"},
    "torch==2.2.1+rocm5.7": {"torch": "2.2.1+rocm5.7", "rocm": "5.7"},
    "Name: torch\nVersion: 2.4.0+rocm6.1\nSummary: Tensors": {"torch": "2.4.0+rocm6.1", "rocm": "6.1"},
    "Torch: `1.13.1+rocm5.2`": {"torch": "1.13.1+rocm5.2", "rocm": "5.2"},
    "torchvision 0.15.2": {},
    "xFormers was built for:\n    PyTorch 2.1.0+cu121 with CUDA 1201 (you have 2.3.0+rocm6.0)\n"
    "    Python  3.10.13 (you have 3.10.12)": {"torch": "2.3.0+rocm6.0", "rocm": "6.0"},
    "xFormers was built for: PyTorch 2.1.0+cu121 (you have 2.3.0+rocm6.0)": {
        "torch": "2.3.0+rocm6.0", "rocm": "6.0",
    },
    "xformers 0.0.20 requires torch==2.0.1, but you have torch 2.3.0+rocm6.0 which is incompatible.": {
        "torch": "2.3.0+rocm6.0", "rocm": "6.0",
    },
    "flash-attn was built for PyTorch 2.1.0+cu121": {},
    "Linux node 6.5.0-41-generic #41~22.04.2-Ubuntu SMP x86_64 GNU/Linux": {"os": "Linux 6.5.0-41-generic"},
    'PRETTY_NAME="Fedora Linux 40 (Workstation Edition)"': {"os": "Fedora Linux 40 (Workstation Edition)"},
    "Linux pc 5.15.153.1-microsoft-standard-WSL2 #1 SMP": {"os": "WSL2 (5.15.153.1-microsoft-standard-WSL2)"},
    r'  File "H:\rocm\comfyui\main.py", line 3': {"os": "Windows"},
    "MIOpen(HIP): Info [get_device_name] Raw device name: gfx1031": {
        "true_gfx": "gfx1031", "effective_gfx": "gfx1031",
    },
    "Missing system database file: gfx1030_40.kdb": {"effective_gfx": "gfx1030"},
    "Missing system database file: gfx90a68.kdb": {"true_gfx": "gfx90a", "effective_gfx": "gfx90a"},
    "Library.dat: Illegal seek for GPU arch : gfx1201": {"true_gfx": "gfx1201", "effective_gfx": "gfx1201"},
    '"/opt/rocm/lib/rocblas/library/TensileLibrary_lazy_gfx908.dat"': {},
    "1 error generated when compiling for gfx1032.": {"true_gfx": "gfx1032", "effective_gfx": "gfx1032"},
    "  Device 0: AMD Radeon RX 5700 XT, gfx1030 (0x1030), VMM: no, Wave Size: 32": {
        "gpu": "AMD Radeon RX 5700 XT", "true_gfx": "gfx1010", "effective_gfx": "gfx1030",
    },
    ":3:rocdevice.cpp :1772: 1 us: [pid:1] Gfx Major/Minor/Stepping: 9/0/10": {
        "true_gfx": "gfx90a", "effective_gfx": "gfx90a",
    },
    "0b:00.0 VGA compatible controller: AMD, Inc. [AMD/ATI] Navi 10 [Radeon RX 5600 OEM/5700]": {
        "gpu": "Navi 10 [Radeon RX 5600 OEM/5700]", "true_gfx": "gfx1010",
    },
    "$ HSA_OVERRIDE_GFX_VERSION=10.3.0 MIOPEN_FIND_MODE=1 python train.py": {
        "env": {OVERRIDE: "10.3.0", "MIOPEN_FIND_MODE": "1"}, "effective_gfx": "gfx1030",
    },
    'export HSA_OVERRIDE_GFX_VERSION="10.3.0"': {"env": {OVERRIDE: "10.3.0"}, "effective_gfx": "gfx1030"},
    "      - HSA_OVERRIDE_GFX_VERSION: 10.3.0": {"env": {OVERRIDE: "10.3.0"}, "effective_gfx": "gfx1030"},
    "set -gx HSA_OVERRIDE_GFX_VERSION 11.0.0": {"env": {OVERRIDE: "11.0.0"}, "effective_gfx": "gfx1100"},
    'environ["HSA_OVERRIDE_GFX_VERSION"] = "9.0.0"': {"env": {OVERRIDE: "9.0.0"}, "effective_gfx": "gfx900"},
    "Aborted (core dumped)  MIOPEN_FIND_ENFORCE=3": {"env": {"MIOPEN_FIND_ENFORCE": "3"}, "exit": "abort"},
    "For debugging consider passing AMD_SERIALIZE_KERNEL=3": {},
    "try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True to avoid fragmentation.": {},
    "clang -DMIOPEN_USE_FP16=0 -Wa,-defsym,ROCM_METADATA_VERSION=4": {},
    "error : HSA_STATUS_ERROR_INVALID_ISA: The instruction set": {},
    "[    1.577002] kfd kfd: amdgpu: added device 1002:731f": {"true_gfx": "gfx1010"},
    "initializing kernel modesetting (NAVI14 0x1002:0x7340 0x1002:0x0B36 0xC5).": {"true_gfx": "gfx1012"},
    "0b:00.1 Audio device [0403]: Navi 10 HDMI Audio [1002:ab38]": {},
    "gfx_target_version 100100": {"true_gfx": "gfx1010"},
    "gfx_target_version 0": {},
    "Segmentation fault (core dumped)": {"exit": "segv"},
    "Traceback (most recent call last):\nAborted (core dumped)": {"exit": "abort"},
    "RuntimeError: HIP error: invalid device function": {"exit": "exception"},
    "amdgpu 0000:0a:00.0: amdgpu: GPU reset begin!": {"exit": "hang"},
    COLLECT_ENV: {
        "gpu": "AMD Radeon RX 5600 XT", "true_gfx": "gfx1010", "rocm": "5.2.21151", "torch": "1.13.1+rocm5.2",
        "os": "Ubuntu 22.04.3 LTS (x86_64)",
    },
    ROCMINFO: {"gpu": "AMD Radeon RX 6700 XT", "true_gfx": "gfx1031", "effective_gfx": "gfx1031"},
    ROCMINFO.replace("gfx1031", "gfx1030"): {
        "gpu": "AMD Radeon RX 6700 XT", "true_gfx": "gfx1031", "effective_gfx": "gfx1030",
    },
}  # fmt: skip


@pytest.mark.parametrize("printed", PRINTED)
def test_what_programs_print_is_known(printed: str) -> None:
    assert known(merge_and_derive(Facts(), facts_in(of_text(printed)))) == PRINTED[printed]


def test_what_is_given_wins() -> None:
    # Of two GPUs the card counts.
    rocminfo = "Name:     gfx1036\nName:     gfx1100\n"
    assert facts_in(of_text(rocminfo)).effective_gfx == "gfx1100"

    # What is given wins.
    given = facts_of({"gpu": "RX 5500 XT", "rocm": 5.4, "env": {OVERRIDE: "10.3.0"}, "log": "a report's"})
    facts = merge_and_derive(
        given, facts_in(of_text(f"{COLLECT_ENV}\nHSA_OVERRIDE_GFX_VERSION=9.0.0 HIP_VISIBLE_DEVICES=0 x"))
    )
    assert known(facts) == {
        "gpu": "RX 5500 XT", "true_gfx": "gfx1012", "effective_gfx": "gfx1030", "rocm": "5.4",
        "torch": "1.13.1+rocm5.2", "os": "Ubuntu 22.04.3 LTS (x86_64)",
        "env": {OVERRIDE: "10.3.0", "HIP_VISIBLE_DEVICES": "0"},
    }  # fmt: skip

    # Without an override the effective target is not known.
    assert (
        merge_and_derive(facts_of({"true_gfx": "gfx1010", "effective_gfx": None}), Facts()).effective_gfx
        is None
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gppu": "x"}, "'gppu' is not a fact"),
        ({"rocm": ["5.2"]}, "rocm is"),
        ({"env": "A=1"}, "env is"),
        ({"env": {"A": None}}, "env: 'A' is None"),
        ({"exit": "boom"}, "exit is 'boom'"),
        ({"true_gfx": "navi10"}, "true_gfx is 'navi10'"),
    ],
)
def test_wrong_facts(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        facts_of(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("card", "target"),
    [
        ("Radeon RX 5700 XT", "gfx1010"),
        ("AMD Radeon(TM) RX 5600 XT", "gfx1010"),
        ("RX 5700 ITX", "gfx1010"),
        ("rx5500 xt", "gfx1012"),
        ("Instinct MI210", "gfx90a"),
        ("AMD Radeon RX 7900 XTX Graphics", "gfx1100"),
        ("Radeon RX Vega 56", "gfx900"),
        ("Vega 64", "gfx900"),
        ("5700 XT", "gfx1010"),
        ("Radeon VII", "gfx906"),
        ("something (gfx1031)", "gfx1031"),
        ("Ellesmere [Radeon RX 470/480/570/570X/580/580X]", "gfx803"),
        ("AMD Radeon Graphics", None),
        ("AMD GPU", None),
        ("GeForce RTX 3090", None),
        ("10 x NVIDIA Quadro RTX 8000", None),
        ("", None),
    ],
)
def test_the_target_of_a_card(card: str, target: str | None) -> None:
    assert gfx_of_card(card) == target


CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "train.jsonl"


@pytest.mark.skipif(not CORPUS.exists(), reason="the recorded reports are not here")
def test_facts_found_in_recorded_reports_agree_with_what_is_recorded() -> None:
    import json

    wrong = []
    for report in map(json.loads, CORPUS.read_text("utf-8").splitlines()):
        found = merge_and_derive(Facts(), facts_in(of_text(report["log"])))
        recorded = merge_and_derive(facts_of(report), Facts())
        for name in ("true_gfx", "effective_gfx"):
            pair = getattr(found, name), getattr(recorded, name) or recorded.true_gfx
            if None not in pair and pair[0] != pair[1]:
                wrong.append((report["id"], name, *pair))
        wrong += [
            (report["id"], name, value)
            for name, value in found.env.items()
            if recorded.env.get(name, value) != value
        ]
    # A report of two cards, and ranges such as gfx110x.
    assert [row for row in wrong if "x" not in str(row[-1])[3:] and "unknown" not in str(row[-1])] == []
