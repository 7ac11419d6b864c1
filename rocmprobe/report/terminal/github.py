"""Output of a run for GitHub: the summary of a job, and annotations."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.summary import Summary
from rocmprobe.model.changes import REGRESSION
from rocmprobe.model.results import Finding
from rocmprobe.report.escape import joined
from rocmprobe.report.terminal.markdown import advice, against, counts, left_out, remedy, title, verdict
from rocmprobe.text import readable as text

#: Largest number of characters of a summary. GitHub allows 1 MiB for all programs of a step together.
LIMIT = 60_000
_FINDINGS = 20
#: Largest number of annotations of a kind that GitHub shows for each step.
MOST = 10
_KINDS = {"error": "error", "warning": "warning", "info": "notice"}
_MESSAGE = 1_000
_TITLE = 200


def job_summary(summary: Summary) -> str:
    """Return verdict, advice, titles of findings and changes as Markdown of at most ``LIMIT`` characters."""
    return joined(_blocks(summary), LIMIT)


def _blocks(summary: Summary) -> Iterator[str]:
    yield from verdict(summary)
    yield "\n".join(map(_finding, summary.findings[:_FINDINGS]))
    yield left_out(len(summary.findings) - _FINDINGS, "finding")
    yield from advice(summary)
    yield from against(summary.results, most=20)
    yield counts(summary)


def _finding(found: Finding) -> str:
    return f"- {title(found)}" + (f". Remedy: {remedy(found)}" if found.remedy else "")


def workflow_commands(summary: Summary) -> list[str]:
    """Return a workflow command for each regression, each finding and a partial run.

    Return at most ``MOST`` commands of each kind.
    """
    commands: list[str] = []
    for kind in ("error", "warning", "notice"):
        mine = [each for each in _annotations(summary) if each[0] == kind]
        if len(mine) > MOST:
            more = text.count(len(mine) - MOST + 1, "finding")
            mine = [*mine[: MOST - 1], (kind, "rocmprobe", f"{more} more of this kind, see the summary")]
        commands += [_command(*each) for each in mine]
    return commands


def _annotations(summary: Summary) -> Iterator[tuple[str, str, str]]:
    results = summary.results
    simulated = "SIMULATED: " if results.simulated else ""
    for change in results.changes.of(REGRESSION) if results.changes else ():
        yield "error", f"{simulated}Regression", f"{change.id}: was {change.before}, is {change.after}"
    for notice in summary.notices:
        if notice.kind == "partial":
            yield "warning", f"{simulated}{notice.title}", notice.body
    for found in summary.findings:
        yield (
            _KINDS[found.severity],
            f"{simulated}{found.cause} ({found.layer})",
            f"{found.title}. {found.advice}",
        )


def _command(kind: str, heading: str, message: str) -> str:
    """Return a workflow command of GitHub Actions.

    Escape ``%`` and line ends, and in the title also ``:`` and ``,``. Source: the toolkit of GitHub Actions,
    packages/core/src/command.ts.
    """
    heading = _escaped(text.one_line(heading[: 8 * _TITLE], _TITLE)).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={heading}::{_escaped(text.one_line(message[: 8 * _MESSAGE], _MESSAGE))}"


def _escaped(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
