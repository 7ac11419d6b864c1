"""Kernels of our own in the bypass, in processes whose HIP runtime is a stand-in: it compiles them with g++
and runs them on the CPU, so tensors of the CPU take the place of those of a GPU."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch")

from runs import CHECKOUT, wait_until
from stand_in_libraries import gpu_environment, hip_with_modules, kfd_nodes

from rocmprobe.process.processes import runs, started

_START = """
import os
import torch
import torch.nn.functional as F
import rocmprobe.bypass as bypass
from rocmprobe.bypass import kernel_modules

kernel_modules.DEVICE_TYPES.add("cpu")
CPU = torch.device("cpu")

def integers(*shape, dtype=torch.float32):
    return torch.randint(-2, 3, shape).to(dtype)

def directions(call, *operands):
    # The output and the gradients of all operands.
    leaves = [each.detach().requires_grad_() for each in operands]
    output = call(*leaves)
    torch.manual_seed(1)
    return output, *torch.autograd.grad(output, leaves, integers(*output.shape, dtype=output.dtype))
"""
_PROBLEM = """
problem = dict(
    input_shape=(1, 2, 6, 6), weight_shape=(100, 2, 1, 1), stride=(1, 1), padding=(0, 0), dilation=(1, 1),
    transposed=False, output_padding=(0, 0), groups=1, dtype="float32", channels_last=False,
)
x, w = integers(1, 2, 6, 6), integers(100, 2, 1, 1)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return hip_with_modules(tmp_path_factory.mktemp("hip"))


@pytest.fixture(scope="module")
def passed(tmp_path_factory, library):
    """A cache folder in which the self-test has passed; that of float32 was run."""
    folder = tmp_path_factory.mktemp("cache")
    code = 'print(kernel_modules.refusal(CPU, "float32"))'
    assert python(library, folder, code, ROCMPROBE_BYPASS_KERNELS="1") == [""]
    (file,) = (folder / "kernels").glob("verdict-*float32.json")
    for dtype in ("float16", "bfloat16"):
        another = file.with_name(file.name.replace("float32", dtype))
        another.write_text(file.read_text().replace("float32", dtype))
    return folder


def environment(library, cache, path=CHECKOUT, isa="gfx1030", **variables):
    """Return the variables of a process that sees an RDNA1 card shown as ``isa``."""
    nodes = cache / "nodes"
    if not nodes.exists():
        kfd_nodes(nodes, 100100)
    return {
        **os.environ,
        **gpu_environment(library, nodes, isa),
        "ROCMPROBE_BYPASS_KERNEL_CACHE": str(cache / "kernels"),
        "ROCMPROBE_BYPASS_PLANS": str(cache / "plans"),
        "PYTHONPATH": str(path),
        **variables,
    }


