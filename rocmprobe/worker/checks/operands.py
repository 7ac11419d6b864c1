"""A problem's operands on the device."""

from __future__ import annotations

from rocmprobe.worker.ask import Ask
from rocmprobe.worker.tensors import Tensors, uniform


def operands_on_device(ask: Ask) -> Tensors:
    """Uniform operands of the requested problem, in its dtype and memory format."""
    problem = ask.the_problem
    operands = uniform(problem, ask.dtype, ask.seed())
    placed: Tensors = ask.placed(lambda: operands.to(ask.device, ask.dtype, problem))
    return placed
