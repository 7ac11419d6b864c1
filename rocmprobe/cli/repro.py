"""``rocmprobe repro``: prints one case as a script that does not need rocmprobe."""

from __future__ import annotations

from pathlib import Path

import click

from rocmprobe.cli.base import exit_code_command
from rocmprobe.model.exit_codes import OK
from rocmprobe.model.results_file import read_results
from rocmprobe.text.printing import say


@click.command("repro")
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("case")
@exit_code_command
def repro_command(results: Path, case: str) -> int:
    """Print a torch script that repeats one case, for a bug report.

    The script needs no rocmprobe. RESULTS is the folder of a run, or its results.json. CASE is the id of an
    outcome, or a part that no other id has. Comments at the top of the script give the result of the run and
    the command line for MIOpenDriver.

    \b
    Example:
      rocmprobe repro reports/latest default/gemm/float32 > repro.py
    """
    from rocmprobe.report.repro.script import reproduction

    say(reproduction(read_results(results), case))
    return OK
