"""The two sums behind every convolution operator, each by the algorithm that its plan names."""

from __future__ import annotations

from typing import Callable

import torch

from rocmprobe.bypass.algorithms import ALGORITHMS, Operands, Plan
from rocmprobe.bypass.algorithms.pointwise import is_dense, is_dense_weight
from rocmprobe.bypass.choice.choices import Choice
from rocmprobe.bypass.choice.plan import eligible, name
from rocmprobe.bypass.counts import count_call
from rocmprobe.bypass.geometry import BWD_WEIGHTS, FWD, Geometry

DTYPES = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}


class Problem:
    """A plain convolution whose operands always lie alike.

    Args:
        plain: the sizes.
        cap: bytes of workspace for each of its directions.
        algorithm: "auto", "fast", or the name of the one to take wherever it applies.
    """

    def __init__(self, plain: Geometry, cap: int, algorithm: str) -> None:
        self.plain = plain
        self._cap = cap
        self._algorithm = algorithm
        self._flipped: Geometry | None = None
        self._choices: dict[str, Choice] = {}

    def through(
        self,
        direction: str,
        source: torch.Tensor,
        weight: torch.Tensor,
        *,
        bias: torch.Tensor | None,
        result: torch.Tensor,
    ) -> None:
        """fwd or bwd-data: from one side and the weight, plus a bias for each channel, to the other side."""

        def run(plan: Plan) -> None:
            algorithm = ALGORITHMS[plan.algorithm]
            if plan.flipped:
                if self._flipped is None:
                    self._flipped = self.plain.flipped()
                algorithm.forward(plan, self._flipped, source, _flipped(weight, self.plain), bias, result)
            elif direction == FWD:
                algorithm.forward(plan, self.plain, source, weight, bias, result)
            else:
                algorithm.backward_data(plan, self.plain, source, weight, bias, result)

        choice = self._choices.get(direction)
        if choice is None:
            dense = is_dense(self.plain, source) and is_dense_weight(self.plain, weight)
            choice = self._choice(direction, result, dense)
        self._compute(choice, run)

    def weights(self, image: torch.Tensor, feature: torch.Tensor, result: torch.Tensor) -> None:
        """bwd-weights: from both sides to the gradient of the weight."""

        def run(plan: Plan) -> None:
            ALGORITHMS[plan.algorithm].backward_weights(plan, self.plain, image, feature, result)

        choice = self._choices.get(BWD_WEIGHTS)
        if choice is None:
            choice = self._choice(BWD_WEIGHTS, result, is_dense(self.plain, image, feature))
        self._compute(choice, run)

    def _compute(self, choice: Choice, run: Callable[[Plan], None]) -> None:
        plan = choice.plan(run)
        count_call(plan.algorithm)
        run(plan)

    def _choice(self, direction: str, result: torch.Tensor, dense: bool) -> Choice:
        operands = Operands(
            dtype=DTYPES[result.dtype],
            device_type=result.device.type,
            channels_last=not result.is_contiguous(),
            dense=dense,
        )
        deterministic = torch.are_deterministic_algorithms_enabled()
        plans = eligible(direction, self.plain, operands, self._cap, self._algorithm, deterministic)
        line = name(direction, self.plain, operands, self._cap, self._algorithm)
        choice = Choice(line, plans, result.device)
        return self._choices.setdefault(direction, choice)


def _flipped(weight: torch.Tensor, plain: Geometry) -> torch.Tensor:
    """The weight of ``plain.flipped()``, ``(channels, filters / groups, *kernel)``."""
    grouped = weight.reshape(plain.groups, plain.filters // plain.groups, *weight.shape[1:])
    swapped = grouped.flip(tuple(range(3, grouped.dim()))).transpose(1, 2)
    return swapped.reshape(plain.channels, plain.filters // plain.groups, *plain.kernel)
