"""How a run differs from its baseline, for the page and the terminal."""

from __future__ import annotations

from typing import Optional

from rocmprobe.model.changes import CHANGED, LOST, MENDED, MISSING, NEW, REGRESSION, Changes
from rocmprobe.report import text
from rocmprobe.report.page.measures import Table

#: What each kind of change is called.
WORDS = {
    REGRESSION: "regressed", LOST: "no longer answered", MENDED: "mended", CHANGED: "came out otherwise",
    NEW: "new", MISSING: "missing",
}  # fmt: skip
#: The page names as many changes of each kind; results.json has them all.
_SHOWN = 200


def sentence(changes: Changes) -> str:
    """What the run is held against, and how many changes of each kind there are."""
    counts = [f"{len(changes.of(kind))} {words}" for kind, words in WORDS.items() if changes.of(kind)]
    asked = text.count(changes.compared, "question")
    return (
        f"{asked} of the run of {text.date(changes.started)} asked again: {', '.join(counts) or 'no change'}"
    )


def table(changes: Optional[Changes]) -> Optional[Table]:
    """Each change with the states before and after, the gravest first; None where there is none."""
    rows = tuple(
        (change.id, words, change.before or "", change.after or "")
        for kind, words in WORDS.items()
        for change in (changes.of(kind)[:_SHOWN] if changes else ())
    )
    return Table(("question", "change", "before", "now"), rows) if rows else None
