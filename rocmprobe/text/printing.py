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
    """Make stdout and stderr print an escape for each character that they cannot encode."""
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
    click.echo(encodable(line, sys.stderr.encoding), err=True)


def print_stderr_lines(text: str) -> None:
    """Print several lines to stderr."""
    click.echo(plain(text), err=True)


def print_traceback() -> None:
    """Print the traceback of the current exception to stderr."""
    print_stderr_lines(traceback.format_exc().rstrip("\n"))
