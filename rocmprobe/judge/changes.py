"""Cases that changed between two runs, and findings about the changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Optional

from rocmprobe.checks import DIRECT
from rocmprobe.judge.assessment import concerns_convolution, failed, quoted
from rocmprobe.judge.blame import blamed
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.causes import causes
from rocmprobe.knowledge.expectations import observed
from rocmprobe.model.baseline import Baseline, states
from rocmprobe.model.changes import (  # fmt: skip
    CHANGED,
    KINDS,
    LOST,
    MENDED,
    MISSING,
    NEW,
    REGRESSION,
    TABLE,
    Change,
    Changes,
)
from rocmprobe.model.results import Finding, Outcome, Results
from rocmprobe.model.states import fails, works

_QUOTED = 5


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """Return every case whose state differs between two runs, the worst kind of change first.

    ``before`` and ``after`` map ids of cases to states (see ``baseline.states``).
    """
    found = (
        Change(name, before.get(name), after.get(name), _kind(before.get(name), after.get(name)))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )
    return tuple(sorted(found, key=lambda change: (KINDS.index(change.kind), change.id)))


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
    found = changes(baseline.states, now)
    return Changes(baseline.path, baseline.started, baseline.rocmprobe, compared, found)


def regressions(results: Results) -> tuple[Outcome, ...]:
    """Return the failures of cases that worked in the baseline.

    Without a baseline, return the failures that the table of known failures does not list. Failures without
    PyTorch do not count, because they only explain failures in PyTorch.
    """
    if results.changes:
        found = {change.id for change in results.changes.of(REGRESSION)}
        return tuple(outcome for outcome in results.outcomes if outcome.id in found)
    return tuple(
        outcome
        for outcome in failed(results.outcomes)
        if outcome.state != "xfail" and concerns_convolution(outcome) and outcome.check not in DIRECT
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
        return bool(regressions(results)) or any(each.state == "probe-error" for each in results.outcomes)
    return bool(regressions(results) or unexplained_losses(results.changes.of(LOST)) or _strange(results))


def _strange(results: Results) -> str:
    if not results.changes:
        return ""
    compared, missing = results.changes.compared, len(results.changes.of(MISSING))
    if not compared:
        return "The baseline has no test in common with this run: nothing was compared"
    narrowed = any(results.options.get(name) for name in ("only", "skip", "problems", "shapes"))
    if missing <= compared or narrowed or results.partial:
        return ""
    return f"{missing} of the {compared + missing} tests of the baseline did not run this time"


def expectation_findings(run: Evidence) -> Iterator[Finding]:
    """Yield findings about regressions, known failures, unexpected passes and an unsuitable baseline.

    Expected failures in ``run`` must already have the state ``xfail`` or ``xpass``.
    """
    results = run.results
    if results.changes and (strange := _strange(results)):
        yield Finding(
            "strange-baseline", "warning", "unknown", "warning-only", strange,
            (f"{results.changes.baseline}, a run of {results.changes.started}",),
            "Name a run with the same device, driver, level and settings.",
        )  # fmt: skip
    failing = regressions(results) if results.changes else ()
    if failing:
        yield Finding(
            "regressions", "error", *blamed(run, failing),
            f"{len(failing)} test(s) passed in the baseline and fail now",
            quoted(failing, _QUOTED),
            "Check what changed on the machine since the baseline. The other findings say what fails.",
        )  # fmt: skip
    yield from _known(results)
    mended = tuple(outcome for outcome in results.outcomes if outcome.state == "xpass")
    if mended:
        yield Finding(
            "unexpected-passes", "info", "unknown", "warning-only",
            f"{len(mended)} test(s) were expected to fail, but pass",
            tuple(
                f"{each.id}: {each.expected.state}, expected to fail: {each.expected.reason}"
                for each in mended[:_QUOTED]
                if each.expected
            ),
            "Use this run's results as the new baseline. If rocmprobe's list of known failures is out of "
            "date, report this (docs/ci.md).",
        )  # fmt: skip


def _known(results: Results) -> Iterator[Finding]:
    layers = {cause.name: cause.layer for cause in causes()}
    rows: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in results.outcomes:
        known = outcome.expected
        if known and outcome.state == "xfail" and known.source == TABLE:
            rows.setdefault((known.reason, known.link, known.cause), []).append(outcome)
    for number, ((reason, link, cause), outcomes) in enumerate(rows.items()):
        yield Finding(
            f"known-failure-{number}", "info", cause, layers.get(cause, "warning-only"),
            f"{len(outcomes)} failure(s) are known for this chip with the installed versions: {reason}",
            (link, *quoted(map(observed, outcomes))),
            f"See {link} for other reports. Avoid the settings and layers that fail here.",
        )  # fmt: skip
