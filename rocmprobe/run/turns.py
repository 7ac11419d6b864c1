"""Turns: when a question has its device, shared with those of other processes or alone while it measures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Optional

from rocmprobe.model.cases import Case
from rocmprobe.model.results import Setting
from rocmprobe.run.journal import Journal
from rocmprobe.run.locks import DeviceLock, holders
from rocmprobe.run.targets import Target

#: The lock of all simulated machines. Their times mean nothing, so nobody measuring for real waits for them.
SIMULATED = "simulated machines"


def lock_name(setting: Setting, target: Target, simulated: bool) -> str:
    """The lock of the device that computes under ``setting``: torch's numbers of GPUs change with variables
    such as HIP_VISIBLE_DEVICES, their PCI addresses do not."""
    if simulated:
        return SIMULATED
    if setting.device == "cpu" or target.device == "cpu":
        return "cpu"
    address = target.gpu.address.value if target.gpu else None
    return f"GPU {address}" if address else target.device


class Turns:
    """The device of one question after another.

    ``name_of`` is the lock of a case, ``conditions_of`` reads clocks and temperatures of what it measures.
    """

    def __init__(
        self,
        journal: Journal,
        name_of: Callable[[Case], str] = lambda case: case.device,
        conditions_of: Callable[[Case], Mapping[str, float]] = lambda case: {},
    ) -> None:
        self._journal = journal
        self._run = journal.path.parent.resolve()
        self._name_of = name_of
        self._conditions_of = conditions_of
        self._conditions: dict[str, dict[str, float]] = {}
        self._case: Optional[Case] = None
        self._lock: Optional[DeviceLock] = None
        self._alone: Optional[Mapping[str, float]] = None

    @contextmanager
    def of(self, case: Case) -> Iterator[None]:
        """The turn of ``case``: it shares its device until it measures, says nothing for a while, or ends."""
        self._case = case
        self._lock = DeviceLock(self._name_of(case), self._run, self._queued)
        try:
            self._take(alone=False)
            yield
        finally:
            self.let_go()
            self._lock = self._case = None

    def alone(self) -> None:
        """Let the case have its device for itself; waits until the others are done."""
        waited = self._take(alone=True)
        self._alone = {"at": time.time(), "waited": round(waited, 3)}
        self._read_conditions("before")

    def let_share_go(self) -> None:
        """Let others measure, unless the case does."""
        if self._alone is None:
            self.let_go()

    def let_go(self) -> None:
        """Let others have the device."""
        measured, self._alone = self._alone, None
        if self._case and measured:
            self._read_conditions("after")
            measured = {**measured, "until": time.time()}
        if self._lock:
            self._lock.let_go()
        if self._case and measured:
            self._journal.append("alone", case=self._case.id, device=self._name_of(self._case), **measured)

    def conditions(self) -> dict[str, dict[str, float]]:
        """The conditions ``before`` the first measurement since the last call and ``after`` the last one."""
        conditions, self._conditions = self._conditions, {}
        return conditions

    def _take(self, alone: bool) -> float:
        assert self._lock is not None, "within a turn"
        self._reported = False
        waited = self._lock.take(alone)
        if self._reported:
            self._write_queued(waited=round(waited, 3))
        return waited

    def _queued(self) -> None:
        self._reported = True
        assert self._case is not None, "within a turn"
        name = self._name_of(self._case)
        found = holders(name).get(name, [])
        self._write_queued(by=[{"run": each.run, "pid": each.pid, "since": each.since} for each in found])

    def _write_queued(self, by: Sequence[Mapping[str, Any]] = (), waited: Optional[float] = None) -> None:
        assert self._case is not None, "within a turn"
        name = self._name_of(self._case)
        self._journal.append("queued", case=self._case.id, device=name, by=by, waited=waited)

    def _read_conditions(self, when: str) -> None:
        assert self._case is not None, "within a turn"
        read = dict(self._conditions_of(self._case))
        if read and (when == "after" or when not in self._conditions):
            self._conditions[when] = read
