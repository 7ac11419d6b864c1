"""``rocmprobe shapes``: records the convolutions of a program."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from rocmprobe.cli.base import exit_code_command, needs_linux
from rocmprobe.model.results import BadInput
from rocmprobe.text.printing import print_stderr

_PROGRAM = {"allow_interspersed_args": False}


@click.command("shapes", context_settings=_PROGRAM)
@click.option("-o", "output", type=click.Path(path_type=Path), required=True, metavar="FILE")
@click.option("--force", is_flag=True, help="Replace a link, or a file that rocmprobe did not write.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@exit_code_command
def shapes_command(output: Path, force: bool, command: tuple[str, ...]) -> int:
    """Record the convolutions that your program runs.

    Each distinct problem is recorded once, from all processes of the program
    (docs/training-with-the-bypass.md). The exit code is that of the program, or 2 if nothing was run. A
    signal that ends the program ends rocmprobe, too.

    \b
    Example:
      rocmprobe shapes -o shapes.json -- python train.py
    """
    if why := needs_linux("shapes"):
        raise BadInput(why)
    from rocmprobe.engine.journal import CannotWrite
    from rocmprobe.exec.recording import record
    from rocmprobe.exec.runner import exit_like

    try:
        code, found = record(command, output, force)
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(output)) from error
    with suppress(BrokenPipeError):
        if found is None:
            print_stderr(f"the program failed, so {output} is unchanged; --force replaces the file")
        else:
            print_stderr(f"{found or 'no'} problem(s) in {output}")
    return exit_like(code)
