"""Findings about runs without all results."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rocmprobe.judge.assessment import failed, quoted
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding, Results


def aborted(run: Evidence) -> Iterator[Finding]:
    died = [outcome for outcome in run.outcomes if outcome.state == "aborted"]
    froze = [outcome for outcome in died if outcome.failure == "machine-died"]
    if died:
        yield Finding(
            "aborted",
            "error" if froze else "info",
            "gpu-hang-reset" if froze else "unknown",
            "driver" if froze else "rocmprobe",
            f"{len(died)} test(s) were running when the {'machine stopped' if froze else 'run ended'}",
            quoted(froze or died),
            f"To repeat them, run `{resume(run.results)} --retry-aborted`."
            + (" This can stop the machine again." if froze else ""),
        )


def wedged(run: Evidence) -> Iterator[Finding]:
    blocked = [outcome for outcome in run.outcomes if outcome.failure == "gpu-wedged"]
    if blocked:
        yield Finding(
            "gpu-wedged",
            "error",
            "gpu-hang-reset",
            "driver",
            f"The device stopped responding during the run; {len(blocked)} test(s) did not run",
            quoted(failed(run.outcomes)[-1:]),
            f"Reboot, then continue with `{resume(run.results)}`. rocmprobe never resets a GPU.",
        )


def probe_errors(run: Evidence) -> Iterator[Finding]:
    broken = [outcome for outcome in run.outcomes if outcome.state == "probe-error"]
    if broken:
        yield Finding(
            "probe-error",
            "warning",
            "unknown",
            "rocmprobe",
            f"rocmprobe itself failed in {len(broken)} test(s), which therefore have no result",
            quoted(broken),
            "This is a bug in rocmprobe. Please report it.",
        )


def partial(run: Evidence) -> Iterator[Finding]:
    if run.results.partial:
        yield Finding(
            "partial",
            "warning",
            "unknown",
            "warning-only",
            "The run is incomplete: the missing tests have no result",
            (f"{len(run.outcomes)} outcomes were recorded",),
            f"Continue with `{resume(run.results)}`.",
        )


def resume(results: Results) -> str:
    """Return the command that continues an interrupted run."""
    folder = results.options.get("folder")
    return f"rocmprobe run --resume {shlex.quote(str(folder))}" if folder else "rocmprobe run --resume"
