"""The time that the remaining cases of a run will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import trial_key

#: Seconds of the fork server and of a child (some are spawned, and import torch).
_SERVER, _CHILD = 4.0, 1.5


class TimeLeft:
    """Seconds that cases take. ``measure`` is for the rounds of a throughput question.

    What was answered predicts the rest: a check takes what it took so far, and one that has not run yet
    is as much slower than the guess as those that were. On a GPU most of it is compilation.
    """

    def __init__(self, measure: float) -> None:
        self._measure = measure
        self._answered: Counter[str] = Counter()
        self._taken: dict[str, float] = {}

    def answered(self, case_id: str, seconds: float) -> None:
        """Take over what a case took, from the first word of it to its outcome."""
        check = _check(case_id)
        self._answered[check] += 1
        self._taken[check] = self._taken.get(check, 0.0) + seconds

    @property
    def spent(self) -> float:
        """Seconds that the answered cases took together."""
        return sum(self._taken.values())

    def of(self, case_ids: Iterable[str], workers: int = 1) -> float:
        """Seconds that these cases take where each answers, among ``workers`` of a device each."""
        seconds = 0.0
        children: set[str] = set()
        asked: Counter[str] = Counter()
        for case_id in case_ids:
            children.add(trial_key(case_id))
            asked[_check(case_id)] += 1
        slower = self._slower()
        for check, count in asked.items():
            answered = self._answered[check]
            # A soak lasts as long on a slow machine.
            guess = self._guess(check) * (1.0 if CHECKS[check].once else slower)
            each = self._taken[check] / answered if answered else guess
            seconds += each * count
        started = bool(self._answered)
        # What was answered has its share of the children's starts in it.
        seconds += 0.0 if started else _CHILD * len(children)
        return (0.0 if started else _SERVER) + seconds / max(1, min(workers, len(children)))

    def _guess(self, check: str) -> float:
        return CHECKS[check].seconds + (self._measure if check == "throughput" else 0.0)

    def _slower(self) -> float:
        """How many times slower than guessed the answered questions were; never less than once."""
        guessed = sum(self._guess(check) * count for check, count in self._answered.items())
        return max(1.0, self.spent / guessed) if guessed else 1.0


def _check(case_id: str) -> str:
    return case_id.split("/")[3]
