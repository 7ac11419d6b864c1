"""What every command shares: the group, an exit code and one clear line for what goes wrong, and the words
for a device that another run holds."""

from __future__ import annotations

import errno
import functools
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn, Optional

import click

from rocmprobe import __version__
from rocmprobe.cli.help import CommandGroup
from rocmprobe.model.exit_codes import INTERNAL, INTERRUPTED, NOTHING, UNREAD, USAGE
from rocmprobe.model.results import BadInput, NothingToTest
from rocmprobe.text import printing


def answering(command: Callable[..., int]) -> Callable[..., None]:
    """Turn what a command returns or raises into an exit code and one clear line."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        printing.ready()
        try:
            code = _code(functools.partial(command, *args, **options))
            # After an interrupt inside `exec` of a text, by which a dataclass is made, CPython ends by SIGINT
            # and not by its exit code, even where the interrupt was handled. The next text makes it forget.
            exec("")  # noqa: S102
            sys.exit(code)
        except BrokenPipeError:
            _unread()
        except SystemExit as end:
            # rich exits with 1 over a broken pipe, which is the code of findings.
            if isinstance(end.__context__, BrokenPipeError):
                _unread()
            raise

    return run


def _code(command: Callable[[], int]) -> int:
    try:
        return command()
    except BadInput as error:
        printing.print_stderr(error)
        return USAGE
    except NothingToTest as error:
        printing.print_stderr(error)
        return NOTHING
    except KeyboardInterrupt:
        printing.print_stderr("interrupted")
        return INTERRUPTED
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except Exception as error:
        # Imported late: it costs a fifth of what `explain` takes.
        from rocmprobe.engine.journal import CannotWrite

        if isinstance(error, CannotWrite):
            printing.print_stderr(error)
        elif exhausted(error):
            raise
        else:
            # Python's own exit code for this would be that of findings.
            printing.print_traceback()
        return INTERNAL


def _unread() -> NoReturn:
    """End without a word. What is left in the buffer goes nowhere: Python would complain of it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(UNREAD)


def exhausted(error: Optional[BaseException]) -> str:
    """Return which resource of the system ran out and what to do, or "" if the error has another cause."""
    if error is None:
        return ""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and isinstance(error, OSError):
        place = error.filename or "standard output, or a temporary file"
        return f"{place}: {error.strerror}; make room, or write to another disk"
    if number in (errno.EMFILE, errno.ENFILE):
        return "too many open files; raise the limit with `ulimit -n 1024`"
    if number == errno.EAGAIN or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return "no further process or thread can be started; raise the limit (`ulimit -u`), or end others"
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        return "out of memory; raise the limit (`ulimit -v`), or end other programs"
    return exhausted(error.__cause__ or error.__context__)


#: Each command is in the file of its name. Its group in the help is in ``cli/help.py``.
COMMANDS = (
    "check", "compare", "detect", "env", "exec", "explain", "install", "list", "monitor", "report", "repro",
    "run", "shapes", "soak", "submit", "table", "warm",
)  # fmt: skip


def command(name: str) -> click.Command:
    """Import the command of that name."""
    found: click.Command = getattr(import_module(f"rocmprobe.cli.{name}"), f"{name}_command")
    return found


class _Commands(CommandGroup):
    """The group of all commands, which imports the one that runs, and prints one line if a resource of the
    system runs out."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        return command(cmd_name) if cmd_name in COMMANDS else None

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **extra)
        except Exception as error:
            reason = exhausted(error)
            if not reason:
                raise
            try:
                sys.stdout.flush()
            except OSError:
                # Python would try once more at exit, and complain.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            printing.print_stderr(reason)
            sys.exit(INTERNAL)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rocmprobe")
def main() -> None:
    """Find out why convolution fails on this GPU, and which configuration works.

    \b
    Example:
      rocmprobe run
    """


def needs_linux(command: str) -> str:
    """Why ``command`` cannot work here, in one line; "" where it can: on Windows processes cannot be forked,
    and ended as groups, as it needs."""
    if sys.platform != "win32":
        return ""
    return (
        f"`rocmprobe {command}` needs Linux: on Windows start it in WSL; what tests nothing works here, "
        "such as explain, report, compare, env and list"
    )


def describe_holder(device: str) -> str:
    """``run FOLDER (pid N) on DEVICE since HH:MM:SS``; "" where no process has it.

    ``device`` is the name of a lease, such as "cpu" or "GPU 0000:03:00.0".
    """
    from rocmprobe.engine.lease import holder
    from rocmprobe.report.text import one_line

    found = holder(device)
    if found is None:
        return ""
    since = time.strftime("%H:%M:%S", time.localtime(found.since))
    return f"run {one_line(found.run)} (pid {found.pid}) on {device} since {since}"
