"""Checks of matrix products for which PyTorch can use hipBLASLt instead of rocBLAS."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rocmprobe.checks.check import KERNELS, Check, FailureText
from rocmprobe.checks.tools.computation import Named, leaf, unequal, uniform, with_gradients
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.checks.tools.layer_check import layer_check

if TYPE_CHECKING:
    from torch import Tensor

#: (number of rows, of inputs, of outputs) of the linear layer.
_ROWS, _INPUTS, _OUTPUTS = 48, 512, 256
#: Maximum magnitude of the integers. Their products and sums are exact in int32.
_LARGEST_BYTE = 8


def linear(rows: Tensor, weight: Tensor, bias: Tensor, grad: Tensor) -> Named:
    """Return a matrix product, and the output and gradients of a linear layer."""
    import torch
    import torch.nn.functional as F

    # Scale the weights as in the usual initialization.
    weight = weight / rows.shape[1] ** 0.5
    leaves = {"input": leaf(rows), "weight": leaf(weight), "bias": leaf(bias)}
    layer = with_gradients(F.linear(*leaves.values()), leaves, grad)
    return {"product": torch.mm(rows, weight.t()), **layer}


def int_matmul(context: CheckContext) -> CheckResult:
    """Test that ``torch._int_mm`` of int8 matrices is exact."""
    import torch

    # On AMD, PyTorch always uses hipBLASLt for this product.
    function: Any = getattr(torch, "_int_mm", None)
    if function is None:
        raise NotApplicable(f"torch {torch.__version__} has no torch._int_mm; 2.1 is the first")
    generator = torch.Generator().manual_seed(context.seed())
    drawn = [
        torch.randint(-_LARGEST_BYTE, _LARGEST_BYTE + 1, shape, generator=generator, dtype=torch.int8)
        for shape in ((_ROWS, _INPUTS), (_INPUTS, _OUTPUTS))
    ]
    left, right = context.placed(lambda: [matrix.to(context.device) for matrix in drawn])
    product, seconds = context.first_call(lambda: function(left, right))
    wrong = unequal(product.double(), drawn[0].double() @ drawn[1].double())
    answer = CheckResult(timings={"first_call": seconds}, numerics={"exact": not wrong})
    if wrong:
        answer.state, answer.message = "wrong", f"{wrong} of {product.numel()} elements differ"
    return answer


CHECKS = (
    layer_check(
        "matmul",
        rung="gemm",
        question="Is a linear layer correct with the library that PyTorch prefers for it?",
        draw=partial(
            uniform,
            {
                "rows": (_ROWS, _INPUTS),
                "weight": (_OUTPUTS, _INPUTS),
                "bias": (_OUTPUTS,),
                "grad": (_ROWS, _OUTPUTS),
            },
        ),
        call=linear,
        requires=KERNELS,
        explanation=FailureText(
            subject="A linear layer",
            rung="gemm",
            advice="Use a dtype in which it is correct, or another build of torch.",
        ),
    ),
    Check(
        name="int-matmul",
        rung="gemm",
        question="Are int8 matrix products exact (on AMD only hipBLASLt computes them)?",
        function=int_matmul,
        requires=KERNELS,
        seconds=0.01,
        explanation=FailureText(
            subject="The int8 matrix product (torch._int_mm)",
            rung="gemm",
            advice="Avoid int8 products. Quantized models need another dtype, or a build of torch that has "
            "them.",
            general=False,
        ),
    ),
)
