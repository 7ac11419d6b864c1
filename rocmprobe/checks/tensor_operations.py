"""Checks of MIOpen operators that PyTorch does not call directly.

Only the driver capi, which calls MIOpen without torch, runs these checks.
"""

from __future__ import annotations

from rocmprobe.checks.check import KERNELS, Check, FailureText

_DTYPES = ("float32", "float16")
_INSIDE = "PyTorch calls it only inside other layers: look at the findings about RNN and convolution."
_UNUSED = (
    "PyTorch does not call this operation. If a program calls MIOpen itself, replace the operation there."
)


def _check(name: str, question: str, subject: str, advice: str, dtypes: tuple[str, ...] = _DTYPES) -> Check:
    return Check(
        name, "primitives", question, None, KERNELS, capi_dtypes=dtypes, verified=False,
        explanation=FailureText(subject, "primitives", advice, needed=False),
    )  # fmt: skip


CHECKS = (
    _check(
        "tensor-op", "Are sum, product, minimum and maximum of two tensors exact in MIOpen?",
        "MIOpen's operation on two tensors", _INSIDE,
    ),
    _check(
        "tensor-transform", "Does MIOpen copy tensors correctly between memory formats and strides?",
        "MIOpen's copy between memory formats", _UNUSED,
    ),
    _check(
        "tensor-copy", "Does MIOpen copy slices of tensors correctly, as in its RNN?",
        "MIOpen's copy between slices", _INSIDE,
    ),
    _check(
        "tensor-cast", "Does MIOpen convert float32 to half precision exactly?", "MIOpen's cast", _INSIDE,
        ("float16", "bfloat16"),
    ),
    _check(
        "tensor-set", "Does MIOpen set the elements of a tensor, and no others?", "MIOpen's fill", _INSIDE
    ),
    _check(
        "tensor-scale", "Does MIOpen scale the elements of a tensor, and no others?", "MIOpen's scaling",
        _INSIDE,
    ),
    _check(
        "bias", "Are the sum with a bias, and its gradient, exact in MIOpen?", "MIOpen's bias", _UNUSED
    ),
    _check(
        "batch-norm-relu", "Is MIOpen's batch norm in evaluation, fused with ReLU, correct?",
        "Batch norm fused with ReLU in MIOpen", _UNUSED,
    ),
)  # fmt: skip
