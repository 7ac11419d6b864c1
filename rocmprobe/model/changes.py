"""Objects of ``results.json`` for expected failures and for differences between two runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Optional

from rocmprobe.model.fields import Count
from rocmprobe.model.states import STATES

#: Source of an expectation: the table of known failures, or an earlier run.
TABLE, BASELINE = "expectations.toml", "baseline"

#: Kinds of change, worst first.
KINDS = ("regression", "lost", "mended", "changed", "new", "missing")
REGRESSION, LOST, MENDED, CHANGED, NEW, MISSING = KINDS

if TYPE_CHECKING:
    ObservedState = str
else:
    ObservedState = Literal[
        tuple(name for name, row in STATES.items() if row.learned and name not in ("xfail", "xpass"))
    ]


@dataclass(frozen=True)
class Expected:
    """The reason why an outcome is ``xfail`` or ``xpass``.

    - ``state``: observed state, e.g. "wrong"
    - ``source``: "expectations.toml" or "baseline"
    - ``cause``: id in ``data/causes.toml``, or "" for a baseline
    """

    state: ObservedState
    source: str
    reason: str
    link: str = ""
    cause: str = ""


@dataclass(frozen=True)
class Change:
    """A case whose state differs between two runs.

    ``kind`` is one of these:

    - "regression": passed, now fails
    - "lost": passed or failed, now has no result
    - "mended": failed every time, now passes
    - "changed": any other change of state
    - "new": only the later run has the case
    - "missing": only the earlier run has the case
    """

    id: str
    before: Optional[str]
    after: Optional[str]
    kind: str


@dataclass(frozen=True)
class Changes:
    """Differences between a run and its baseline. ``compared`` is the number of cases in both runs."""

    baseline: str
    started: str
    rocmprobe: str
    compared: Count
    changed: tuple[Change, ...] = ()

    def of(self, kind: str) -> tuple[Change, ...]:
        return tuple(change for change in self.changed if change.kind == kind)
