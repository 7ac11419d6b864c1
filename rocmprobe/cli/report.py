"""``rocmprobe report``: writes the report of an earlier run again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

import click

from rocmprobe import output
from rocmprobe.cli.base import exit_code_command
from rocmprobe.model.exit_codes import OK
from rocmprobe.model.results import BadInput
from rocmprobe.text.printing import say


@click.command("report")
@click.argument("results", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(("html", "md", "json", "junit", "issue")), default="html",
    show_default=True,
)  # fmt: skip
@click.option(
    "--full",
    is_flag=True,
    help="With --format issue: also all failing cases, and the environment in full.",
)
@click.option("-o", "path", type=click.Path(path_type=Path),
              help="Output file (default: next to the results; md and issue: the terminal).")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a link, or a file that rocmprobe did not write.")
@exit_code_command
def report_command(results: Path, form: str, full: bool, path: Optional[Path], force: bool) -> int:
    """Write the report of a run again, or the text of an issue.

    RESULTS is the folder of a run, or its results.json. For an interrupted run, give the folder. The issue
    describes the most severe failure in about 30 lines and a script (docs/reporting-a-bug.md).

    \b
    Examples:
      rocmprobe report reports/latest/results.json -o report.html
      rocmprobe report reports/latest/results.json --format issue
    """
    from rocmprobe.cli.github_job import no_commands
    from rocmprobe.report import write

    if full and form != "issue":
        raise BadInput("--full needs --format issue; add it, or leave out --full")
    try:
        if form in write.TEXTS:
            text = write.as_text(results, form, full)
            if path is None:
                with no_commands(os.environ):
                    say(text, end="")
                return OK
            output.write(path, text.encode(), force)
        else:
            path = write.write_document(results, form, path, force)
    except OSError as error:
        if error.filename is None:  # Writing to standard output failed.
            raise
        raise BadInput(f"{error.filename}: {error.strerror}; name another file with -o") from error
    say(path)
    return OK
