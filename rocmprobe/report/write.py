"""Writes what a run ends in: judged results, report, junit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Optional

from rocmprobe.judge.judgement import judge
from rocmprobe.model.results import Results
from rocmprobe.model.results_file import (
    as_stored,
    check_results,
    ordinary_run,
    read_results,
    results_document,
    to_json,
    write_results,
    write_whole,
)
from rocmprobe.report import junit
from rocmprobe.report.issue.issue import issue_block
from rocmprobe.report.junit import reported
from rocmprobe.report.page import html
from rocmprobe.report.terminal.markdown import markdown
from rocmprobe.text.redact import census

_NAMES = {"html": "report.html", "json": "results.json", "junit": "junit.xml"}
_FORMS: Mapping[str, Callable[[Results], bytes]] = {
    "html": lambda results: html.page(results).encode(),
    "json": results_document,
    "junit": lambda results: junit.document(reported(results), results).encode(),
}
#: Text formats to paste; printed to the terminal unless a file is named.
TEXTS = ("md", "issue")


def write_report(folder: Path) -> Results:
    """Write results.json, report.html and junit.xml for the run in ``folder``; returns the results.

    Works for a run that died, too: its journal is judged and marked partial.
    """
    results = judged_results(folder)
    write_results(results, folder / "results.json")
    for form in ("html", "junit"):
        write_whole(_FORMS[form](results), folder / _NAMES[form])
    return results


def write_document(source: Path, form: str, output: Optional[Path]) -> Path:
    """Write one form ("html", "json", "junit") of ``source``, a results.json or the folder of a run,
    to ``output`` (default: beside the results). Returns where it is.

    Raises BadInput for a source that holds no results.
    """
    folder = source if source.is_dir() else source.parent
    results = read(source)
    target = output or folder / _NAMES[form]
    write_whole(_FORMS[form](results), target)
    return target


def as_text(source: Path, form: str, tracker: str, full: bool = False) -> str:
    """Return one form of ``TEXTS`` of ``source``, a results.json or the folder of a run. The form "issue" is
    for ``tracker``, and with ``full`` its long text.

    Raises BadInput for a source that holds no results.
    """
    results = read(source)
    return markdown(results) if form == "md" else issue_block(results, tracker, full)


def read(source: Path) -> Results:
    """The results of ``source``, a results.json or the folder of a run. Raises BadInput where there are
    none."""
    source = ordinary_run(source)
    return recorded(source) if source.is_dir() else read_results(source)


def recorded(folder: Path) -> Results:
    """The judged results of a run that somebody left in ``folder``.

    Raises BadInput where its journal does not hold what a run writes.
    """
    from rocmprobe.engine import run
    from rocmprobe.engine.journal import NAME

    found = run.results(folder)
    check_results(found, folder / NAME)
    return _judged(found, folder)


def judged_results(folder: Path) -> Results:
    """The judged results of the run in ``folder``, with a count of what was redacted in them, as results.json
    holds them."""
    from rocmprobe.engine import run

    return _judged(run.results(folder), folder)


def _judged(found: Results, folder: Path) -> Results:
    from rocmprobe.engine import run

    results = as_stored(judge(found, run.baseline(folder)))
    return replace(results, redacted=census(to_json(results))) if results.options["redact"] else results
