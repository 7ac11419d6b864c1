"""Findings about expected failures: regressions, known failures, and failures that no longer occur.

Expected failures of the run must already have the state ``xfail`` or ``xpass``.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import quoted
from rocmprobe.judge.blame import blamed
from rocmprobe.judge.changes import regressions, strange_baseline
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.causes import causes
from rocmprobe.knowledge.expectations import observed
from rocmprobe.model.changes import TABLE
from rocmprobe.model.results import Finding, Outcome
from rocmprobe.text.readable import count

_QUOTED = 5


def unsuitable_baseline(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the baseline is probably of another kind of run."""
    changes, title = run.results.changes, strange_baseline(run.results)
    if changes and title:
        evidence = (f"{changes.baseline}, a run of {changes.started}",)
        advice = "Name a run with the same device, driver, level and settings."
        yield Finding("strange-baseline", "warning", "unknown", "warning-only", title, evidence, advice)


def regressed(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if tests fail that passed in the baseline."""
    failing = regressions(run.results) if run.results.changes else ()
    if failing:
        title = f"{count(len(failing), 'case')} passed in the baseline, and failed now"
        advice = "Check what changed on the machine since the baseline. The other findings say what fails."
        yield Finding("regressions", "error", *blamed(run, failing), title, quoted(failing, _QUOTED), advice)


def known_failures(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each row of the table of known failures that explains failures of the run."""
    layers = {cause.name: cause.layer for cause in causes()}
    rows: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in run.outcomes:
        known = outcome.expected
        if known and outcome.state == "xfail" and known.source == TABLE:
            rows.setdefault((known.reason, known.link, known.cause), []).append(outcome)
    for number, ((reason, link, cause), outcomes) in enumerate(rows.items()):
        name, layer = f"known-failure-{number}", layers.get(cause, "warning-only")
        failed = f"{count(len(outcomes), 'case')} failed as known"
        title = f"{failed} for this chip with the installed versions: {reason}"
        evidence = (link, *quoted(map(observed, outcomes)))
        advice = f"See {link} for other reports. Avoid the settings and layers that fail here."
        yield Finding(name, "info", cause, layer, title, evidence, advice)


def unexpected_passes(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if tests pass that were expected to fail."""
    passed = [outcome for outcome in run.outcomes if outcome.state == "xpass"]
    if passed:
        title = f"{count(len(passed), 'case')} passed, although expected to fail"
        evidence = tuple(
            f"{each.id}: {each.expected.state}, expected to fail: {each.expected.reason}"
            for each in passed[:_QUOTED]
            if each.expected
        )
        advice = (
            "Use this run's results as the new baseline. If rocmprobe's list of known failures is out of "
            "date, report this (docs/ci.md)."
        )
        yield Finding("unexpected-passes", "info", "unknown", "warning-only", title, evidence, advice)
