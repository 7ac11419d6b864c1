"""A check as code for a script without rocmprobe: operands, a function of them, and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

MAX_WIDTH = 110
UNIFORM = "def draw(*shape): return (torch.rand(shape, dtype=torch.float64) * 2 - 1).to(dtype).double()"
ABOVE_HALF = (
    "def draw(*shape): return (torch.rand(shape, dtype=torch.float64) + 0.5).to(dtype).double()",
    "def wide(t): return t.float() if t.element_size() == 2 else t",
)


@dataclass(frozen=True)
class ReproScript:
    """Operands drawn in the order of the run, and a function of them: the lines ``before``, and a ``result``
    that is a call, its arguments and the end.

    An error is given as a share of the reference's largest value, or of ``least`` where that is smaller; one
    of a question without a ``max_limit`` is held to the limit of layers for its dtype. With a ``bound``
    (``numerics.error_bound``) each element is held to that instead.
    """

    names: tuple[str, ...]
    drawn: tuple[str, ...]
    draw: tuple[str, ...]
    result: tuple[str, ...]
    max_limit: Optional[float] = None
    rms_limit: Optional[float] = None
    bound: Optional[tuple[float, float, float]] = None
    least: float = 1e-30
    channels_last: bool = False
    before: tuple[str, ...] = ()


def packed(head: str, parts: Sequence[str], tail: str, indent: int = 0) -> list[str]:
    """``head``, the parts with commas between them, and ``tail``, in as few lines as they fit into when they
    are indented by ``indent`` columns."""
    lines = [head]
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        added = part + (tail if last else ",")
        gap = "" if lines[-1].endswith(("(", "[", "{")) else " "
        if len(lines[-1]) + len(gap) + len(added) <= MAX_WIDTH - indent:
            lines[-1] += gap + added
        else:
            lines.append(f"    {added}")
    return lines


def control(*calls: str) -> ReproScript:
    """As in ``checks.controls``: outputs, and the gradient for the output of the other image."""
    return ReproScript(
        ("x",), ("draw(2, 6, 9, 10)",), (UNIFORM,), ("[", "*(y.detach() for y in outputs), *gradients", "]"),
        least=1.0,
        before=(
            "F, x = torch.nn.functional, x.detach().requires_grad_()",
            *packed("outputs = [", calls, "]", indent=4),
            "gradients = [torch.autograd.grad(y, x, y.detach().flip(0))[0] for y in outputs]",
        ),
    )  # fmt: skip


def recurrent(kind: str, gates: int) -> ReproScript:
    """As in ``checks.primitives``; each gate has 10 units, with weights for 8 inputs, then for the 10
    outputs below, for its own 10, and two biases."""
    weights = gates * 10 * (8 + 10 + 2 + 10 + 10 + 2)
    return ReproScript(
        ("x", "w", "dy"), ("draw(6, 3, 8)", f"draw({weights})", "draw(6, 3, 10)"), (UNIFORM,),
        ("", "results", ""), least=1.0,
        before=(
            "x, results = x.detach().requires_grad_(), []",
            f"for net in (torch.nn.{kind}(8, 10, layers).to(x.device, x.dtype) for layers in (1, 2)):",
            "    torch.nn.utils.vector_to_parameters(w / 4, net.parameters())",
            "    results += [(y := net(x)[0]).detach(), *torch.autograd.grad(y, [x, *net.parameters()], dy)]",
        ),
    )  # fmt: skip
