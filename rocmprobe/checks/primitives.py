"""Checks of batch norm, RNN, CTC loss and fused convolution in the vendor library."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional

from rocmprobe.checks.check import KERNELS, Check, LibraryLayer, Requires
from rocmprobe.checks.tools.compare import compare
from rocmprobe.checks.tools.computation import (
    TINY,
    Computation,
    Named,
    layer,
    leaf,
    uniform,
    with_gradients,
)
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.checks.tools.layer_check import layer_check
from rocmprobe.model.numerics import BATCH_NORM_LIMITS

if TYPE_CHECKING:
    from torch import Tensor


def wide(tensor: Tensor) -> Tensor:
    """Return a half-precision tensor in fp32, and any other tensor unchanged."""
    # Autocast keeps the weights of batch norm in fp32, and MIOpen requires fp32.
    return tensor.float() if tensor.element_size() == 2 else tensor


def batch_norm(image: Tensor, weight: Tensor, bias: Tensor, grad: Tensor) -> Named:
    """Apply batch norm in training mode, and compute the gradients."""
    import torch.nn.functional as F

    leaves = {"input": leaf(image), "weight": leaf(wide(weight)), "bias": leaf(wide(bias))}
    x, w, b = leaves.values()
    return with_gradients(F.batch_norm(x, None, None, w, b, training=True), leaves, grad)


def batch_norm_eval(image: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Named:
    """Apply batch norm in evaluation mode, without gradients."""
    import torch
    import torch.nn.functional as F

    with torch.no_grad():
        # The library has no backward pass for this mode.
        return {"output": F.batch_norm(image, wide(mean), wide(variance), wide(weight), wide(bias))}


def rnn(**operands: Tensor) -> Named:
    """Run an Elman RNN with tanh."""
    return recurrent("RNN", **operands)


def lstm(**operands: Tensor) -> Named:
    return recurrent("LSTM", **operands)


def gru(**operands: Tensor) -> Named:
    return recurrent("GRU", **operands)


def recurrent(kind: str, sequence: Tensor, weights: Tensor, grad: Tensor) -> Named:
    """Run networks of one and of two recurrent layers, and return outputs and gradients.

    ``kind`` is "RNN", "LSTM" or "GRU".
    """
    import torch

    named = {}
    for layers in (1, 2):
        net = getattr(torch.nn, kind)(8, 10, layers).to(sequence.device, sequence.dtype)
        # Use weights about as large as torch's initial weights. Larger weights would amplify errors.
        torch.nn.utils.vector_to_parameters(weights / 4, net.parameters())
        leaves = {"input": leaf(sequence), **dict(net.named_parameters())}
        results = with_gradients(net(leaves["input"])[0], leaves, grad)
        named.update({f"{layers} layer(s): {what}": tensor for what, tensor in results.items()})
    return named


def _sequence(gates: int) -> partial[Named]:
    """Return a function that draws a sequence and the weights of two recurrent layers."""
    # Each gate has 10 units. Each layer has weights for its inputs (8, then 10) and for its own 10 outputs,
    # and two biases.
    weights = gates * 10 * (8 + 10 + 2 + 10 + 10 + 2)
    return partial(uniform, {"sequence": (6, 3, 8), "weights": (weights,), "grad": (6, 3, 10)})


def ctc_loss(frames: Tensor, grad: Tensor) -> Named:
    """Compute the CTC loss of two sequences, and the gradient."""
    import torch
    import torch.nn.functional as F

    # The libraries require this form: one row of int32 targets on the CPU, all frames used, blank 0.
    targets = torch.tensor([1, 2, 3, 1], dtype=torch.int32)
    lengths: Any = {"input_lengths": (12, 12), "target_lengths": (3, 1)}
    leaves = {"input": leaf(frames)}
    scores = F.log_softmax(leaves["input"], 2)
    return with_gradients(F.ctc_loss(scores, targets, **lengths, reduction="none"), leaves, grad)


def separate(image: Tensor, filters: Tensor, bias: Tensor, summand: Optional[Tensor] = None) -> Named:
    import torch
    import torch.nn.functional as F

    with torch.no_grad():
        output = F.conv2d(image, filters, bias, padding=1)
        return {"output": torch.relu(output if summand is None else output + summand)}


def by_onednn(image: Tensor, filters: Tensor, bias: Tensor, summand: Optional[Tensor] = None) -> Named:
    import torch

    fused: Any = torch.ops.mkldnn._convolution_pointwise
    one = [1, 1]
    if summand is None:
        return {"output": fused(image, filters, bias, one, one, one, 1, "relu", [], "")}
    output = fused.binary(image, summand, filters, bias, one, one, one, 1, "add", 1.0, "relu", [], None)
    return {"output": output}


def by_cudnn(image: Tensor, filters: Tensor, bias: Tensor, summand: Optional[Tensor] = None) -> Named:
    import torch

    one = [1, 1]
    if summand is None:
        return {"output": torch.cudnn_convolution_relu(image, filters, bias, one, one, one, 1)}
    return {"output": torch.cudnn_convolution_add_relu(image, filters, summand, 1.0, bias, one, one, one, 1)}


def by_miopen(image: Tensor, filters: Tensor, bias: Tensor, summand: Optional[Tensor] = None) -> Named:
    import torch

    one = [1, 1]
    if summand is None:
        return {"output": torch.miopen_convolution_relu(image, filters, bias, one, one, one, 1)}
    return {"output": torch.miopen_convolution_add_relu(image, filters, summand, 1.0, bias, one, one, one, 1)}


_FUSED: dict[str, Callable[..., Named]] = {
    "": separate,
    "onednn": by_onednn,
    "cudnn": by_cudnn,
    "miopen": by_miopen,
}


def _fused(dtype: str, add: bool, library: str) -> Computation:
    """Return a computation that calls ``library``'s fused operator (convolution, bias and ReLU).

    If ``add`` is True, the operator also adds a tensor. If ``library`` is "", the computation calls separate
    PyTorch operators instead.
    """
    shapes: dict[str, tuple[int, ...]] = {"image": (2, 4, 8, 8), "filters": (6, 4, 3, 3), "bias": (6,)}
    if add:
        shapes["summand"] = (2, 6, 8, 8)
    return layer(dtype, partial(uniform, shapes), _FUSED.get(library, by_miopen), TINY, separate)


def convolution_relu(context: CheckContext) -> CheckResult:
    return compare(context, _fused(context.dtype_name, False, _library(context)))


def convolution_add_relu(context: CheckContext) -> CheckResult:
    """Test convolution, addition and ReLU in one operator, as in a residual block."""
    return compare(context, _fused(context.dtype_name, True, _library(context)))


def _library(context: CheckContext) -> str:
    """Return the library whose fused operator PyTorch calls, or "" if the library is switched off.

    Raise NotApplicable if the library has no fused operator.
    """
    import torch

    library = context.backend.name
    with context.under_setting():
        if not (torch.backends.mkldnn if library == "onednn" else torch.backends.cudnn).enabled:
            return ""
    if library != "onednn":
        if context.backend.device_type == "cpu":
            raise NotApplicable("a simulated machine has no substitute for this operator of MIOpen")
        return library
    if getattr(torch.ops.mkldnn, "_convolution_pointwise", None) is None:
        raise NotApplicable(f"torch {torch.__version__} does not have this oneDNN operator")
    if context.dtype != torch.float32:
        raise NotApplicable(f"oneDNN's operator accepts {context.dtype_name} only on some CPUs")
    return library


_CHANNELS = (16,)
_NORMALIZED = (4, 16, 14, 14)
#: Function that draws weights and variances far from zero.
_positive = partial(uniform, least=0.5, width=1)
_primitive_check = partial(layer_check, rung="primitives")
_recurrent_check = partial(_primitive_check, requires=Requires(("elementwise", "gemm")))
_fused_check = partial(
    Check,
    rung="primitives",
    requires=Requires(("elementwise",), outside=("gemm",), convolution="fwd"),
    layer=LibraryLayer("convolution with ReLU in one operator", "fused_convolution"),
)
CHECKS = (
    layer_check(
        "batch-norm",
        rung="batch-norm",
        question="Does batch norm train and give correct results?",
        draw=partial(
            _positive,
            {"image": _NORMALIZED, "weight": _CHANNELS, "bias": _CHANNELS, "grad": _NORMALIZED},
        ),
        call=batch_norm,
        limits=BATCH_NORM_LIMITS,
        requires=KERNELS,
        in_template=True,
        layer=LibraryLayer("batch norm", "batch_norm"),
    ),
    layer_check(
        "batch-norm-eval",
        rung="batch-norm",
        question="Is batch norm correct with the statistics from training?",
        draw=partial(
            _positive,
            {"image": _NORMALIZED, **dict.fromkeys(("mean", "variance", "weight", "bias"), _CHANNELS)},
        ),
        call=batch_norm_eval,
        in_template=True,
        requires=KERNELS,
        layer=LibraryLayer("batch norm in evaluation", "batch_norm"),
    ),
    _recurrent_check(
        "rnn",
        question="Is an Elman RNN of one and of two layers correct, with its gradients?",
        draw=_sequence(1),
        call=rnn,
        layer=LibraryLayer("RNN", "rnn"),
    ),
    _recurrent_check(
        "lstm",
        question="Is an LSTM of one and of two layers correct, with its gradients?",
        draw=_sequence(4),
        call=lstm,
        layer=LibraryLayer("LSTM", "rnn"),
    ),
    _recurrent_check(
        "gru",
        question="Is a GRU of one and of two layers correct, with its gradients?",
        draw=_sequence(3),
        call=gru,
        layer=LibraryLayer("GRU", "rnn"),
    ),
    _primitive_check(
        "ctc-loss",
        question="Is the CTC loss correct, with its gradient?",
        draw=partial(uniform, {"frames": (12, 2, 5), "grad": (2,)}),
        call=ctc_loss,
        requires=KERNELS,
        layer=LibraryLayer("CTC loss", "ctc_loss"),
    ),
    _fused_check(
        "convolution-relu",
        question="Is convolution fused with bias and ReLU correct?",
        function=convolution_relu,
    ),
    _fused_check(
        "convolution-add-relu",
        question="Is convolution fused with bias, sum and ReLU correct?",
        function=convolution_add_relu,
    ),
)
