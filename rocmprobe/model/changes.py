"""What was expected of an outcome, and how a run differs from an earlier one: objects of ``results.json``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Optional

from rocmprobe.model.schema import Count, Rule
from rocmprobe.model.states import STATES

#: Where an expectation comes from: the table of known failures, or a former run.
TABLE, BASELINE = "expectations.toml", "baseline"

#: Kinds of change, the gravest first.
REGRESSION, LOST, MENDED, CHANGED, NEW, MISSING = (
    "regression", "lost", "mended", "changed", "new", "missing",
)  # fmt: skip
KINDS = (REGRESSION, LOST, MENDED, CHANGED, NEW, MISSING)

#: What a case can come to that was expected to fail.
_OBSERVED = tuple(name for name, row in STATES.items() if row.learned and name not in ("xfail", "xpass"))


@dataclass(frozen=True)
class Expected:
    """Why an outcome is ``xfail`` or ``xpass``: ``state`` is what it came to, whatever was expected;
    ``source`` "expectations.toml" or "baseline". ``cause`` is a word of ``data/causes.toml``, empty where
    only a baseline has the failure."""

    state: Annotated[str, Rule("enum", _OBSERVED)]
    source: str
    reason: str
    link: str = ""
    cause: str = ""


@dataclass(frozen=True)
class Change:
    """One question whose state in two runs differs; None where a run does not hold it.

    ``kind``: "regression" (it worked, and fails), "lost" (it was answered, and is not), "mended" (it failed,
    and works), "changed" (any other change of state), "new" and "missing" (in one of the runs alone).
    """

    id: str
    before: Optional[str]
    after: Optional[str]
    kind: str


@dataclass(frozen=True)
class Changes:
    """How a run differs from its baseline: the file as it was named, when that run started, its version of
    rocmprobe, how many of its cases ran again, and what came out otherwise."""

    baseline: str
    started: str
    rocmprobe: str
    compared: Count
    changed: tuple[Change, ...] = ()

    def of(self, kind: str) -> tuple[Change, ...]:
        return tuple(change for change in self.changed if change.kind == kind)
