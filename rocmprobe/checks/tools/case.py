"""Case: a check with a setting, problem and dtype. Each case gives one outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.checks import CHECKS, DIRECT


@dataclass(frozen=True)
class Case:
    """A check on one device with one setting.

    - ``needs``: ids of the cases that must pass before this case runs
    - ``if_failed``: ids of cases. If all of them pass, this case is skipped.
    - ``repeats``: the check runs so many times in one process, until it fails
    """

    device: str
    setting: str
    check: str
    dtype: str
    problem: Optional[str] = None
    direction: Optional[str] = None
    needs: tuple[str, ...] = ()
    if_failed: tuple[str, ...] = ()
    repeats: int = 1

    @property
    def id(self) -> str:
        times = f"x{self.repeats}" if self.repeats > 1 else ""
        what = (self.check, self.problem or self.dtype, self.direction, times)
        return "/".join(part for part in (self.device, self.setting, *what) if part)

    @property
    def rung(self) -> str:
        return CHECKS[self.check].rung

    @property
    def direct(self) -> bool:
        """True if the case runs in a process without torch."""
        return self.check in DIRECT

    @property
    def exclusive(self) -> bool:
        return CHECKS[self.check].exclusive

    @property
    def trial_key(self) -> str:
        """Key of the child process that runs the case. Cases with the same key share a process."""
        return trial_key(self.id)


def trial_key(case_id: str) -> str:
    """Return the ``Case.trial_key`` of the case with this id."""
    *under, check, subject = case_id.split("/")[:4]
    if check in DIRECT:
        return "/".join((*under, CHECKS[check].rung))
    # Measurements have their own process, because the vendor library must not write its log during
    # measurements.
    own = (check, subject) if CHECKS[check].own_process else ("measure",)
    return "/".join((*under, *(own if CHECKS[check].exclusive else ())))
