"""What convolution allocates. The device belongs to the measurement alone meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.checks.operands import operands_on_device
from rocmprobe.worker.tensors import run

#: Allocators round sizes up; a peak above this multiple of what was predicted is a wrong prediction.
PEAK_TOLERANCE = 1.2


def memory(ask: Ask) -> Answer:
    """Peak bytes above the operands in forward and backward, and bytes kept for backward.

    Under the bypass the peak is held against what it predicts: results and workspace.
    """
    import torch

    from rocmprobe.bypass import reset_status

    problem, operands = ask.the_problem, operands_on_device(ask)
    leaves = [operands.input.requires_grad_(), operands.weight.requires_grad_()]
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    def forward_and_backward() -> None:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = run(problem, "fwd", operands)["output"]
        torch.autograd.grad(output, leaves, operands.grad)

    ask.first_call(forward_and_backward)
    kept.clear()
    reset_status()
    with ask.tested(), ask.backend.meter(ask.device) as meter:
        forward_and_backward()
    # What any implementation needs: the output and both gradients, as large as grad, input and weight.
    results = sum(tensor.numel() * tensor.element_size() for tensor in (operands.grad, *leaves))
    answer = Answer(memory={"peak_bytes": meter.peak_bytes, "saved_bytes": sum(kept.values())})
    if ask.bypass:
        predicted = results + _workspace(ask)
        answer.memory["predicted_bytes"] = predicted
        if meter.peak_bytes > PEAK_TOLERANCE * predicted:
            answer.state = "wrong"
            answer.message = f"peak is {meter.peak_bytes} bytes, {predicted} were predicted"
    return answer


def _workspace(ask: Ask) -> int:
    """What the algorithms that the bypass took say that they allocate at most above operands and results."""
    from rocmprobe import bypass

    taken = bypass.status()["calls"]
    problem = replace(ask.the_problem, dtype=ask.dtype_name)
    plans = [
        plan
        for explanation in bypass.explain(problem, ask.backend.device_type).values()
        for plan in explanation.alternatives
        if plan.algorithm in taken
    ]
    return max((plan.workspace_bytes for plan in plans), default=0)
