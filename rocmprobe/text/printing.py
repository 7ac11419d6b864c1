"""Printing to stdout and stderr: every line of a command goes through here, or through ``console``.

Whatever came from a file or a machine is harmless in a terminal then: control characters, halves of surrogate
pairs and characters that the stream cannot encode are shown as escapes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from typing import Any

import click

from rocmprobe.text.plain_text import encodable, message, plain

#: GitHub runs this from anywhere in a line of output, and ``::`` from its beginning.
_COMMAND = re.compile(r"##(?=\[)")


def ready() -> None:
    """Make stdout and stderr escape what they cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def say(text: object, end: str = "\n") -> None:
    """Print one or several lines to stdout."""
    click.echo(encodable(plain(f"{text}{end}"), sys.stdout.encoding), nl=False)


def say_json(data: Any) -> None:
    """Print data to stdout as JSON, in printable ASCII."""
    # DEL is a control character that JSON takes as it is.
    click.echo(json.dumps(data, indent=1).replace("\x7f", "\\u007f"))


def print_stderr(text: object) -> None:
    """Print one line for people to stderr, apart from a command's answer on stdout."""
    line = f"rocmprobe: {message(str(text))}"
    if os.environ.get("GITHUB_ACTIONS") == "true":
        line = _COMMAND.sub("# #", line)
    click.echo(encodable(line, sys.stderr.encoding), err=True)


def print_stderr_lines(text: str) -> None:
    """Print several lines to stderr."""
    click.echo(plain(text), err=True)


def print_traceback() -> None:
    """Print the traceback of the exception that is being handled to stderr."""
    print_stderr_lines(traceback.format_exc().rstrip("\n"))
