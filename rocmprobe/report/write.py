"""Writer of a run's files: judged results, HTML report and JUnit file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from rocmprobe import output
from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import Summary, summarize
from rocmprobe.model.results import BadInput, Results
from rocmprobe.model.results_file import (
    read_results,
    results_document,
    write_results,
)
from rocmprobe.report import junit
from rocmprobe.report.issue.issue import issue_text
from rocmprobe.report.page import html
from rocmprobe.report.terminal.markdown import markdown
from rocmprobe.text.redact import census

if TYPE_CHECKING:
    from rocmprobe.engine.journal import RunJournal

_NAMES = {"html": "report.html", "json": "results.json", "junit": "junit.xml"}
_FORMS: Mapping[str, Callable[[Summary], bytes]] = {
    "html": lambda summary: html.page(summary).encode(),
    "json": lambda summary: results_document(summary.results),
    "junit": lambda summary: junit.document(summary).encode(),
}
#: Formats for pasting into an issue.
TEXTS = ("md", "issue")


def write_first_report(journal: RunJournal) -> Results:
    """Write report.html while the run goes on. The page reloads itself."""
    results = judged(journal)
    page = html.page(summarize(results, live=True))
    output.write(journal.path.parent / _NAMES["html"], page.encode(), force=True)
    return results


def write_report(journal: RunJournal) -> Summary:
    """Write results.json, report.html and junit.xml of the run into its folder, and return its summary.

    If the run ended early, the results are marked as partial.
    """
    results, folder = judged(journal), journal.path.parent
    write_results(results, folder / "results.json")
    summary = summarize(results)
    for form in ("html", "junit"):
        output.write(folder / _NAMES[form], _FORMS[form](summary), force=True)
    return summary


def write_document(source: Path, form: str, path: Optional[Path], force: bool = False) -> Path:
    """Write ``source`` in the form ``form`` ("html", "json" or "junit") to ``path``, and return the path.

    ``source`` is a results.json or the folder of a run. Raise BadInput if ``source`` contains no results, and
    OSError if writing fails (``output.write``).
    """
    folder = source if source.is_dir() else source.parent
    summary = summarize(read(source))
    path = path or folder / _NAMES[form]
    output.write(path, _FORMS[form](summary), force)
    return path


def as_text(source: Path, form: str, full: bool = False) -> str:
    """Return ``source``, a results.json or the folder of a run, as text in a format of ``TEXTS``.

    Raise BadInput if ``source`` contains no results.
    """
    summary = summarize(read(source))
    return markdown(summary) if form == "md" else issue_text(summary, full)


def read(source: Path) -> Results:
    """Return the results of ``source``, a results.json or the folder of a run.

    A folder's journal is preferred: it also has the outcomes of an interrupted run. The results are judged
    again, so findings and recommendation always agree with the outcomes.

    Raise BadInput if ``source`` contains no results.
    """
    from rocmprobe.engine.journal import NAME

    only_results = not (source / NAME).exists() and (source / "results.json").exists()
    if source.is_dir() and not only_results:
        return recorded(source)
    return judged_again(read_results(source), source)


def judged_again(results: Results, source: Path) -> Results:
    """Return ``results`` of ``source`` with a new judgement. Raise BadInput if they cannot be judged."""
    try:
        return judge(results)
    except BadInput as error:
        raise BadInput(f"{source}: {error}") from error


def recorded(folder: Path) -> Results:
    """Return the judged results of the run in ``folder``.

    Raise BadInput if the journal has content that no run writes.
    """
    from rocmprobe.engine.journal import RunJournal

    return judged(RunJournal(folder))


def judged(journal: RunJournal) -> Results:
    """Return the judged results of the run of ``journal``."""
    from rocmprobe.engine import run

    results = judge(run.results(journal), journal.state.baseline)
    return replace(results, redacted=census(results)) if journal.run.options.redact else results
