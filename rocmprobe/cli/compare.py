"""``rocmprobe compare``: shows what changed between two runs, or many runs in one table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from rocmprobe.cli.base import exit_code_command
from rocmprobe.cli.github_job import append_summary, no_commands
from rocmprobe.judge.comparison import compare, run_row
from rocmprobe.model.exit_codes import FINDINGS, OK
from rocmprobe.model.results import BadInput, Results
from rocmprobe.model.results_file import read_results, results_file
from rocmprobe.text.printing import print_stderr, say, say_json
from rocmprobe.text.redact import redacted


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (docs/ci.md).")
@click.option("--csv", "as_csv", is_flag=True, help="Print one line of CSV for each run.")
@exit_code_command
def compare_command(runs: tuple[Path, ...], as_json: bool, as_csv: bool) -> int:
    """Show what changed between two runs, or many runs in one table.

    RUN is the folder of a run, or its results.json. For two runs, the old one first: changed test results,
    versions and configuration, and changes of speed and memory beyond the noise. Exits 1 for a regression,
    or if they cannot be compared (docs/ci.md). For three or more: one row each; other files are skipped.

    \b
    Examples:
      rocmprobe compare last/results.json reports/latest
      rocmprobe compare fleet/* --csv
    """
    from rocmprobe.report.terminal import comparison as report

    if len(runs) < 2 or (as_json and as_csv):
        raise BadInput("compare: name two or more runs, and at most one of --json and --csv")
    found = list(_read(runs))
    rows = [redacted(run_row(results, str(path))) for path, results in found]
    comparison = compare(found[0][1], found[1][1]) if len(runs) == 2 else None
    if as_csv:
        say(report.to_csv(rows), end="")
    elif as_json:
        result = {"verdict": report.verdict(comparison), "worse": comparison.worse} if comparison else {}
        say_json({**result, **(asdict(comparison) if comparison else {}), "runs": rows})
    else:
        with no_commands(os.environ):
            report.render(rows, comparison)
    append_summary(report.markdown(rows, comparison), os.environ)
    return FINDINGS if comparison and comparison.worse else OK


def _read(runs: Sequence[Path]) -> Iterator[tuple[Path, Results]]:
    """Yield the results of each run. Of three or more, skip those that cannot be read.

    Raise BadInput if one of two runs cannot be read, or if no run is left.
    """
    skipped = 0
    for path in runs:
        try:
            yield path, _results(path)
        except BadInput as error:
            skipped += 1
            if len(runs) == 2 or skipped == len(runs):
                raise
            print_stderr(f"skipped: {error}")


def _results(path: Path) -> Results:
    if os.path.isdir(path) and not results_file(path).exists():
        from rocmprobe.report.write import recorded

        return recorded(path)
    results = read_results(path)
    if not results.outcomes:
        raise BadInput(f"{path}: contains no outcomes; name the results.json of another run")
    return results
