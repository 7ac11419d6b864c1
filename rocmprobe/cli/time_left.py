"""Estimate of the time that the remaining cases of a run need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import trial_key

#: Seconds to start the fork server, and average seconds to start a child. Spawned children take longer than
#: forked children, because they import torch.
_SERVER, _CHILD = 4.0, 1.5


class TimeLeft:
    """Estimator of the remaining time of a run, based on the average time of finished cases.

    ``measure`` and ``soak`` are the durations of a throughput measurement and of the check soak, in seconds.
    """

    def __init__(self, measure: float, soak: float) -> None:
        self._durations = {"throughput": measure, "soak": soak}
        self._answered: Counter[str] = Counter()
        self._seconds_spent: dict[str, float] = {}

    def add_finished(self, case_id: str, seconds: float) -> None:
        """Add the time of a finished case."""
        check = _check(case_id)
        self._answered[check] += 1
        self._seconds_spent[check] = self._seconds_spent.get(check, 0.0) + seconds

    @property
    def spent(self) -> float:
        """Total seconds of the finished cases."""
        return sum(self._seconds_spent.values())

    def of(self, case_ids: Iterable[str], workers: int = 1) -> float:
        """Return the estimated seconds to run all cases in ``case_ids``."""
        seconds = 0.0
        children: set[str] = set()
        asked: Counter[str] = Counter()
        for case_id in case_ids:
            children.add(trial_key(case_id))
            asked[_check(case_id)] += 1
        slower = self._slower()
        for check, count in asked.items():
            answered = self._answered[check]
            # The factor does not apply to the check soak, which takes the same time on a slow machine.
            guess = self._guess(check) * (1.0 if CHECKS[check].once else slower)
            each = self._seconds_spent[check] / answered if answered else guess
            seconds += each * count
        started = bool(self._answered)
        # Do not add start times, because the times of finished cases include the start of their children.
        seconds += 0.0 if started else _CHILD * len(children)
        return (0.0 if started else _SERVER) + seconds / max(1, min(workers, len(children)))

    def _guess(self, check: str) -> float:
        return CHECKS[check].seconds + self._durations.get(check, 0.0)

    def _slower(self) -> float:
        guessed = sum(self._guess(check) * count for check, count in self._answered.items())
        return max(1.0, self.spent / guessed) if guessed else 1.0


def _check(case_id: str) -> str:
    return case_id.split("/")[2]
