"""Derivatives through autograd against finite differences, in fp64."""

from __future__ import annotations

from typing import Any

from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.tensors import run, uniform


def gradients(ask: Ask) -> Answer:
    """``torch.autograd.gradcheck`` and ``gradgradcheck`` on a tiny problem, in fast mode: random
    projections of the Jacobians (eps 1e-6, atol 1e-5, rtol 1e-3)."""
    import torch

    problem = ask.the_problem
    drawn = uniform(problem, ask.dtype, ask.seed())
    operands = ask.placed(lambda: drawn.to(ask.device, ask.dtype))
    leaves = [
        tensor.requires_grad_()
        for tensor in (operands.input, operands.weight, operands.bias)
        if tensor is not None
    ]

    def forward(*tensors: Any) -> Any:
        operands.input, operands.weight, *bias = tensors
        operands.bias = bias[0] if bias else None
        return run(problem, "fwd", operands)["output"]

    def differentiate() -> str:
        for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
            try:
                check(forward, leaves, fast_mode=True)
            except RuntimeError as error:
                # A mismatch is gradcheck's verdict; anything else is the device's failure.
                if type(error).__name__ != "GradcheckError":
                    raise
                return f"{check.__name__}: {str(error).splitlines()[0]}"
        return ""

    mismatch, seconds = ask.first_call(differentiate)
    return Answer("wrong" if mismatch else "pass", mismatch, timings={"first_call": seconds})
