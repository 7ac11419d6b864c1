"""Output for a step of a GitHub workflow: summary and annotations."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rocmprobe import output
from rocmprobe.text.printing import print_stderr, say

if TYPE_CHECKING:
    from rocmprobe.judge.summary import Summary

#: GitHub's size limit for the summary of a step, in bytes. GitHub rejects a longer summary completely.
_STEP_BYTES = 2**20


@contextmanager
def no_commands(environ: Mapping[str, str]) -> Iterator[None]:
    """In a GitHub job, disable workflow commands during the ``with`` block.

    GitHub executes every output line that begins with ``::``, even from logs.
    """
    if environ.get("GITHUB_ACTIONS") != "true":
        yield
        return
    token = secrets.token_hex(16)
    say(f"::stop-commands::{token}")
    try:
        yield
    finally:
        say(f"::{token}::")


def annotate(summary: Summary, environ: Mapping[str, str]) -> None:
    """In a GitHub job, print the results as annotations and append them to the job's summary."""
    from rocmprobe.report.terminal import github

    if environ.get("GITHUB_ACTIONS") == "true":
        for command in github.workflow_commands(summary):
            say(command)
    if environ.get("GITHUB_STEP_SUMMARY"):
        append_summary(github.job_summary(summary), environ)


def append_summary(summary: str, environ: Mapping[str, str]) -> None:
    """Append Markdown to the file in GITHUB_STEP_SUMMARY, if the variable is set.

    If the file cannot be written, print one line to stderr.
    """
    path = environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        _append(Path(path), summary)
    except OSError as error:
        print_stderr(f"no summary of the job: {path}: {error.strerror or error}")


def _append(path: Path, summary: str) -> None:
    content = f"\n{summary}".encode()
    taken = path.stat().st_size if path.exists() else 0
    if taken + len(content) > _STEP_BYTES:
        raise OSError(f"the file has {taken} bytes, and GitHub accepts {_STEP_BYTES} per step")
    output.append(path, content)
