"""Command group, exit codes and error messages of the command line."""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn, Optional

import click

from rocmprobe.model.exit_codes import INTERNAL, INTERRUPTED, NOTHING, UNREAD, USAGE
from rocmprobe.revision import version
from rocmprobe.text import printing


def exit_code_command(command: Callable[..., int]) -> Callable[..., None]:
    """Wrap a command so that its return value becomes the exit code.

    Expected exceptions print one line to stderr, unexpected exceptions a traceback.
    """

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            code = _code(functools.partial(command, *args, **options))
            # Workaround for CPython: after a handled interrupt inside `exec` of a string, as in dataclasses,
            # Python still kills itself with SIGINT at exit. Another `exec` resets this state.
            exec("")  # noqa: S102
            sys.exit(code)
        except BrokenPipeError:
            _exit_unread()
        except SystemExit as end:
            # On a broken pipe, rich exits with 1, which is rocmprobe's exit code for findings.
            if isinstance(end.__context__, BrokenPipeError):
                _exit_unread()
            raise

    return run


def _code(command: Callable[[], int]) -> int:
    try:
        with _interruptible():
            return command()
    except KeyboardInterrupt:
        printing.print_stderr("interrupted")
        return INTERRUPTED
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except Exception as error:
        # Imported late, because most commands do not need the journal, and the import is slow.
        from rocmprobe.engine.journal import CannotWrite
        from rocmprobe.model.results import BadInput, NothingToTest

        for kind, code in ((BadInput, USAGE), (NothingToTest, NOTHING), (CannotWrite, INTERNAL)):
            if isinstance(error, kind):
                printing.print_stderr(error)
                return code
        if exhausted(error):
            raise
        # Python itself would exit with 1, which is rocmprobe's exit code for findings.
        printing.print_traceback()
        return INTERNAL


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt in the ``with`` block, unless it is ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before not in (signal.SIG_IGN, None):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _exit_unread() -> NoReturn:
    # Discard the buffer, because Python would flush it at exit and report the broken pipe again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(UNREAD)


def exhausted(error: Optional[BaseException]) -> str:
    """Return the system resource that ran out and a remedy, or "" if the error has another cause."""
    if error is None:
        return ""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and isinstance(error, OSError):
        place = error.filename or "standard output, or a temporary file"
        return f"{place}: {error.strerror}; free some space, or write to another disk"
    if number in (errno.EMFILE, errno.ENFILE):
        return "too many open files; raise the limit with `ulimit -n 1024`"
    if number == errno.EAGAIN or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return "no more processes or threads can start; raise the limit (`ulimit -u`), or end other programs"
    if number == errno.ENOMEM or isinstance(error, MemoryError):
        return "out of memory; raise the limit (`ulimit -v`), or end other programs"
    return exhausted(error.__cause__ or error.__context__)


#: Commands with one line of help, in groups, in the order in which a user needs them. Each command is in the
#: module with the same name. The lines are repeated here, because the import of all commands is slow.
GROUPS = {
    "Start": {
        "install": "Print the commands that install a PyTorch for this GPU.",
        "detect": "Show the GPU, driver, ROCm and PyTorch of this machine.",
        "run": "Test this GPU, recommend a configuration, write a report.",
    },
    "Use": {
        "exec": "Run your program, unchanged, with the recommended configuration.",
        "env": "Print the recommended configuration as shell variables.",
        "check": "Check in one line and 50 seconds that the configuration works.",
    },
    "Understand": {
        "explain": "Say why a program failed, from its log, or print what a run found.",
        "compare": "Show what changed between two runs, or many runs in one table.",
        "report": "Write the report of a run again, or the text of an issue.",
        "repro": "Print a torch script that repeats one case, for a bug report.",
    },
    "Advanced": {
        "shapes": "Record the convolutions that your program runs.",
        "monitor": "Show the sensors of every AMD GPU, live.",
        "list": "Print a table: settings, checks, GPUs, causes, machines, ...",
    },
}
COMMANDS = tuple(sorted(name for commands in GROUPS.values() for name in commands))


def command(name: str) -> click.Command:
    """Import and return the command ``name``."""
    found: click.Command = getattr(import_module(f"rocmprobe.cli.{name}"), f"{name}_command")
    return found


class _Commands(click.Group):
    """The group of all commands, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Optional[click.Command]:
        return command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), line) for name, line in commands.items()])

    def main(self, *args: Any, **extra: Any) -> Any:
        printing.ready()
        try:
            return super().main(*args, **extra)
        except Exception as error:
            reason = exhausted(error)
            if not reason:
                raise
            try:
                sys.stdout.flush()
            except OSError:
                # Discard the buffer, because Python would flush again at exit and report an error.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            printing.print_stderr(reason)
            sys.exit(INTERNAL)


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        printing.say(f"rocmprobe {version()}")
        context.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="Show the version and exit.")  # fmt: skip
def main() -> None:
    """Find out why convolution fails on this GPU, and which configuration works.

    \b
    Example:
      rocmprobe run
    """


def needs_linux(command: str) -> str:
    """Return an error message if ``command`` cannot run on this system, or "" if it can."""
    if sys.platform != "win32":
        return ""
    # A test of a device needs forks and process groups, which Windows does not have.
    return (
        f"`rocmprobe {command}` needs Linux; on Windows, start it in WSL. Commands that do not test the "
        "GPU also work on Windows, for example explain, report, compare, env and list"
    )


def describe_holder(device: str) -> str:
    """Return ``run FOLDER (pid N) on DEVICE since HH:MM:SS``, or "" if no run uses the device.

    ``device`` is the name of a lease, such as "cpu" or "GPU 0000:03:00.0".
    """
    from rocmprobe.engine.lease import holder
    from rocmprobe.text.plain_text import one_line

    found = holder(device)
    if found is None:
        return ""
    since = time.strftime("%H:%M:%S", time.localtime(found.since))
    return f"run {one_line(found.run)} (pid {found.pid}) on {device} since {since}"
