"""The convolutions of a training step, and how long it takes.

A step goes from the end of one call of an optimizer's ``step`` to the end of the next, so gradients that were
accumulated, or a closure that was called several times, are part of one step. Where there are several
optimizers, as in a GAN, it is the one that steps first whose calls count; after its end, the next that steps.
The beginning of the first step is unknown, so it is left out.

Steps are grouped by the convolutions in them. The most frequent kind represents all: a last batch that is
smaller, a step with an evaluation behind it, or two that a GradScaler made one of by skipping a call, are of
other kinds.
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

#: Number of latest steps kept of a kind, enough for deciles, and number of kinds: those of a program
#: whose images change their size without end are not learned.
_KEPT, _KINDS = 101, 1000


def after_each_step(call: Callable[[Any], None]) -> None:
    """Have ``call(optimizer)`` follow each call of ``step`` of any optimizer that is one of PyTorch's."""
    call = untraced(call)
    register = getattr(torch_optimizer, "register_optimizer_step_post_hook", None)
    if register is not None:
        register(lambda optimizer, arguments, options: call(optimizer))
        return
    # torch 1.13 has no such hook, but a method for its profiler that each step calls when it is done.
    before = torch_optimizer.Optimizer._optimizer_step_code

    def stepped(self: Any) -> None:
        before(self)
        call(self)

    torch_optimizer.Optimizer._optimizer_step_code = stepped  # type: ignore[method-assign]


class _Kind:
    """Steps that computed the same convolutions, with seconds of each and of its convolutions."""

    def __init__(self) -> None:
        self.made = 0
        self.latest: deque[tuple[float, Optional[float]]] = deque(maxlen=_KEPT)


class Steps:
    """The steps of this process. Calls must not overlap: the caller holds a lock."""

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
        """Directions of a problem, by their places, were computed; in None seconds where nobody knows."""
        for place in places:
            self._computed[problem, place] += 1
        known = self._convolving is not None and seconds is not None
        self._convolving = self._convolving + seconds if known else None  # type: ignore[operator]

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has made a step."""
        leader = self._leader()
        if leader is None:
            self._leader = weakref.ref(optimizer)
        elif leader is not optimizer:
            return
        self._made += 1
        self._threads = torch.get_num_threads()
        key = tuple(sorted(self._computed.items()))
        if leader is not None and (key in self._kinds or len(self._kinds) < _KINDS):
            kind = self._kinds.setdefault(key, _Kind())
            kind.made += 1
            kind.latest.append((time.perf_counter() - self._began, self._convolving))
        self._begin()

    def summary(self) -> Optional[dict[str, Any]]:
        """How many steps were made, and of the most frequent kind: how many are ``alike``, seconds (median
        and deciles) of a step and of what is no convolution in it, and ``computed``: problem, place, count.
        None where no step had a beginning."""
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
