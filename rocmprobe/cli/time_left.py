"""Estimate of the time that the remaining cases of a run need."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import trial_key
from rocmprobe.engine.budgets import Budgets
from rocmprobe.engine.trial import TRIES

#: Seconds to start the fork server and to start a child, until the first case shows how long a start takes.
_SERVER, _CHILD = 4.0, 1.5


class TimeLeft:
    """Estimator that learns from the finished cases of a run."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._children: set[str] = set()
        self._hangs: Counter[str] = Counter()
        self._finished: Counter[str] = Counter()

    def add_finished(self, case_id: str, state: str, seconds: float) -> None:
        """Learn from a finished case."""
        setting, subject = _split(case_id)
        child = trial_key(case_id)
        kinds = ("hang",) if state == "hang" else _kinds(case_id, child not in self._children)
        for kind in kinds:
            self._seconds[kind].append(seconds)
        for name in (setting, subject):
            self._hangs[name] += state == "hang"
            self._finished[name] += 1
        (self._children.discard if state in ("hang", "crash") else self._children.add)(child)

    def of(
        self, case_ids: Iterable[str], hanging: Mapping[str, float], workers: int = 1
    ) -> tuple[float, bool]:
        """Return the estimated seconds for ``case_ids``, and True if they include time for hangs.

        ``hanging`` has the seconds for which cases have not answered. A setting under which a case hangs is
        expected to hang until the limit of hangs, after which the run skips its other cases. A case that
        hung under other settings is expected to hang again.
        """
        seconds, children = 0.0, set(self._children)
        hangs: defaultdict[str, float] = defaultdict(float)
        hang_again = {_split(case_id)[0] for case_id in hanging}
        for case_id in case_ids:
            setting, subject = _split(case_id)
            if self._hangs[setting] < self._budgets.hangs:
                again = self._hangs[setting] or setting in hang_again
                hangs[setting] += 1 if again else self._hangs[subject] / max(1, self._finished[subject])
                seconds += self._usual(case_id, trial_key(case_id) not in children)
                children.add(trial_key(case_id))
        expected = sum(min(hangs[name], self._budgets.hangs - self._hangs[name]) for name in hangs)
        per_hang = median(self._seconds["hang"] or [TRIES["hang"] * self._budgets.first_call])
        seconds += expected * per_hang - sum(min(waited, per_hang) for waited in hanging.values())
        server = 0.0 if self._seconds or not children else _SERVER
        return server + seconds / max(1, min(workers, len(children))), expected > 0

    def _usual(self, case_id: str, starts: bool) -> float:
        for kind in _kinds(case_id, starts):
            if self._seconds[kind]:
                return median(self._seconds[kind])
        check = case_id.split("/")[2]
        measured = {"throughput": self._budgets.measure, "soak": self._budgets.soak}.get(check, 0.0)
        return CHECKS[check].seconds + measured + _CHILD * starts


def _split(case_id: str) -> tuple[str, str]:
    """Return the device with the setting, which has a limit of hangs, and the device with the check."""
    device, setting, subject = case_id.split("/", 2)
    return f"{device}/{setting}", f"{device}//{subject}"


def _kinds(case_id: str, starts: bool) -> tuple[str, ...]:
    """Return names under which times are learned: the check under the setting, then the check.

    ``starts`` is True if the time includes the start of a child.
    """
    device, setting, check, *_ = case_id.split("/")
    return tuple(f"{kind} {starts}" for kind in (f"{device}/{setting}/{check}", check))
