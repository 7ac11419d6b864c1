"""The rungs below convolution: copy, elementwise, GEMM, im2col."""

from __future__ import annotations

from typing import Any

from rocmprobe.checks.check import KERNELS, Check, Requires
from rocmprobe.checks.tools.compare import errors, unequal
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure
from rocmprobe.checks.tools.repro_script import ReproScript
from rocmprobe.checks.tools.tensors import whole_numbers
from rocmprobe.model.numerics import exact_fill, judge_float


def _generator(context: CheckContext) -> Any:
    import torch

    return torch.Generator().manual_seed(context.seed())


def copy(context: CheckContext) -> CheckResult:
    """4 MiB of whatever bits to the device and back, byte for byte."""
    import torch

    if context.backend.device_type == "cuda" and not torch.cuda.is_available():
        built = torch.version.hip or torch.version.cuda
        kind = "for a CPU only" if built is None else "for a GPU, but sees no device"
        raise DeviceFailure(f"torch {torch.__version__} is built {kind}")
    sent = torch.randint(0, 256, (4 << 20,), generator=_generator(context), dtype=torch.uint8)
    back, seconds = context.first_call(lambda: sent.view(context.dtype).to(context.device).clone().cpu())
    wrong = int((back.view(torch.uint8) != sent).sum())
    return _exactly(wrong, "bytes came back changed", seconds)


def elementwise(context: CheckContext) -> CheckResult:
    """Multiply, add, maximum and a sum over integers: exact in every order."""
    import torch

    values = torch.randint(-8, 9, (64, 1024), generator=_generator(context)).to(torch.float64)
    expected = (values * 2 + 1).clamp(min=0)
    placed = context.placed(lambda: values.to(context.device, context.dtype))

    def call() -> Any:
        result = torch.relu(placed * 2 + 1)
        return result, result.float().sum(1)

    (result, sums), seconds = context.first_call(call)
    wrong = unequal(result, expected) + unequal(sums, expected.sum(1))
    return _exactly(wrong, "elements differ", seconds)


def gemm(context: CheckContext) -> CheckResult:
    """(192, 576) @ (576, 320) and a batch of four, float tier and exact tier."""
    import torch

    generator = _generator(context)
    left = torch.rand((4, 192, 576), generator=generator, dtype=torch.float64) * 2 - 1
    right = torch.rand((4, 576, 320), generator=generator, dtype=torch.float64) * 2 - 1
    left, right = (tensor.to(context.dtype).to(torch.float64) for tensor in (left, right))
    a, b = context.placed(lambda: [side.to(context.device, context.dtype) for side in (left, right)])
    (single, batch), seconds = context.first_call(lambda: (a[0] @ b[0], torch.bmm(a, b)))
    fill = exact_fill(context.dtype_name, 576)
    whole = whole_numbers((192, 576), fill.largest, fill.density, generator)
    factor = whole_numbers((576, 320), fill.largest, 1.0, generator)
    product, steady_seconds = context.steady_call(
        lambda: whole.to(context.device, context.dtype) @ factor.to(context.device, context.dtype)
    )
    timings = {"first_call": seconds, "steady": steady_seconds}
    answer = CheckResult(timings=timings)
    for result, reference in ((single, left[0] @ right[0]), (batch, left @ right)):
        good, answer.numerics, why = judge_float(errors(result, reference), context.dtype_name, 576)
        if not good:
            return CheckResult("wrong", why, timings=timings, numerics=answer.numerics)
    wrong = unequal(product, whole @ factor)
    answer.numerics["exact"] = wrong == 0
    if wrong:
        answer.state, answer.message = "wrong", f"exact tier: {wrong} elements differ"
    return answer


def im2col(context: CheckContext) -> CheckResult:
    """Unfold copies, fold adds small integers: both exact."""
    import torch
    import torch.nn.functional as F

    image = torch.randint(-8, 9, (2, 5, 17, 19), generator=_generator(context)).to(torch.float64)
    geometry = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 1), "stride": (2, 1)}
    columns = F.unfold(image, **geometry)
    placed = context.placed(lambda: image.to(context.device, context.dtype))

    def call() -> Any:
        unfolded = F.unfold(placed, **geometry)
        return unfolded, F.fold(unfolded, (17, 19), **geometry)

    (unfolded, folded), seconds = context.first_call(call)
    wrong = unequal(unfolded, columns) + unequal(folded, F.fold(columns, (17, 19), **geometry))
    return _exactly(wrong, "elements differ", seconds)


def _exactly(wrong: int, what: str, seconds: float) -> CheckResult:
    state, message = ("wrong", f"{wrong} {what}") if wrong else ("pass", "")
    return CheckResult(state, message, timings={"first_call": seconds})


CHECKS = (
    Check(
        "copy", "copy", "Does the device open, and do bytes come back as they went?", copy,
        # A device that does not open is not tested again for every dtype.
        Requires(float32=("copy",)), capi_dtypes=("float32",),
        script=ReproScript(
            ("sent",), ("torch.randint(0, 256, (4 << 20,), dtype=torch.uint8)",), (),
            ("[", "sent.clone()", "]"), 0.0,
        ),
    ),
    Check(
        "elementwise", "elementwise", "Do PyTorch's own kernels, or HIP's, run and give exact results?",
        elementwise, Requires(("copy",)), capi_dtypes=("float32",),
        script=ReproScript(
            ("values",), ("torch.randint(-8, 9, (64, 1024)).double()",), (),
            ("[", "result, result.float().sum(1)", "]"), 0.0,
            before=("result = torch.relu(values * 2 + 1)",),
        ),
    ),
    Check(
        "gemm", "gemm", "Does matrix multiplication (rocBLAS on AMD) give right numbers?", gemm,
        KERNELS, capi_dtypes=("float32", "float16", "bfloat16", "float64"),
    ),
    Check(
        "im2col", "im2col", "Do unfold and fold move every element to its place?", im2col, KERNELS,
        script=ReproScript(
            ("image",), ("torch.randint(-8, 9, (2, 5, 17, 19)).double()",), (),
            ("[", "columns, torch.nn.functional.fold(columns, (17, 19), **geometry)", "]"), 0.0,
            before=(
                "geometry = dict(kernel_size=(3, 2), dilation=(1, 2), padding=(1, 1), stride=(2, 1))",
                "columns = torch.nn.functional.unfold(image, **geometry)",
            ),
        ),
    ),
)  # fmt: skip
