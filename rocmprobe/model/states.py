"""The states of an outcome and their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class State:
    """A state of an outcome.

    - ``works``, ``fails``: True if the state proves that the tested case works or fails
    - ``blocks``: True if cases that depend on this case do not run
    - ``symbol``, ``tone``: symbol and colour in reports
    - ``pytest``: outcome in pytest and JUnit
    """

    name: str
    symbol: str
    tone: str
    meaning: str
    pytest: str
    works: bool = False
    fails: bool = False
    blocks: bool = False

    @property
    def learned(self) -> bool:
        """True if the state proves that the tested case works or fails."""
        return self.works or self.fails

    @property
    def counted(self) -> bool:
        """True if the case works or blocks dependent cases."""
        return self.works or self.blocks


def _fails(name: str, symbol: str, meaning: str) -> State:
    return State(name, symbol, "bad", meaning, "failed", fails=True, blocks=True)


#: Failure of an ``aborted`` outcome of a run that was ended. Unlike ``machine-died``, this failure proves
#: nothing.
RUN_DIED = "run-died"
_ABORTED_WITH_RUN = State("aborted", "†", "unlearned", "was running when the run was ended", "skipped")
#: States, worst first. A table cell for several outcomes shows the worst state.
_ROWS = (
    _fails("crash", "↯", "the process died of a signal"),
    _fails("hang", "∞", "exceeded its time limit and was ended"),
    _fails("wrong", "≠", "it ran, and the numbers are wrong"),
    _fails("error", "✕", "it raised an exception"),
    _fails("aborted", "†", "was running when the run or the machine died"),
    _fails("flaky", "~", "different results when repeated"),
    State("xfail", "⊗", "bad", "fails, as expected", "xfailed",
          fails=True, blocks=True),
    State("probe-error", "?", "fault", "rocmprobe itself failed here", "error", blocks=True),
    State("slow", "◔", "slow", "correct, but from a fallback or over its time limit", "passed",
          works=True),
    State("xpass", "⊕", "slow", "expected to fail, but works", "xpassed", works=True),
    _ABORTED_WITH_RUN,
    State("blocked", "⊘", "unlearned", "not run, because an earlier test failed", "skipped",
          blocks=True),
    State("pass", "✓", "good", "correct, within its limits", "passed", works=True),
    State("skipped", "◌", "unlearned", "left out on request, or not needed here", "skipped"),
    State("n/a", "∅", "unlearned", "does not apply to this device", "skipped"),
)  # fmt: skip
_RANKS = {row: rank for rank, row in enumerate(_ROWS)}
STATES = {row.name: row for row in _ROWS if row is not _ABORTED_WITH_RUN}


def state_of(name: str, failure: Optional[str] = None) -> State:
    """Return the ``State`` called ``name``. For "aborted", the state depends on ``failure``."""
    row = STATES[name]
    return _ABORTED_WITH_RUN if name == "aborted" and failure == RUN_DIED else row


def rank(name: str, failure: Optional[str] = None) -> int:
    """Return the rank of a state, where 0 is the worst."""
    return _RANKS[state_of(name, failure)]


def works(name: Optional[str]) -> bool:
    """Return True if the state ``name`` proves that the tested case works."""
    return name in STATES and STATES[name].works


def fails(name: Optional[str]) -> bool:
    """Return True if the state ``name`` proves a failure. "aborted" counts, whatever its failure."""
    return name in STATES and STATES[name].fails
