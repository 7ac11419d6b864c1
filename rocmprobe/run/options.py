"""Options of a run; written into the journal, so that ``--resume`` uses the same."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Optional

from rocmprobe.model.cases import Case
from rocmprobe.model.shapes import Shapes


@dataclass(frozen=True)
class RunOptions:
    """Options of ``rocmprobe run`` that decide what is tested. Where ``shapes`` are given,
    ``problems`` are theirs. ``estimate`` is a workload in words, or empty; ``note`` is for the readers of the
    report."""

    device: str = "auto"
    level: str = "quick"
    purpose: str = "training"
    settings: str = "default"
    problems: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    simulate: Optional[str] = None
    redact: bool = True
    driver: str = "auto"
    libraries: str = ""
    estimate: str = ""
    note: str = ""
    shapes: Optional[Shapes] = None

    def selects(self, case: Case) -> bool:
        """Whether ``--only`` and ``--skip`` (check names, or patterns over case ids) leave the case in.

        What a selected case depends on runs only if it is selected, too.
        """

        def matches(patterns: tuple[str, ...]) -> bool:
            return any(case.check == pattern or fnmatchcase(case.id, pattern) for pattern in patterns)

        if self.only and not matches(self.only):
            return False
        return not matches(self.skip)
