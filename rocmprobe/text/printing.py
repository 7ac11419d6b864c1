"""Printing to stdout and stderr. Commands print only through this module or ``console``.

Untrusted text is made safe for a terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback

import click

from rocmprobe.text.plain_text import encodable, message, plain

#: Prefix of a workflow command, which GitHub executes anywhere in a line. The other prefix, ``::``, is
#: harmless: it works only at the beginning of a line, and lines on stderr begin with "rocmprobe: ".
_COMMAND = re.compile(r"##(?=\[)")


def ready() -> None:
    """Prepare the standard streams for any text, and for a caller that has closed them.

    Both output streams print an escape for each character that they cannot encode.
    """
    # Otherwise the next file that is opened would get the number of a closed stream, and errors would be
    # written to this file. The program under `exec` still finds the stream closed.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - it stays open
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def say(text: object, end: str = "\n") -> None:
    """Print one or several lines to stdout."""
    click.echo(encodable(plain(f"{text}{end}"), sys.stdout.encoding), nl=False)


def say_json(data: object) -> None:
    """Print data to stdout as JSON, in printable ASCII."""
    # JSON does not escape DEL, which is a control character.
    click.echo(json.dumps(data, indent=1).replace("\x7f", "\\u007f"))


def print_stderr(text: object) -> None:
    """Print one line for the user to stderr."""
    line = f"rocmprobe: {message(str(text))}"
    if os.environ.get("GITHUB_ACTIONS") == "true":
        line = _COMMAND.sub("# #", line)
    _write_stderr(encodable(line, sys.stderr.encoding))


def print_stderr_lines(text: str) -> None:
    """Print several lines to stderr."""
    _write_stderr(plain(text))


def _write_stderr(text: str) -> None:
    try:
        click.echo(text, err=True)
    except OSError as error:
        # Drop the stream, because Python would flush it at exit and change the exit code.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it stays open
        # If the disk is full, the command still works.
        if isinstance(error, BrokenPipeError):
            raise


def print_traceback() -> None:
    """Print the traceback of the current exception to stderr."""
    print_stderr_lines(traceback.format_exc().rstrip("\n"))
