"""``rocmprobe compare``: shows what changed between two runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from rocmprobe.cli.base import exit_code_command
from rocmprobe.cli.github_job import no_commands, summarise
from rocmprobe.judge.comparison.compare import Comparison, as_data, compare, worse
from rocmprobe.judge.comparison.environment_changes import Difference
from rocmprobe.model.exit_codes import FINDINGS, OK
from rocmprobe.model.results import Results
from rocmprobe.model.results_file import from_json, read_results, results_file
from rocmprobe.text.printing import say_json


@click.command("compare")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/ci.md).")
@exit_code_command
def compare_command(old: Path, new: Path, as_json: bool) -> int:
    """Print what changed between two runs: failures, speed, memory.

    OLD and NEW are folders of runs, or their results.json. Exits 1 for a regression, or if the runs
    cannot be compared (docs/ci.md). A regression is a test that no longer passes, or a clear increase of a
    time or of memory.

    \b
    Example:
      rocmprobe compare last/results.json reports/latest/results.json
    """
    return FINDINGS if print_comparison(old, new, as_json, os.environ) else OK


def compare_runs(old: Path, new: Path) -> Comparison:
    """Compare two runs, and redact identifiers in the comparison.

    Raise BadInput if a run has no results or no outcome.
    """
    from rocmprobe.text.redact import redacted, redacted_text

    found = compare(_results(old), _results(new), str(old), str(new))
    clean: Comparison = from_json(Comparison, redacted(asdict(found)))
    # Redaction depends on names, so redact each value under its own name.
    environment = (
        Difference(redacted_text(each.name), _clean(each.name, each.before), _clean(each.name, each.after))
        for each in found.environment
    )
    return replace(clean, environment=tuple(environment))


def _clean(name: str, value: Any) -> Any:
    from rocmprobe.text.redact import redacted

    (clean,) = redacted({name: value}).values()
    return clean


def print_comparison(old: Path, new: Path, as_json: bool, environ: Mapping[str, str]) -> bool:
    """Print what changed between two runs. Return True if the new run is worse, or not comparable.

    In a GitHub job, also write the changes to the job's summary.

    Raise BadInput if a run has no results or no outcome.
    """
    found = compare_runs(old, new)
    if as_json:
        say_json(as_data(found))
    else:
        from rocmprobe.report.terminal.comparison import render_comparison
        from rocmprobe.text.console import Console

        with no_commands(environ):
            render_comparison(found, Console())
    if environ.get("GITHUB_STEP_SUMMARY"):
        from rocmprobe.report.terminal.comparison import markdown

        summarise(markdown(found), environ)
    return worse(found)


def _results(source: Path) -> Results:
    if source.is_dir() and not results_file(source).exists():
        from rocmprobe.report.write import recorded

        return recorded(source)
    return read_results(results_file(source))
