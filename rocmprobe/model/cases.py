"""Cases: one question each, with an id that stays the same from run to run.

A case becomes one pytest item and one outcome. ``needs`` holds the ids of the cases it depends on;
where one of them failed, the case is blocked. ``if_failed`` holds the ids of those that give a reason to ask:
where none of them failed, the case is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.model.checks import CHECKS
from rocmprobe.model.results import WHERE_SET


@dataclass(frozen=True)
class Case:
    """One question to one device under one driver and setting; ``environment`` names the Python environment
    that asks, where a run has several."""

    device: str
    driver: str
    setting: str
    check: str
    dtype: str
    problem: Optional[str] = None
    direction: Optional[str] = None
    needs: tuple[str, ...] = ()
    if_failed: tuple[str, ...] = ()
    environment: str = field(default="", metadata=WHERE_SET)

    @property
    def target(self) -> str:
        """The device as this environment sees it: "cuda:0", or "NAME:cuda:0"."""
        return target_key(self.environment, self.device)

    @property
    def id(self) -> str:
        what = (self.check, self.problem or self.dtype, self.direction)
        return "/".join(part for part in (self.target, self.driver, self.setting, *what) if part)

    @property
    def rung(self) -> str:
        return CHECKS[self.check].rung

    @property
    def exclusive(self) -> bool:
        return CHECKS[self.check].exclusive

    @property
    def trial_key(self) -> str:
        """What the cases of one child process share. Measurements have one of their own, in which the
        vendor library does not trace what it does: that takes time. A start-up has its own databases, too;
        a memory sweep a process whose memory nothing else has filled."""
        return trial_key(self.id)


def target_key(environment: str, device: str) -> str:
    """``Case.target`` of a device in an environment, "" for the only one."""
    return f"{environment}:{device}" if environment else device


def trial_key(case_id: str) -> str:
    """The same, from the id of a case."""
    *under, check, subject = case_id.split("/")[:5]
    own = (check, subject) if CHECKS[check].own_process else ("measure",)
    return "/".join((*under, *(own if CHECKS[check].exclusive else ())))
