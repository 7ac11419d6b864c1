"""Bisection of the image size from which a convolution fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import BadInput, Outcome

#: Maximum number of trials of one bisection.
MOST_TRIALS = 8


def size_of(problem: Problem) -> int:
    """Return the longest side of the image in pixels."""
    return max(problem.input_size)


def resized(problem: Problem, size: int) -> Problem:
    """Return ``problem`` with every side of the image at most ``size`` pixels long."""
    return replace(problem, input_size=tuple(min(side, size) for side in problem.input_size))


def same_but_size(problem: Problem, other: Problem) -> bool:
    """Return True if the problems differ in the size of their images only."""
    return replace(problem, input_size=other.input_size) == other


def next_size(failing: Problem, passing: Optional[Problem], outcomes: Iterable[Outcome]) -> Optional[Problem]:
    """Return the next problem of the bisection between ``passing`` and ``failing``, or None at the end.

    ``outcomes`` are those of one check, setting and direction. Problems that differ from ``failing`` in more
    than the size are ignored. Without ``passing``, the search begins at the smallest image. After
    ``MOST_TRIALS`` outcomes between the two problems, the search ends.
    """
    smallest = next(size for size in range(1, size_of(failing) + 1) if _is_valid(resized(failing, size)))
    bottom = size_of(passing) if passing and same_but_size(failing, passing) else smallest - 1
    top = size_of(failing)
    states = {size: outcome for size, outcome in _sizes(failing, outcomes) if bottom < size < top}
    high = min((size for size, outcome in states.items() if outcome.fails), default=top)
    works = (size for size, outcome in states.items() if outcome.works and size < high)
    low = max(works, default=bottom)
    middle = (low + high) // 2
    if len(states) >= MOST_TRIALS or middle <= low or middle in states:
        return None
    return resized(failing, middle)


def _sizes(failing: Problem, outcomes: Iterable[Outcome]) -> Iterable[tuple[int, Outcome]]:
    for outcome in outcomes:
        problem = parse_problem(outcome.problem) if outcome.problem else None
        if problem and same_but_size(failing, problem):
            yield size_of(problem), outcome


def _is_valid(problem: Problem) -> bool:
    try:
        parse_problem(problem.text)
    except BadInput:
        return False
    return True
