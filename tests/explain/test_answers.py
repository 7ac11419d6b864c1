"""Answers of `rocmprobe explain`: known, located, elsewhere or nothing; signatures; and the format."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from rocmprobe.explain.conditions import CONDITIONS
from rocmprobe.explain.explain import SYMPTOMS, Diagnosis, Explanation, diagnose, explain, located
from rocmprobe.explain.facts import Facts, facts_in, merge_and_derive
from rocmprobe.explain.failure import Failure
from rocmprobe.explain.signatures import Hit, Signature, signatures
from rocmprobe.knowledge.causes import Cause, causes, step_for
from rocmprobe.knowledge.installation import Place, plan
from rocmprobe.knowledge.options import options
from rocmprobe.report.terminal.explanation import render_explanation
from rocmprobe.text.console import Console
from rocmprobe.text.log import Line, of_text

NO_CODE = "RuntimeError: HIP error: invalid device function\n"
TRACE = 'Traceback (most recent call last):\n  File "/v/site-packages/{}/x.py", line 3, in f\n'


def answer(text: str, **facts: object) -> Explanation:
    log = of_text(text)
    return explain(log, merge_and_derive(Facts(**facts), facts_in(log)))


def printed(found: Explanation) -> list[str]:
    out = io.StringIO()
    render_explanation(found, Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    return [line[at : at + 80] for line in lines for at in range(0, max(len(line), 1), 80)]


PASTED = {
    "a training that ends well": ("Epoch 1 of 3, loss 0.31\nTraining finished", "nothing"),
    "nothing": ("", "nothing"),
    "a build that works": ("[  9%] Building CXX object a.o\n[100%] Built target llama-cli", "nothing"),
    "another database": ("sqlite3.OperationalError: unable to open database file", "nothing"),
    "a key in a package": (TRACE.format("transformers") + "KeyError: 'qwen9'", "elsewhere"),
    "an exception that came before": (
        "ImportError: no name 'a'\nok\n" + TRACE.format("peft") + "ImportError: no name 'a'",
        "elsewhere",
    ),
    "an interrupt": (TRACE.format("tqdm") + "KeyboardInterrupt", "elsewhere"),
    "an NVIDIA GPU": ("NVIDIA GeForce RTX 3090\nRuntimeError: CUDA error: unknown error", "elsewhere"),
    "a status": (TRACE.format("torch") + "RuntimeError: miopenStatusUnknownError", "located"),
    "a fault": ("Memory access fault by GPU node-1 on address 0x7f5e0060", "located"),
    "a hang": ("[ 31.2] amdgpu 0000:28:00.0: ring gfx_0.0.0 timeout, signaled seq=57638", "located"),
    "not a number": ("GPU: Radeon RX 6800\nloss: nan", "located"),
    "memory": ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 80 MiB", "known"),
}  # fmt: skip


@pytest.mark.parametrize(("log", "kind"), PASTED.values())
def test_kind_of_answer(log: str, kind: str) -> None:
    assert answer(log).answer == kind


def test_a_failure_elsewhere_is_one_line_that_names_the_package() -> None:
    found = answer(TRACE.format("transformers") + "KeyError: 'qwen9'")
    assert printed(found) == ["Not a failure of AMD's stack: KeyError in package transformers."]


# ---- crashes ----------------------------------------------------------------------------------------------

CRASHES = {
    "faulthandler": (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
        '  File "/v/site-packages/torch/nn/modules/conv.py", line 549 in _conv_forward\n'
        "/opt/rocm/lib/libMIOpen.so.1(+0x1f2a40)[0x7f12]\n",
        "miopen-exec",
    ),
    "gdb": (
        "Thread 1 received signal SIGSEGV, Segmentation fault.\n#0  0x00007f in ?? () from /lib/libc.so.6\n"
        "#1  0x00007f in ?? () from /opt/rocm/lib/librocblas.so.4\n",
        "rocblas",
    ),
    "Windows": (
        "Faulting application name: python.exe\nFaulting module name: amdhip64_7.dll, version: 7.1\n"
        "Exception code: 0xc0000005\n",
        "hip",
    ),
    "WinDbg": (
        "EXCEPTION_CODE: (NTSTATUS) 0xc0000005\nWRITE_ADDRESS: ????????\n"
        "00000000`0014e5f8 00007ffb`1c2d4f21 amdhip64_7!hipLaunchKernel+0x12\n",
        "hip",
    ),
    "kernel": (
        "python[4711]: segfault at 40 ip 00007f sp 00007f error 4 in libhsa-runtime64.so.1.14[7f0+1000]\n",
        "hsa",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("log", "layer"), CRASHES.values())
def test_the_innermost_native_frame_says_where(log: str, layer: str) -> None:
    found = answer(log, true_gfx="gfx1100")
    assert (found.answer, found.layer) == ("located", layer)
    assert any("vendor-off" in " ".join(each.commands) or "cudnn" in str(each) for each in found.tests) or (
        layer == "rocblas"
    )


def test_the_frames_of_an_exception_do_not_hide_its_message() -> None:
    log = (
        "RuntimeError: HIP error: invalid argument\n"
        "frame #0: c10::Error::Error(c10::SourceLocation) + 0x96 (0x7f in /v/torch/lib/libtorch_hip.so)\n"
    )
    assert answer(log, true_gfx="gfx1100").layer == "hip"


# ---- stated facts decide ----------------------------------------------------------------------------------


def test_a_chip_that_torch_has_code_for_is_a_contradiction() -> None:
    found = answer(NO_CODE, true_gfx="gfx1010", torch_targets="gfx1010 gfx1030")
    assert found.answer == "located"
    assert (
        "not arch-not-in-wheel: the installed PyTorch has code for the chip that the runtime sees"
        in found.why
    )
    assert ("ulimit -n 65536 && python train.py",) in [each.commands for each in found.tests]
    assert "pip install" not in "\n".join(printed(found))


def test_an_experiment_that_is_set_is_the_first_suspect() -> None:
    name = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"
    log = "Memory access fault by GPU node-1 on address 0x7f5e0060"
    tests = answer(log, env={name: "1"}, true_gfx="gfx1100").tests
    assert "no-aotriton-experimental" in tests[0].commands[0]
    assert "no-aotriton-experimental" not in str(answer(log, true_gfx="gfx1100").tests)


INT8 = 'rocblaslt error: Could not load "TensileLibrary_lazy_gfx906.dat"\nRuntimeError: int8 failed'
TRIED = {"ROCBLAS_USE_HIPBLASLT": "0", "TORCH_BLAS_PREFER_HIPBLASLT": "0", "DISABLE_ADDMM_CUDA_LT": "1"}
OTHER_DEVICE = "Device name: AMD Radeon RX 6600\namdgpu.ids: No such file or directory"


def test_a_stack_that_is_installed_is_not_advised() -> None:
    first = options("gfx1010")[0].stack
    log = f"GPU 0: AMD Radeon RX 5600 XT\n{NO_CODE}"
    assert first.name in str(answer(log, torch="2.6.0+rocm6.2").remedy)
    explanation = answer(log, torch=f"{first.torch}+rocm{first.rocm}", torch_targets="gfx1030")
    assert explanation.cause == "arch-not-in-wheel"
    assert first.name not in str(explanation.remedy)


@pytest.mark.parametrize(("os", "system"), [("Ubuntu 24.04", "linux"), ("Windows 11", "windows")])
def test_what_installs_a_stack_is_what_install_prints(os: str, system: str) -> None:
    log = "GPU 0: AMD Radeon RX 5600 XT\nAssertionError: Torch not compiled with CUDA enabled"
    found = answer(log, os=os)
    assert found.cause == "wrong-torch-build"
    assert found.remedy is not None
    best = options("gfx1010", system, "ubuntu" if system == "linux" else None)[0]
    (install,) = (
        steps for what, steps in plan(best, Place(("gfx1010",), system=system)).steps if what == "Install"
    )
    assert install[-1] in found.remedy.commands


@pytest.mark.parametrize(
    ("log", "facts", "kind", "present", "absent"),
    [
        pytest.param(INT8, {}, "known", "rocblas-only", "", id="an option"),
        pytest.param(INT8, {"env": TRIED}, "known", "", "rocblas-only", id="an option that was tried"),
        pytest.param("ZLUDA device\nrocBLAS error: Cannot read C:\\bin\\/rocblas/library/"
                     "TensileLibrary.dat: No such file", {"true_gfx": "gfx1201"}, "known", "ZLUDA", "",
                     id="ZLUDA has its own remedy"),
        pytest.param("OSError: libtorch_hip.so: cannot open shared object file: No such file or directory",
                     {"torch": "2.11.0.dev20260108+rocm7.1", "true_gfx": "gfx1100"},
                     "runtime-library-missing", "nightly", "",
                     id="a library that a nightly wheel lacks"),
        pytest.param(OTHER_DEVICE, {"gpu": "Radeon RX 7900 XTX"}, "nothing", "", "",
                     id="another device than the stated card is no good end"),
        pytest.param(OTHER_DEVICE, {"gpu": "Radeon RX 6600"}, "benign-warning", "", "", id="the stated card"),
        pytest.param("rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal "
                     "seek",
                     {"true_gfx": "gfx1036"}, "known", "rocmprobe detect", "",
                     id="the GPU in a processor: the card instead of another torch"),
        pytest.param("MIOpen Error: No invoker was registered for convolution forward. Was find executed?",
                     {}, "miopen-find", "", "miopenFind", id="no advice for callers of MIOpen"),
    ],
)  # fmt: skip
def test_the_remedy(log: str, facts: dict[str, object], kind: str, present: str, absent: str) -> None:
    found = answer(log, **facts)
    text = "\n".join((*printed(found), str(found.remedy)))
    assert kind in (found.answer, found.cause, found.layer)
    assert present in text
    assert not absent or absent not in text


# ---- format -----------------------------------------------------------------------------------------------

YES = sorted((Path(__file__).parent / "logs").glob("*/yes-*.txt"))
LINUX_ONLY = re.compile(
    r"\b(?:sudo|apt|export|unset|rocminfo|ls -l|uname|dmesg|source|bash|rocmprobe (?:run|exec))\b"
)


@pytest.mark.parametrize("path", YES)
def test_a_known_answer_has_at_most_twelve_lines(path: Path) -> None:
    for chip in ({}, {"true_gfx": "gfx1010"}, {"true_gfx": "gfx1100"}):
        lines = printed(answer(path.read_text("utf-8"), **chip))
        assert len(lines) <= 12, "\n".join(lines)


def can_locate(row: Signature) -> bool:
    proves = (each for each in row.causes if not (each.requires or each.excludes))
    return row.fatal and not any(each.cause not in SYMPTOMS for each in proves)


@pytest.mark.parametrize("row", [row for row in signatures() if can_locate(row)])
def test_a_located_answer_has_at_most_eight_lines(row: Signature) -> None:
    hit = Hit(row, (Line(1, "x" * 300),))
    for system in ("windows", "linux"):
        found = Diagnosis("", row.layer, hit, (), {"torch": "", "amd": "", system: ""}, (hit,))
        lines = printed(located(found, Failure(), Facts()))
        assert len(lines) <= 8, "\n".join(lines)


@pytest.mark.parametrize("cause", causes())
def test_on_windows_no_command_is_a_linux_command(cause: Cause) -> None:
    step = step_for(cause.name, {"windows", "torch", "miopen", "amd"}, Place(("gfx1100",), system="windows"))
    assert not LINUX_ONLY.search("\n".join(step.commands)), step


LOGS = sorted((Path(__file__).parent / "logs").glob("*/*.txt"))
NAMES = {row.name for row in causes()}


@pytest.mark.parametrize("path", LOGS)
def test_a_log_has_its_cause_and_a_near_miss_has_not(path: Path) -> None:
    found = answer(path.read_text("utf-8"))
    wanted = path.name.startswith("yes-")
    assert (found.cause == path.parent.name) == wanted, (path.name, found.answer, found.cause)
    assert not wanted or found.answer in ("known", "elsewhere")


def test_every_signature_decides_a_log() -> None:
    decided = set()
    for path in LOGS:
        if path.name.startswith("yes-"):
            log = of_text(path.read_text("utf-8"))
            hit = diagnose(log.lines, merge_and_derive(Facts(), facts_in(log))).hit
            decided.add(hit.signature.name if hit else "")
    naming = {row.name for row in signatures() if {each.cause for each in row.causes} - SYMPTOMS}
    assert naming - decided == set()


def test_rows_name_only_what_exists() -> None:
    rows = signatures()
    assert len({row.name for row in rows}) == len(rows)
    assert {each.cause for row in rows for each in row.causes} <= NAMES
    assert not [row.name for row in rows if row.harmless and row.context]
    words = CONDITIONS | {row.name for row in rows}
    assert {word for row in rows for each in row.causes for word in (*each.requires, *each.excludes)} <= words
    # A signature below 90 % may locate, not name.
    measured = [tuple(map(int, row.precision.split(" of "))) for row in rows if row.precision]
    assert all(right >= 0.9 * named for right, named in measured)
