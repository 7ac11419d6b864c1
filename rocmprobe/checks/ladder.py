"""Checks of the simple operations on which convolution depends: copy, elementwise, GEMM, im2col."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rocmprobe.checks.check import KERNELS, Check, Requires
from rocmprobe.checks.tools.compare import compare_exactly, errors
from rocmprobe.checks.tools.computation import (
    Computation,
    Named,
    exact,
    integers,
    max_ratio,
    rms_range,
    small_integers,
    unequal,
    uniform,
)
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure
from rocmprobe.model.numerics import exact_fill, float_limits, judge_float
from rocmprobe.model.results import Outcome

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Number of products in each sum of the matrix products.
_TERMS = 576


def random_bytes(dtype: torch.dtype, seed: int) -> Named:
    """Draw 4 MiB of random bits as a tensor of ``dtype``."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return {"sent": torch.randint(0, 256, (4 << 20,), generator=generator, dtype=torch.uint8).view(dtype)}


def returned(sent: Tensor) -> Named:
    """Copy the tensor within the device, then to the CPU."""
    return {"received": sent.clone().cpu()}


def changed_bytes(result: Tensor, reference: Tensor) -> int:
    """Count the bytes that differ."""
    import torch

    return int((result.view(torch.uint8) != reference.view(torch.uint8)).sum())


_COPY = Computation(partial(random_bytes), returned, (changed_bytes,), {"": {"changed_bytes": 0}})


def copy(context: CheckContext) -> CheckResult:
    """Copy 4 MiB of random bits to the device and back, and compare byte for byte."""
    import torch

    if context.backend.device_type == "cuda" and not torch.cuda.is_available():
        built = torch.version.hip or torch.version.cuda
        kind = "for a CPU only" if built is None else "for a GPU, but sees no device"
        raise DeviceFailure(f"torch {torch.__version__} is built {kind}")
    return compare_exactly(context, _COPY, "bytes came back changed")


def affine(values: Tensor) -> Named:
    """Compute ``relu(2 * values + 1)`` and the sum of each row."""
    import torch

    result = torch.relu(values * 2 + 1)
    return {"result": result, "sums": result.float().sum(1)}


_ELEMENTWISE = exact(partial(small_integers, {"values": (64, 1024)}), affine)


def unfold_and_fold(image: Tensor) -> Named:
    """Unfold the image into columns, then fold the columns."""
    import torch.nn.functional as F

    geometry = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 1), "stride": (2, 1)}
    columns = F.unfold(image, **geometry)
    return {"columns": columns, "folded": F.fold(columns, (17, 19), **geometry)}


_IM2COL = exact(partial(small_integers, {"image": (2, 5, 17, 19)}), unfold_and_fold)


def products(left: Tensor, right: Tensor) -> Named:
    """Return a single matrix product and a batch of products."""
    import torch

    return {"single": left[0] @ right[0], "batch": torch.bmm(left, right)}


def product(left: Tensor, right: Tensor) -> Named:
    return {"product": left @ right}


def gemm_computations(dtype: str) -> tuple[Computation, Computation]:
    """Return the matrix products of random numbers and of integers, as two computations."""
    draw = partial(uniform, {"left": (4, 192, _TERMS), "right": (4, _TERMS, 320)})
    limits = {"": float_limits(dtype, _TERMS)}
    fill = exact_fill(dtype, _TERMS)
    whole = partial(
        integers,
        {"left": (192, _TERMS), "right": (_TERMS, 320)},
        largest=fill.largest,
        density={"left": fill.density},
    )
    return Computation(draw, products, (max_ratio, rms_range), limits), exact(whole, product)


def gemm(context: CheckContext) -> CheckResult:
    """Test matrix products of random numbers and of integers."""
    float_tier, exact_tier = gemm_computations(context.dtype_name)
    drawn = float_tier.operands(context.dtype, context.seed())
    placed = context.placed(lambda: float_tier.placed(drawn, context.device, context.dtype))
    result, seconds = context.first_call(lambda: products(**placed))
    whole = exact_tier.operands(context.dtype, context.seed())
    integer_result, steady_seconds = context.steady_call(
        lambda: product(**exact_tier.placed(whole, context.device, context.dtype))
    )
    timings = {"first_call": seconds, "steady": steady_seconds}
    answer = CheckResult(timings=timings)
    for name, reference in products(**drawn).items():
        good, answer.numerics, why = judge_float(errors(result[name], reference), context.dtype_name, _TERMS)
        if not good:
            return CheckResult("wrong", why, timings=timings, numerics=answer.numerics)
    wrong = unequal(integer_result["product"], product(**whole)["product"])
    answer.numerics["exact"] = wrong == 0
    if wrong:
        answer.state, answer.message = "wrong", f"exact tier: {wrong} elements differ"
    return answer


def gemm_script(outcome: Outcome) -> Computation:
    """Return the computation that failed in ``outcome``."""
    float_tier, exact_tier = gemm_computations(outcome.dtype)
    return exact_tier if outcome.numerics.get("exact") is False else float_tier


CHECKS = (
    Check(
        name="copy",
        rung="copy",
        question="Does the device open, and do copied bytes come back unchanged?",
        function=copy,
        # Copy in other dtypes requires copy in float32, so that a device that does not open is not tested
        # again for every dtype.
        requires=Requires(float32=("copy",)),
    ),
    Check(
        name="elementwise",
        rung="elementwise",
        question="Do PyTorch's own kernels, or HIP's, run and give exact results?",
        function=lambda context: compare_exactly(context, _ELEMENTWISE),
        requires=Requires(("copy",)),
    ),
    Check(
        name="gemm",
        rung="gemm",
        question="Does matrix multiplication (rocBLAS on AMD) give correct results?",
        function=gemm,
        requires=KERNELS,
        script=gemm_script,
    ),
    Check(
        name="im2col",
        rung="im2col",
        question="Do unfold and fold move every element to the correct place?",
        function=lambda context: compare_exactly(context, _IM2COL),
        requires=KERNELS,
    ),
)
