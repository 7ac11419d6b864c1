"""Matrix products, attention, compiled kernels, changing sizes, channels-last: right on this CPU, each check
notices what goes wrong, and what is missing is not applicable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from asking import context  # noqa: E402
from runs import run  # noqa: E402

from rocmprobe.bypass import kernel_modules  # noqa: E402
from rocmprobe.checks import CHECKS  # noqa: E402
from rocmprobe.checks.tools.compiler import Compiler  # noqa: E402
from rocmprobe.checks.tools.context import CheckContext, CheckResult  # noqa: E402
from rocmprobe.checks.tools.failures import NotApplicable  # noqa: E402
from rocmprobe.kernels import KernelsUnavailable, SelfTest  # noqa: E402

INDUCTOR = "cpu/default/inductor/float32"
ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
HAS_ATTENTION = hasattr(torch.nn.functional, "scaled_dot_product_attention")
with_attention = pytest.mark.skipif(not HAS_ATTENTION, reason="torch 2.0 is the first with this function")


def asked(dtype: str) -> CheckContext:
    return context(dtype=getattr(torch, dtype))


def ask(check: str, dtype: str = "float32") -> CheckResult:
    return CHECKS[check].function(asked(dtype))


@with_attention
@pytest.mark.parametrize("check", ["attention", "attention-math", "attention-flash"])
def test_attention_is_right_on_this_cpu(check: str) -> None:
    answer = ask(check)
    assert answer.state == "pass"
    assert answer.numerics["max_error"] <= answer.numerics["max_error_limit"]


@with_attention
def test_a_backend_that_is_not_there_is_not_applicable_with_what_pytorch_says() -> None:
    with pytest.raises(
        NotApplicable, match=r"this backend is not available for float32 here: No (viable|available)"
    ):
        ask("attention-efficient")


@with_attention
@pytest.mark.parametrize("check", ["attention", "attention-math"])
def test_wrong_attention_is_noticed(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.nn.functional.scaled_dot_product_attention

    def uncausal(*operands: Any, is_causal: bool) -> Any:
        return right(*operands)

    monkeypatch.setattr(ATTENTION, uncausal)
    answer = ask(check)
    assert (answer.state, answer.numerics["of"].partition(":")[0]) == ("wrong", "causal")


@pytest.mark.parametrize(
    ("check", "dtype", "name", "words"),
    [
        ("attention", "float32", ATTENTION, "has no scaled_dot_product_attention; 2.0 is the first"),
        ("int-matmul", "int8", "torch._int_mm", "2.1 is the first"),
        ("inductor", "float32", "torch.compile", "has no torch.compile; 2.0 is the first"),
        ("kernel", "float32", "", "compiled for a GPU, but this test runs on a CPU"),
        ("triton", "float32", "", "this test runs on a CPU"),
    ],
)
def test_what_this_torch_or_device_lacks_is_not_applicable(
    check: str, dtype: str, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name:
        monkeypatch.delattr(name, raising=False)
    with pytest.raises(NotApplicable, match=words):
        ask(check, dtype)


def test_a_torch_without_a_kernel_for_a_cpu_is_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(left: Any, right: Any) -> None:
        raise NotImplementedError("Could not run 'aten::_int_mm' with arguments from the 'CPU' backend")

    monkeypatch.setattr(torch, "_int_mm", missing, raising=False)
    with pytest.raises(NotApplicable, match="lacks this kernel on a CPU"):
        ask("int-matmul", "int8")


@pytest.mark.parametrize("wrong", [False, True])
def test_a_linear_layer(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if wrong:
        right = torch.mm
        monkeypatch.setattr(torch, "mm", lambda a, b: right(a, b) + (a.dtype == torch.bfloat16))
    answer = ask("matmul", "bfloat16")
    assert answer.state == ("wrong" if wrong else "pass")
    assert not wrong or answer.numerics["of"] == "product"


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_product_of_bytes_is_exact(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: (a.long() @ b.long()).int() + wrong, raising=False)
    answer = ask("int-matmul", "int8")
    assert (answer.state, answer.numerics["exact"]) == (("wrong", False) if wrong else ("pass", True))


class AsAGpu:
    """The backend of this CPU, for a check that a CPU does not answer."""

    device_type = "cuda"

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@pytest.mark.parametrize("wrong", [(), ("kernel-gemm 64x64x8 fwd: 3 of 9 values differ",)])
def test_kernels_of_our_own(wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    trial = SelfTest(1.5, 200, wrong, "gather_gemm_64x64x8: 126 VGPRs, 79 SGPRs, 8192 bytes of LDS")
    monkeypatch.setattr(kernel_modules, "tried", lambda device, dtype: trial)
    asks = asked("float32")
    answer = CHECKS["kernel"].function(replace(asks, backend=AsAGpu(asks.backend)))
    assert answer.timings["compile"] == 1.5
    assert answer.evidence == [trial.log]
    assert (answer.state, answer.message) == (("wrong", wrong[0]) if wrong else ("pass", ""))


def test_kernels_that_cannot_be_used_are_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(device: Any, dtype: str) -> SelfTest:
        raise KernelsUnavailable("the native ISA of the GPU is unknown")

    monkeypatch.setattr(kernel_modules, "tried", tried)
    asks = asked("float16")
    with pytest.raises(NotApplicable, match="the native ISA of the GPU is unknown"):
        CHECKS["kernel"].function(replace(asks, backend=AsAGpu(asks.backend)))


class Made(Compiler):
    """Stands in for Triton and Inductor: what they make is done by ``write`` and ``change``."""

    def __init__(self, write: Callable[[Any, Any], Any], change: Callable[[Any], Any] = lambda y: y) -> None:
        self._write, self._change = write, change

    def launch(self, source: Any, target: Any) -> None:
        self._write(source, target)

    def compiled(self, net: Any) -> Any:
        return lambda images: self._change(net(images))

    def compiling(self) -> Any:
        return nullcontext()


def answer_by(check: str, compiler: Compiler) -> CheckResult:
    return CHECKS[check].function(context(compiler=compiler))


@pytest.mark.parametrize(
    ("write", "state", "message"),
    [
        (lambda source, target: target.copy_(source * 2 + 1), "pass", ""),
        (lambda source, target: None, "wrong", "the launch reported success and wrote nothing"),
        (
            lambda source, target: target[256:].copy_(source[256:] * 2 + 1), "wrong",
            "256 of 5000 elements differ, 256 not written",
        ),
    ],
)  # fmt: skip
def test_a_kernel_in_triton_that_does_not_write_is_wrong(write: Any, state: str, message: str) -> None:
    answer = answer_by("triton", Made(write))
    assert (answer.state, answer.message) == (state, message)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "Cannot find a working triton installation. Either the package is not installed",
            "no working Triton",
        ),
        ("Failed to find C compiler. Please specify via CC environment variable.", "no C compiler"),
        ("Dynamo is not supported on Python 3.15+", "this version of Python"),
        ("a kernel did not compile", None),
    ],
)
def test_what_is_missing_to_compile_with_is_told_apart_from_what_fails(said: str, why: Any) -> None:
    with pytest.raises(NotApplicable if why else RuntimeError, match=why or said), Compiler().compiling():
        raise RuntimeError(said)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_network_that_is_compiled_wrong_is_noticed(factor: float) -> None:
    answer = answer_by("inductor", Made(lambda *_: None, lambda output: output * factor))
    assert answer.state == ("pass" if factor == 1 else "wrong")


@pytest.mark.thorough
def test_inductor_for_real_and_without_a_compiler(tmp_path: Path) -> None:
    asked = ("--device", "cpu", "--settings", "default,", "--only", "inductor")
    found = run(tmp_path / "with", *asked).outcomes[INDUCTOR]
    if found.state == "n/a":
        assert any(words in found.evidence[0] for words in ("no working C++ compiler", "cannot compile"))
        return
    assert found.state == "pass"
    assert found.numerics["max_error"] <= found.numerics["max_error_limit"]
    empty = tmp_path / "empty"
    empty.mkdir()
    without = run(tmp_path / "without", *asked, env={"PATH": str(empty)}).outcomes[INDUCTOR]
    assert (without.state, without.evidence[0]) == (
        "n/a", "there is no working C++ compiler, which Inductor needs on a CPU",
    )  # fmt: skip


def test_every_size_is_new_and_asked_once_for_its_first_call() -> None:
    seen: list[tuple[int, ...]] = []
    right = torch.nn.functional.conv2d

    def recorded(image: Any, *operands: Any, **options: Any) -> Any:
        if image.dtype == torch.float32:
            seen.append(tuple(image.shape[2:]))
        return right(image, *operands, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "conv2d", recorded)
        answer = ask("changing-sizes")
    assert (answer.state, answer.timings["sizes"]) == ("pass", 24)
    assert len(set(seen)) == 24 + 1
    deciles = [answer.timings[f"new_size_{each}"] for each in ("p10", "median", "p90", "max")]
    assert 0 < deciles[0] <= deciles[1] <= deciles[2] <= deciles[3]
    assert answer.timings["new_size"] > 0


def test_slow_sizes_end_the_check_early() -> None:
    times = iter(range(0, 10_000, 9))
    answer = CHECKS["changing-sizes"].function(context(clock=lambda: next(times)))
    assert (answer.timings["sizes"], answer.timings["new_size"]) == (3, 9)


def test_a_wrong_size_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.nn.functional.conv2d

    def odd(image: Any, *operands: Any, **options: Any) -> Any:
        wrong = image.dtype == torch.float32 and image.shape[2] == 30
        return right(image, *operands, **options) * (2 if wrong else 1)

    monkeypatch.setattr(torch.nn.functional, "conv2d", odd)
    answer = ask("changing-sizes")
    assert (answer.state, answer.numerics["of"].partition("x")[0]) == ("wrong", "30")


@pytest.mark.parametrize("wrong", [False, True])
def test_a_step_in_channels_last(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.nn.functional.adaptive_avg_pool2d
    formats = []

    def pooled(image: Any, *size: Any) -> Any:
        if image.dtype == torch.float32:
            formats.append(image.is_contiguous(memory_format=torch.channels_last))
        return right(image, *size) * (1.1 if wrong and image.dtype == torch.float32 else 1)

    monkeypatch.setattr(torch.nn.functional, "adaptive_avg_pool2d", pooled)
    answer = ask("channels-last-step")
    assert answer.state == ("wrong" if wrong else "pass")
    assert formats == [True, True]
