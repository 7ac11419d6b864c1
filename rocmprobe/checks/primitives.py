"""What enters the vendor library besides convolution alone: batch norm, recurrent layers, the CTC loss, and
convolution fused with ReLU."""

from __future__ import annotations

from functools import partial
from typing import Any

from rocmprobe.checks.check import KERNELS, Check, LibraryLayer, Requires
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.checks.tools.layer import UNIT, compare, leaf, uniform, with_gradients
from rocmprobe.checks.tools.repro_script import ABOVE_HALF, UNIFORM, ReproScript, recurrent

#: Of batch norm.
_NORMALIZED, _CHANNELS = (4, 16, 14, 14), 16
#: Of recurrent layers, and of the CTC loss.
_STEPS, _BATCH, _INPUT, _HIDDEN, _LAYERS = 6, 3, 8, 10, (1, 2)
_FRAMES, _CLASSES = 12, 5
#: Of fused convolution.
_IMAGE, _FILTERS, _OUTPUT = (2, 4, 8, 8), (6, 4, 3, 3), (2, 6, 8, 8)
_ONE = [1, 1]


def _drawn(context: CheckContext, *shapes: Any) -> list[Any]:
    """Uniform in [0.5, 1.5): weights and variances far from zero."""
    import torch

    generator = torch.Generator().manual_seed(context.seed())
    drawn = [torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5 for shape in shapes]
    return [tensor.to(context.dtype).to(torch.float64) for tensor in drawn]


def wide(tensor: Any) -> Any:
    """Half precision as fp32: as autocast has the weights of batch norm, and as MIOpen wants them."""
    return tensor.float() if tensor.element_size() == 2 else tensor


def batch_norm(context: CheckContext) -> CheckResult:
    """Training mode, forward and gradients of input, weight and bias."""
    import torch.nn.functional as F

    def call(image: Any, weight: Any, bias: Any, grad: Any) -> dict[str, Any]:
        leaves = {"input": leaf(image), "weight": leaf(wide(weight)), "bias": leaf(wide(bias))}
        x, w, b = leaves.values()
        return with_gradients(F.batch_norm(x, None, None, w, b, training=True), leaves, grad)

    return compare(context, _drawn(context, _NORMALIZED, _CHANNELS, _CHANNELS, _NORMALIZED), call, UNIT)


def batch_norm_eval(context: CheckContext) -> CheckResult:
    """With running mean and variance, forward alone: backward enters the library in training only."""
    import torch
    import torch.nn.functional as F

    def call(image: Any, *of_channels: Any) -> dict[str, Any]:
        mean, variance, weight, bias = map(wide, of_channels)
        with torch.no_grad():
            return {"output": F.batch_norm(image, mean, variance, weight, bias, training=False)}

    return compare(context, _drawn(context, _NORMALIZED, *[_CHANNELS] * 4), call, UNIT)


def rnn(context: CheckContext) -> CheckResult:
    """Elman's, with tanh."""
    return _recurrent(context, "RNN")


def lstm(context: CheckContext) -> CheckResult:
    return _recurrent(context, "LSTM")


def gru(context: CheckContext) -> CheckResult:
    return _recurrent(context, "GRU")


def _recurrent(context: CheckContext, kind: str) -> CheckResult:
    """Output over a short sequence and the gradients of the input and of all weights."""
    import torch

    def call(sequence: Any, weights: Any, grad: Any) -> dict[str, Any]:
        found = {}
        for layers in _LAYERS:
            net = getattr(torch.nn, kind)(_INPUT, _HIDDEN, layers).to(sequence.device, sequence.dtype)
            # About as large as torch draws them; larger ones amplify errors from step to step.
            torch.nn.utils.vector_to_parameters(weights / 4, net.parameters())
            leaves = {"input": leaf(sequence), **dict(net.named_parameters())}
            output, _ = net(leaves["input"])
            for what, tensor in with_gradients(output, leaves, grad).items():
                found[f"{layers} layer(s): {what}"] = tensor
        return found

    weights = sum(each.numel() for each in getattr(torch.nn, kind)(_INPUT, _HIDDEN, _LAYERS[-1]).parameters())
    shapes = ((_STEPS, _BATCH, _INPUT), (weights,), (_STEPS, _BATCH, _HIDDEN))
    return compare(context, uniform(context, shapes), call, UNIT)


def ctc_loss(context: CheckContext) -> CheckResult:
    """Of two sequences, with the gradient. Targets, lengths and blank are such as the libraries take: one
    row of int32 on the CPU, all frames used, blank 0."""
    import torch
    import torch.nn.functional as F

    targets = torch.tensor([1, 2, 3, 1], dtype=torch.int32)
    # Any: torch's own annotations know no tuples here.
    lengths: Any = (3, 1)
    frames_used: Any = (_FRAMES,) * len(lengths)

    def call(frames: Any, grad: Any) -> dict[str, Any]:
        leaves = {"input": leaf(frames)}
        scores = F.log_softmax(leaves["input"], 2)
        loss = F.ctc_loss(scores, targets, frames_used, lengths, reduction="none")
        return with_gradients(loss, leaves, grad)

    return compare(
        context, uniform(context, ((_FRAMES, len(lengths), _CLASSES), (len(lengths),))), call, UNIT
    )


def convolution_relu(context: CheckContext) -> CheckResult:
    return _fused(context, [_IMAGE, _FILTERS, _FILTERS[:1]])


def convolution_add_relu(context: CheckContext) -> CheckResult:
    """The same with a second image added before ReLU, as at the end of a residual block."""
    return _fused(context, [_IMAGE, _FILTERS, _FILTERS[:1], _OUTPUT])


