"""RNN, LSTM and GRU of one and of two layers, and the CTC loss."""

from __future__ import annotations

from typing import Any

from rocmprobe.worker.checks.layer import UNIT, compare, leaf, uniform, with_gradients
from rocmprobe.worker.context import CheckContext, CheckResult

_STEPS, _BATCH, _INPUT, _HIDDEN, _LAYERS = 6, 3, 8, 10, (1, 2)
_FRAMES, _CLASSES = 12, 5


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
