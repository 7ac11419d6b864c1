"""Number and duration of training steps, and the convolutions in a step.

A step lasts from the end of one call of an optimizer's ``step`` to the end of the next call. If there are
several optimizers, as in a GAN, only calls of the optimizer that is called first count. Steps with the same
convolutions form a kind, and the most frequent kind represents all steps.
"""

from __future__ import annotations

import statistics
import time
import weakref
from collections import Counter, deque
from typing import Any, Callable, Optional

import torch
from torch.optim import optimizer as torch_optimizer

from rocmprobe.bypass.operators import untraced

#: Number of latest steps that are stored per kind (enough for deciles), and maximum number of kinds. A
#: program with changing image sizes can have endlessly many kinds.
_KEPT, _KINDS = 101, 1000


def after_each_step(call: Callable[[Any], None]) -> None:
    """Call ``call(optimizer)`` after each step of any PyTorch optimizer."""
    call = untraced(call)
    register = getattr(torch_optimizer, "register_optimizer_step_post_hook", None)
    if register is not None:
        register(lambda optimizer, arguments, options: call(optimizer))
        return
    # torch 1.13 has no such hook. In this version, each step ends with a call of this profiler method.
    before = torch_optimizer.Optimizer._optimizer_step_code

    def stepped(self: Any) -> None:
        before(self)
        call(self)

    torch_optimizer.Optimizer._optimizer_step_code = stepped  # type: ignore[method-assign]


class _Kind:
    """Steps with the same convolutions.

    ``latest`` has (seconds of the step, seconds in convolutions) for the latest steps.
    """

    def __init__(self) -> None:
        self.made = 0
        self.latest: deque[tuple[float, Optional[float]]] = deque(maxlen=_KEPT)


class Steps:
    """Number and duration of this process's training steps. The class is not thread-safe."""

    def __init__(self) -> None:
        self._leader: Callable[[], Any] = lambda: None
        self._made = 0
        self._threads = 0
        self._kinds: dict[tuple[tuple[tuple[int, int], int], ...], _Kind] = {}
        self._begin()

    def _begin(self) -> None:
        self._began = time.perf_counter()
        self._computed: Counter[tuple[int, int]] = Counter()
        self._convolving: Optional[float] = 0.0

    def convolved(self, problem: int, places: tuple[int, ...], seconds: Optional[float]) -> None:
        """Count computed directions of a problem, and add their time.

        ``places`` are the positions of these directions in DIRECTIONS. ``seconds`` is the total time of these
        directions, or None if unknown.
        """
        for place in places:
            self._computed[problem, place] += 1
        known = self._convolving is not None and seconds is not None
        self._convolving = self._convolving + seconds if known else None  # type: ignore[operator]

    def stepped(self, optimizer: Any) -> None:
        leader = self._leader()
        if leader is None:
            self._leader = weakref.ref(optimizer)
        elif leader is not optimizer:
            return
        self._made += 1
        self._threads = torch.get_num_threads()
        key = tuple(sorted(self._computed.items()))
        # The start of the first step is unknown, so the first step is left out.
        if leader is not None and (key in self._kinds or len(self._kinds) < _KINDS):
            kind = self._kinds.setdefault(key, _Kind())
            kind.made += 1
            kind.latest.append((time.perf_counter() - self._began, self._convolving))
        self._begin()

    def summary(self) -> Optional[dict[str, Any]]:
        """Return a summary of the most frequent kind of step, or None if no step is complete.

        - ``made``: number of all steps.
        - ``alike``: number of steps of the most frequent kind.
        - ``seconds``, ``seconds_p10``, ``seconds_p90``: median, 10th and 90th percentile of a step's
          duration.
        - ``rest_seconds``: median of the time outside of convolutions, or None if unknown.
        - ``computed``: list of [problem, index of the direction, number of calls in a step].
        """
        if not self._kinds:
            return None
        key, kind = max(self._kinds.items(), key=lambda item: item[1].made)
        seconds = sorted(step for step, _ in kind.latest)
        rests = [step - convolving for step, convolving in kind.latest if convolving is not None]
        return {
            "made": self._made, "alike": kind.made, "threads": self._threads,
            "seconds": statistics.median(seconds),
            "seconds_p10": seconds[len(seconds) // 10], "seconds_p90": seconds[-1 - len(seconds) // 10],
            "rest_seconds": statistics.median(rests) if len(rests) == len(seconds) else None,
            "computed": [[problem, place, count] for (problem, place), count in key],
        }  # fmt: skip