def _fused(context: CheckContext, shapes: list[Any]) -> CheckResult:
    """With the vendor library off there is nothing to fuse: then the same work by separate operators."""
    call = _operator(context, len(shapes) > 3) if _library_on(context) else _separate
    return compare(context, uniform(context, shapes), call, reference=_separate)


def _separate(image: Any, filters: Any, bias: Any, summand: Any = None) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F

    with torch.no_grad():
        output = F.conv2d(image, filters, bias, padding=1)
        return {"output": torch.relu(output if summand is None else output + summand)}


def _library_on(context: CheckContext) -> bool:
    import torch

    with context.tested():
        module: Any = torch.backends.mkldnn if context.backend.name == "onednn" else torch.backends.cudnn
        return bool(module.enabled)


def _operator(context: CheckContext, add: bool) -> Any:
    """The library's own operator, as a function of the operands. Raises NotApplicable where there is none."""
    import torch

    library = context.backend.name
    if library != "onednn":
        if context.backend.device_type == "cpu":
            raise NotApplicable("on a simulated machine nothing stands in for this operator of MIOpen's own")
        function = getattr(torch, f"{library}_convolution_{'add_' if add else ''}relu")
        if add:
            return lambda x, w, b, z: {"output": function(x, w, z, 1.0, b, _ONE, _ONE, _ONE, 1)}
        return lambda x, w, b: {"output": function(x, w, b, _ONE, _ONE, _ONE, 1)}
    packet = getattr(torch.ops.mkldnn, "_convolution_pointwise", None)
    if packet is None:
        raise NotApplicable(f"torch {torch.__version__} has no such operator of oneDNN")
    if context.dtype != torch.float32:
        raise NotApplicable(f"whether oneDNN's operator takes {context.dtype_name} depends on the CPU")
    if add:
        return lambda x, w, b, z: {
            "output": packet.binary(x, z, w, b, _ONE, _ONE, _ONE, 1, "add", 1.0, "relu", [], None)
        }
    return lambda x, w, b: {"output": packet(x, w, b, _ONE, _ONE, _ONE, 1, "relu", [], "")}


_primitive_check = partial(Check, rung="primitives", verified=False)
_recurrent_check = partial(_primitive_check, requires=Requires(("elementwise", "gemm")))
_fused_check = partial(
    _primitive_check, requires=Requires(("elementwise",), outside=("gemm",), convolution="fwd"),
    layer=LibraryLayer("convolution with ReLU in one operator", "fused_convolution"),
)  # fmt: skip
CHECKS = (
    Check(
        "batch-norm", "batch-norm", "Does batch norm train and give right numbers?",
        batch_norm, KERNELS, capi_dtypes=("float32",),
        layer=LibraryLayer("batch norm", "batch_norm"),
        script=ReproScript(
            ("x", "w", "b", "dy"), ("draw(4, 16, 14, 14)", "draw(16)", "draw(16)", "draw(4, 16, 14, 14)"),
            ABOVE_HALF, ("[", "y.detach(), *torch.autograd.grad(y, leaves, dy)", "]"), least=1.0,
            before=(
                "leaves = [t.detach().requires_grad_() for t in (x, wide(w), wide(b))]",
                "y = torch.nn.functional.batch_norm(leaves[0], None, None, *leaves[1:], training=True)",
            ),
        ),
    ),
    Check(
        "batch-norm-eval", "batch-norm", "Is batch norm right with the statistics that training left?",
        batch_norm_eval, KERNELS, verified=False,
        layer=LibraryLayer("batch norm in evaluation", "batch_norm"),
        script=ReproScript(
            ("x", *"mvwb"), ("draw(4, 16, 14, 14)", *["draw(16)"] * 4), ABOVE_HALF,
            ("[", "torch.nn.functional.batch_norm(x, *map(wide, (m, v, w, b)))", "]"), least=1.0,
        ),
    ),
    _recurrent_check(
        "rnn", question="Is an Elman RNN of one and of two layers right, with its gradients?",
        function=rnn, layer=LibraryLayer("RNN", "rnn"), script=recurrent("RNN", 1),
    ),
    _recurrent_check(
        "lstm", question="Is an LSTM of one and of two layers right, with its gradients?",
        function=lstm, layer=LibraryLayer("LSTM", "rnn"), script=recurrent("LSTM", 4),
    ),
    _recurrent_check(
        "gru", question="Is a GRU of one and of two layers right, with its gradients?",
        function=gru, layer=LibraryLayer("GRU", "rnn"), script=recurrent("GRU", 3),
    ),
    _primitive_check(
        "ctc-loss", question="Is the CTC loss right, with its gradient?", function=ctc_loss,
        requires=KERNELS, layer=LibraryLayer("CTC loss", "ctc_loss"),
        script=ReproScript(
            ("x", "dy"), ("draw(12, 2, 5)", "draw(2)"), (UNIFORM,),
            ("[", "y.detach(), *torch.autograd.grad(y, x, dy)", "]"), least=1.0,
            before=(
                "x, targets = x.detach().requires_grad_(), torch.tensor([1, 2, 3, 1], dtype=torch.int32)",
                "scores = torch.nn.functional.log_softmax(x, 2)",
                'y = torch.nn.functional.ctc_loss(scores, targets, (12, 12), (3, 1), reduction="none")',
            ),
        ),
    ),
    _fused_check(
        "convolution-relu", question="Is convolution, bias and ReLU in one operator right?",
        function=convolution_relu,
    ),
    _fused_check(
        "convolution-add-relu", question="Is convolution, bias, sum and ReLU in one operator right?",
        function=convolution_add_relu,
    ),
)  # fmt: skip
