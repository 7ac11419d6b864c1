"""Cases that changed between two runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional

from rocmprobe.checks import DIRECT
from rocmprobe.judge.assessment import case_key, concerns_convolution, failed
from rocmprobe.model.baseline import Baseline, states
from rocmprobe.model.changes import (
    CHANGED,
    KINDS,
    LOST,
    MENDED,
    MISSING,
    NEW,
    REGRESSION,
    Change,
    Changes,
)
from rocmprobe.model.results import Outcome, Results
from rocmprobe.model.states import fails, works

_QUOTED = 5


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """Return every case whose state differs between two runs, the worst kind of change first.

    ``before`` and ``after`` map ids of cases to states (see ``baseline.states``).
    """
    differing = (
        Change(name, before.get(name), after.get(name), _kind(before.get(name), after.get(name)))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )
    return tuple(sorted(differing, key=lambda change: (KINDS.index(change.kind), change.id)))


def _kind(before: Optional[str], after: Optional[str]) -> str:
    if before is None:
        return NEW
    if after is None:
        return MISSING
    if fails(after):
        return REGRESSION if works(before) else CHANGED
    if works(after):
        # A flaky case that now works can have passed by chance, so it does not count as fixed.
        return MENDED if fails(before) and before != "flaky" else CHANGED
    return LOST if works(before) or fails(before) else CHANGED


def changes_since(baseline: Baseline, outcomes: Iterable[Outcome]) -> Changes:
    """Return the changes from the baseline to a run with these ``outcomes``."""
    now = states(outcomes)
    compared = len(baseline.states.keys() & now.keys())
    changed = changes(baseline.states, now)
    return Changes(baseline.path, baseline.started, baseline.rocmprobe, compared, changed)


def regressions(results: Results) -> tuple[Outcome, ...]:
    """Return the failures of cases that worked in the baseline.

    Without a baseline, return the failures that the table of known failures does not list. Failures without
    PyTorch do not count, because they only explain failures in PyTorch. A cure that fails does not count if
    the failure that it was tried for is known.
    """
    if results.changes:
        regressed = {change.id for change in results.changes.of(REGRESSION)}
        return tuple(outcome for outcome in results.outcomes if outcome.id in regressed)
    cures = {setting.name for setting in results.settings if setting.cures or setting.members}
    known = {case_key(outcome) for outcome in results.outcomes if outcome.state == "xfail"}
    return tuple(
        outcome
        for outcome in failed(results.outcomes)
        if outcome.state != "xfail"
        and concerns_convolution(outcome)
        and outcome.check not in DIRECT
        and not (outcome.setting in cures and case_key(outcome) in known)
    )


def unexplained_losses(lost: Iterable[Change]) -> tuple[Change, ...]:
    """Return the cases in ``lost`` (cases without a result) for which a CI job should fail.

    These are cases in which rocmprobe itself failed, and cases that worked before and are blocked now.
    """
    return tuple(
        change
        for change in lost
        if change.after == "probe-error" or (change.after == "blocked" and works(change.before))
    )


def worse(results: Results) -> bool:
    """Return True if ``--fail-on regressions`` should fail."""
    if not results.changes:
        return bool(regressions(results)) or any(
            outcome.state == "probe-error" for outcome in results.outcomes
        )
    return bool(
        regressions(results) or unexplained_losses(results.changes.of(LOST)) or strange_baseline(results)
    )


def strange_baseline(results: Results) -> str:
    """Return the reason why the baseline is probably of another kind of run, or ""."""
    if not results.changes:
        return ""
    compared, missing = results.changes.compared, len(results.changes.of(MISSING))
    if not compared:
        return "The baseline has no test in common with this run: nothing was compared"
    narrowed = any(results.options.get(name) for name in ("only", "skip", "problems", "shapes"))
    if missing <= compared or narrowed or results.partial:
        return ""
    return f"{missing} of the {compared + missing} tests of the baseline did not run this time"