def python(library, cache, code, path=CHECKOUT, isa="gfx1030", **variables):
    """Return the lines that ``code`` prints in such a process."""
    done = subprocess.run(
        [sys.executable, "-c", _START + textwrap.dedent(code)],
        capture_output=True, text=True, cwd=path, check=False,
        env=environment(library, cache, path, isa, **variables),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.thorough
def test_without_a_verdict_they_are_not_used_and_status_and_explain_say_so(library, tmp_path):
    lines = python(
        library,
        tmp_path,
        _PROBLEM
        + """
with bypass.enabled("cpu", algorithm="kernel-gemm"):
    F.conv2d(x, w)
print(*[name for name in bypass.status()["calls"] if "kernel" in name])
print(bypass.status()["own_kernels"])
print(bypass.explain(problem, "cpu")["fwd"].own_kernels)
print(kernel_modules.refusal(CPU, "float64"))
""",
    )
    reason = "not tested on this machine yet: run `rocmprobe run`, or set ROCMPROBE_BYPASS_KERNELS=1"
    assert lines == ["", str({"cpu float32": reason}), reason, "there are none for float64"]
    assert not list((tmp_path / "kernels").glob("*"))


@pytest.mark.thorough
def test_every_direction_and_dtype_is_computed_exactly(library, passed):
    lines = python(
        library,
        passed,
        """
        cases = {
            "plain": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (2, 6, 9, 7), (10, 6, 3, 3), 10),
            "strided": (lambda x, w, b: F.conv2d(x, w, b, stride=2), (1, 4, 9, 9), (12, 4, 2, 3), 12),
            "1-d": (lambda x, w, b: F.conv1d(x, w, b, dilation=2), (3, 5, 20), (9, 5, 3), 9),
            "3-d": (lambda x, w, b: F.conv3d(x, w, b, padding=1), (1, 2, 4, 5, 6), (9, 2, 3, 3, 2), 9),
            "depthwise": (
                lambda x, w, b: F.conv2d(x, w, b, groups=6, padding=2), (2, 6, 9, 8), (12, 1, 5, 3), 12,
            ),
            "grouped": (lambda x, w, b: F.conv2d(x, w, b, groups=2), (2, 20, 6, 6), (22, 10, 3, 3), 22),
            "transposed": (
                lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, output_padding=1),
                (1, 5, 4, 6), (5, 9, 3, 3), 9,
            ),
            "transposed depthwise": (
                lambda x, w, b: F.conv_transpose2d(x, w, b, groups=4, padding=1),
                (1, 4, 6, 6), (4, 1, 3, 3), 4,
            ),
        }
        for name, (call, image, weight, bias) in cases.items():
            every = (torch.float32, torch.float16, torch.bfloat16)
            # One case of each kernel in every dtype.
            for dtype in every if name in ("plain", "depthwise") else every[:1]:
                for last in (False, True) if len(image) == 4 else (False,):
                    operands = [integers(*shape) for shape in (image, weight, (bias,))]
                    exact = directions(call, *(each.double() for each in operands))
                    expected = [each.to(dtype) for each in exact]
                    if last:
                        operands[0] = operands[0].contiguous(memory_format=torch.channels_last)
                    bypass.reset_status()
                    algorithm = "kernel-grouped" if "depthwise" in name else "kernel-gemm"
                    with bypass.enabled("cpu", algorithm=algorithm):
                        found = directions(call, *(each.to(dtype) for each in operands))
                    same = all(map(torch.equal, found, expected))
                    print(name, dtype, last, same, bypass.status()["calls"] == {algorithm: 3})
        """,
    )
    assert len(lines) == 22
    assert [line for line in lines if not line.endswith("True True")] == []


@pytest.mark.thorough
def test_a_plan_names_kernel_and_source_and_is_taken_again(library, passed):
    code = (
        _PROBLEM
        + """
with bypass.enabled("cpu", algorithm="kernel-gemm"):
    F.conv2d(x, w)
explained = bypass.explain(problem, "cpu", algorithm="kernel-gemm")["fwd"]
print(explained.variant, "|", explained.own_kernels, "|", bypass.status()["own_kernels"])
"""
    )
    measured = {"ROCMPROBE_BYPASS_MEASURE": "1"}
    (first,) = python(library, passed, code, **measured)
    (second,) = python(library, passed, code, **measured)
    variant, *state = first.split(" | ")
    assert state == ["used", "{'cpu float32': 'used'}"]
    assert first == second
    tile, source = variant.split()
    assert "x" in tile
    assert len(source) == 16


@pytest.mark.thorough
def test_a_problem_that_is_settled_is_computed_after_what_is_known_was_forgotten(library, passed):
    lines = python(
        library,
        passed,
        _PROBLEM
        + """
bias = torch.ones(1).expand(100)
expected = F.conv2d(x, w, bias)
with bypass.enabled("cpu", algorithm="kernel-gemm"):
    print(torch.equal(F.conv2d(x, w, bias), expected))
    kernel_modules.forget()
    print(torch.equal(F.conv2d(x, w, bias), expected), bypass.status()["calls"])
""",
    )
    assert lines == ["True", "True {'kernel-gemm': 2}"]


@pytest.mark.thorough
def test_the_variable_switches_them_off_and_takes_no_other_word(library, passed):
    lines = python(
        library,
        passed,
        """
        for value in ("0", "on", ""):
            os.environ["ROCMPROBE_BYPASS_KERNELS"] = value
            kernel_modules.forget()
            print(kernel_modules.refusal(CPU, "float32"))
        """,
    )
    word = "ROCMPROBE_BYPASS_KERNELS=on: set 0 or 1, or leave it unset"
    assert lines == ["ROCMPROBE_BYPASS_KERNELS=0", word, ""]


@pytest.mark.thorough
def test_a_verdict_holds_for_the_isa_that_the_card_is_shown_as(library, passed):
    code = 'print(kernel_modules.refusal(CPU, "float32"))'
    (line,) = python(library, passed, code, isa="gfx1010:xnack-")
    assert line.startswith("not tested on this machine yet")


@pytest.mark.thorough
def test_while_a_graph_is_captured_nothing_is_compiled_or_loaded(library, passed):
    lines = python(
        library,
        passed,
        """
        captured = kernel_modules.capturing
        kernel_modules.capturing = lambda device: True
        print(kernel_modules.refusal(CPU, "float32"), kernel_modules.kernels._device.cache_info().misses)
        kernel_modules.capturing = captured
        print(kernel_modules.refusal(CPU, "float32") == "")
        kernel_modules.capturing = lambda device: True
        print(kernel_modules.refusal(CPU, "float32") == "")
        """,
    )
    assert lines == ["kernels cannot be compiled or loaded while a graph is captured 0", "True", "True"]


@pytest.mark.thorough
def test_a_wrong_kernel_is_refused_and_convolution_goes_on_without_it(library, tmp_path):
    shutil.copytree(
        CHECKOUT / "rocmprobe", tmp_path / "rocmprobe", ignore=shutil.ignore_patterns("__pycache__")
    )
    source = tmp_path / "rocmprobe" / "kernels" / "source" / "gather_gemm.hip"
    text = source.read_text("utf-8")
    right, wrong = "BARRIER();", ";"
    assert right in text
    source.write_text(text.replace(right, wrong), "utf-8")
    lines = python(
        library,
        tmp_path,
        """
        print(kernel_modules.refusal(CPU, "float32"))
        x, w = integers(2, 8, 9, 9), integers(12, 8, 3, 3)
        with bypass.enabled("cpu"):
            print(torch.equal(F.conv2d(x, w), F.conv2d(x.double(), w.double()).float()))
        """,
        path=tmp_path,
        ROCMPROBE_BYPASS_KERNELS="1",
    )
    assert "results of the self-test are wrong" in lines[0]
    assert lines[1] == "True"
    (file,) = (tmp_path / "kernels").glob("verdict-*.json")
    verdict = json.loads(file.read_text())["verdict"]
    assert verdict["state"] == "failed"
    assert "values differ" in verdict["log"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hipModuleLaunchKernel=segv", "the self-test ended without a result (signal 11"),
        ("hiprtcCompileProgram=status:6", "does not compile the kernels for gfx1010:xnack-"),
    ],
)
def test_a_trial_that_fails_is_an_outcome_and_not_repeated(library, passed, tmp_path, fault, reason):
    if "Compile" not in fault:
        codes = shutil.ignore_patterns("verdict-*")
        shutil.copytree(passed / "kernels", tmp_path / "kernels", ignore=codes)
    code = 'print(kernel_modules.refusal(CPU, "float32"))'
    tried = {"ROCMPROBE_BYPASS_KERNELS": "1", "LC_STAND_IN_FAULTS": fault}
    assert reason in python(library, tmp_path, code, **tried)[0]
    # The fault is gone, and the verdict stays.
    assert reason in python(library, tmp_path, code, ROCMPROBE_BYPASS_KERNELS="1")[0]


_HANG = {"ROCMPROBE_BYPASS_KERNELS": "1", "LC_STAND_IN_FAULTS": "hiprtcCompileProgram=hang"}


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_trial_that_hangs_ends_with_the_program_that_started_it(library, tmp_path, number):
    code = """
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with bypass.enabled("cpu"):
        F.conv2d(integers(1, 4, 6, 6), integers(4, 1, 3, 3), groups=4)
    """
    messages = tmp_path / "messages"
    with messages.open("w") as stream:
        program = subprocess.Popen(
            [sys.executable, "-c", _START + textwrap.dedent(code)], stderr=stream,
            env=environment(library, tmp_path, **_HANG), cwd=CHECKOUT,
        )  # fmt: skip
    try:
        assert wait_until(lambda: list((tmp_path / "kernels").glob("verdict-*.json"))), messages.read_text()
        (file,) = (tmp_path / "kernels").glob("verdict-*.json")
        child = json.loads(file.read_text())["verdict"]["process"]
        assert program.poll() is None
        start = started(child)
        assert runs(child, start)
        assert messages.read_text().splitlines() == [
            "rocmprobe: testing its float32 convolution kernels on GPU 0, once. This takes up to 3 minutes. "
            "ROCMPROBE_BYPASS_KERNELS=0 switches the kernels and the test off."
        ]
        program.send_signal(number)
        program.wait(60)
        assert wait_until(lambda: not runs(child, start), 20)
    finally:
        program.kill()
        program.wait()


@pytest.mark.thorough
def test_a_trial_that_hangs_inside_a_library_ends_after_its_own_limit(library, tmp_path):
    command = ["-m", "rocmprobe.kernels", str(os.getpid()), "3", "0", "float32", ""]
    ended = subprocess.run(
        [sys.executable, *command, str(library), str(library)], capture_output=True, text=True, check=False,
        env=environment(library, tmp_path, **_HANG), cwd=CHECKOUT, timeout=120,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGALRM, ended.stderr
