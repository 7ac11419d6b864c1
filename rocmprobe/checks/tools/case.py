"""A case: a check with a setting, problem and dtype. Its id stays the same from run to run.

A case becomes one pytest item and one outcome. ``needs`` holds the ids of the cases that the case depends on.
If one of these cases failed, the case is blocked. ``if_failed`` holds the ids of cases whose failure gives a
reason to run. If no case of ``if_failed`` failed, the case is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.checks import CHECKS
from rocmprobe.checks.opinfo import NAME, group


@dataclass(frozen=True)
class Case:
    """A check on one device under one driver and setting. ``operator`` is the operator of a sweep."""

    device: str
    driver: str
    setting: str
    check: str
    dtype: str
    problem: Optional[str] = None
    direction: Optional[str] = None
    needs: tuple[str, ...] = ()
    if_failed: tuple[str, ...] = ()
    operator: Optional[str] = None

    @property
    def id(self) -> str:
        what = (self.check, self.problem or self.dtype, self.direction or self.operator)
        return "/".join(part for part in (self.device, self.driver, self.setting, *what) if part)

    @property
    def rung(self) -> str:
        return CHECKS[self.check].rung

    @property
    def exclusive(self) -> bool:
        return CHECKS[self.check].exclusive

    @property
    def trial_key(self) -> str:
        """Key that the cases of one child process share.

        Measurements have their own process, in which the vendor library does not trace, because tracing takes
        time. A start-up has its own databases, too. A memory sweep has its own process, whose memory no other
        case has filled. A group of operators shares a process.
        """
        return trial_key(self.id)


def trial_key(case_id: str) -> str:
    """Return the ``trial_key`` of the case with this id."""
    *under, check, subject = (parts := case_id.split("/"))[:5]
    if check == NAME:
        return "/".join((*under, check, group(parts[-1])))
    own = (check, subject) if CHECKS[check].own_process else ("measure",)
    return "/".join((*under, *(own if CHECKS[check].exclusive else ())))
