"""What convolution allocates. The device belongs to the measurement alone meanwhile."""

from __future__ import annotations

from typing import Any

from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.checks.operands import operands_on_device
from rocmprobe.worker.tensors import run
from rocmprobe.worker.workspace import of_bypass, of_pytorch

#: Allocators round sizes up; more than this multiple of what was predicted is a wrong prediction.
TOLERANCE = 1.2


def memory(ask: Ask) -> Answer:
    """Bytes: at the peak of forward and backward above the operands, and kept for backward.

    ``peak_bytes`` is above input, weight and the output's gradient, so it holds the output and both
    gradients; ``above_output_bytes`` is above the output, too; ``forward_workspace_bytes`` the same in the
    forward alone. ``predicted_saved_bytes`` are input and weight, all that PyTorch's
    ``convolution_backward`` is given besides the gradient (tools/autograd/derivatives.yaml).
    ``predicted_bytes`` predicts the peak where the implementation reports its workspace, else
    ``least_bytes``: output and gradients. What exceeds its prediction is wrong.
    """
    import torch

    from rocmprobe.bypass import reset_status, status

    problem, operands = ask.the_problem, operands_on_device(ask)
    leaves = [operands.input.requires_grad_(), operands.weight.requires_grad_()]
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.data_ptr()] = _bytes(tensor)
        return tensor

    def forward() -> Any:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            return run(problem, "fwd", operands)["output"]

    def backward(output: Any) -> None:
        torch.autograd.grad(output, leaves, operands.grad)

    ask.first_call(lambda: backward(forward()))
    kept.clear()
    reset_status()
    with ask.alone(), ask.tested():
        with ask.backend.meter(ask.device) as ahead:
            output = forward()
        with ask.backend.meter(ask.device) as back:
            backward(output)
        workspace = of_bypass(ask, set(status()["calls"])) if ask.bypass else of_pytorch(ask, *leaves)
    result, gradients = _bytes(output), sum(map(_bytes, leaves))
    peak = max(ahead.peak_bytes, result + back.peak_bytes)
    answer = Answer(
        memory={
            "peak_bytes": peak, "saved_bytes": sum(kept.values()),
            "predicted_saved_bytes": gradients, "above_output_bytes": peak - result,
            "forward_workspace_bytes": ahead.peak_bytes - result,
        }
    )  # fmt: skip
    if workspace is None:
        answer.memory["least_bytes"] = result + gradients
    else:
        answer.memory["predicted_bytes"] = result + max(workspace.forward, gradients + workspace.backward)
    for name, predicted in (("peak", "predicted_bytes"), ("saved", "predicted_saved_bytes")):
        measured, limit = answer.memory[f"{name}_bytes"], answer.memory.get(predicted)
        if limit is not None and measured > TOLERANCE * limit:
            answer.state = "wrong"
            answer.message = f"{name}: {measured} bytes, {limit} were predicted"
    return answer


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
