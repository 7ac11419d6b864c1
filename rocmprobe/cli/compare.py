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
from rocmprobe.model.results import BadInput, Results
from rocmprobe.model.results_file import from_json, read_joined, read_results, results_file
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

    In a GitHub job, also write the changes to the job's summary. If both runs tested several Python
    environments, compare each common environment.

    Raise BadInput if a run has no results or no outcome, or if the runs have no environment in common.
    """
    found = {name: compare_runs(*pair) for name, pair in _pairs(old, new).items()}
    if as_json:
        data = {name: as_data(each) for name, each in found.items()}
        say_json(data.get("", {"environments": data}))
    else:
        from rocmprobe.report.terminal.comparison import render_comparison
        from rocmprobe.text.console import Console

        console = Console()
        with no_commands(environ):
            for name, each in found.items():
                if name:
                    console.print(f"environment {name}")
                render_comparison(each, console)
    if environ.get("GITHUB_STEP_SUMMARY"):
        from rocmprobe.report.terminal.comparison import markdown

        for name, each in found.items():
            summarise(f"# Environment {name}\n\n{markdown(each)}" if name else markdown(each), environ)
    return any(map(worse, found.values()))


def _pairs(old: Path, new: Path) -> dict[str, tuple[Path, Path]]:
    """Return the pairs of runs to compare, keyed by the Python environment, or by "" for a single pair."""
    before, after = (read_joined(results_file(each)) for each in (old, new))
    if not before or not after:
        return {"": (old, new)}
    names = [each.name for each in before.runs if each.name in [other.name for other in after.runs]]
    if not names:
        raise BadInput(
            f"{old} and {new}: no Python environment has the same name in both runs; instead of each run, "
            "give the folder of one of its environments"
        )
    return {name: (results_file(old).parent / name, results_file(new).parent / name) for name in names}


def _results(source: Path) -> Results:
    if source.is_dir() and not results_file(source).exists():
        from rocmprobe.report.write import recorded

        return recorded(source)
    return read_results(results_file(source))
