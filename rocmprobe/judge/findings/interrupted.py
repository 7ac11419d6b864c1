"""Findings about runs without all results."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rocmprobe.judge.assessment import failed, quoted
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding, Results
from rocmprobe.text.readable import count


def aborted(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if tests were running when the run or the machine stopped."""
    died = [outcome for outcome in run.outcomes if outcome.state == "aborted"]
    froze = [outcome for outcome in died if outcome.failure == "machine-died"]
    if died:
        title = f"The {'machine stopped' if froze else 'run ended'} during {count(len(died), 'case')}"
        advice = f"To repeat them, run `{resume(run.results)} --retry-aborted`." + (
            " This can stop the machine again." if froze else ""
        )
        severity = "error" if froze else "info"
        cause = "gpu-hang-reset" if froze else "unknown"
        layer = "driver" if froze else "rocmprobe"
        yield Finding("aborted", severity, cause, layer, title, quoted(froze or died), advice)


def wedged(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the device stopped responding."""
    blocked = [outcome for outcome in run.outcomes if outcome.failure == "gpu-wedged"]
    if blocked:
        title = f"The device stopped responding during the run; {count(len(blocked), 'case')} did not run"
        evidence = quoted(failed(run.outcomes)[-1:])
        advice = f"Reboot, then continue with `{resume(run.results)}`. rocmprobe never resets a GPU."
        yield Finding("gpu-wedged", "error", "gpu-hang-reset", "driver", title, evidence, advice)


def probe_errors(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if rocmprobe itself failed."""
    broken = [outcome for outcome in run.outcomes if outcome.state == "probe-error"]
    if broken:
        title = f"rocmprobe itself failed in {count(len(broken), 'case')}, with no result"
        advice = "This is a bug in rocmprobe. Please report it."
        yield Finding("probe-error", "warning", "unknown", "rocmprobe", title, quoted(broken), advice)


def resume(results: Results) -> str:
    """Return the command that continues an interrupted run."""
    folder = results.options.get("folder")
    return f"rocmprobe run --resume {shlex.quote(str(folder))}" if folder else "rocmprobe run --resume"
