"""What every command shares: the group, exit codes (docs/results.md), one clear line for what goes wrong."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from rocmprobe import __version__
from rocmprobe.model import BadInput, NothingToTest
from rocmprobe.runner.journal import CannotWrite

OK, FINDINGS, USAGE, NOTHING, WEDGED, INTERNAL = range(6)
#: What shells report for a program that Ctrl-C ended; SIGTERM ends a run in the same way.
INTERRUPTED = 130


def answering(command: Callable[..., int]) -> Callable[..., None]:
    """Turn what a command returns or raises into an exit code and one clear line."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            sys.exit(command(*args, **options))
        except BadInput as error:
            click.echo(f"rocmprobe: {error}", err=True)
            sys.exit(USAGE)
        except NothingToTest as error:
            click.echo(f"rocmprobe: {error}", err=True)
            sys.exit(NOTHING)
        except KeyboardInterrupt:
            click.echo("rocmprobe: interrupted", err=True)
            sys.exit(INTERRUPTED)
        except CannotWrite as error:
            click.echo(f"rocmprobe: {error}", err=True)
            sys.exit(INTERNAL)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception:
            # Python's own exit code for this would be that of findings.
            traceback.print_exc()
            sys.exit(INTERNAL)

    return run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rocmprobe")
def main() -> None:
    """Find out why convolution fails on this GPU, and which configuration works.

    \b
    Example:
      rocmprobe run
    """
