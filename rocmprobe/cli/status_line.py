"""Status line of a run's progress: live on a terminal, otherwise printed at intervals."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Optional

from rich.console import ConsoleDimensions
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from rocmprobe.text.console import Console


@dataclass(frozen=True)
class Status:
    """Progress of a run.

    ``planned`` is the number of cases, or None while the number is unknown.
    """

    done: int = 0
    planned: Optional[int] = None
    failed: int = 0
    known: int = 0
    now: str = "starting"
    left: str = ""
    waiting: bool = False

    @property
    def failures(self) -> str:
        known = f"{self.known} known failure{'s' if self.known > 1 else ''}" if self.known else ""
        failed = f"{self.failed} failed" if self.failed else ""
        return ", ".join(filter(None, (failed, known)))


class StatusLine:
    """A status line that shows nothing, and the base class of visible status lines."""

    def update(self, status: Status) -> None:
        """Show ``status``. The base class does nothing."""

    def stop(self) -> None:
        """Stop showing the status. The base class does nothing."""


class LiveLine(StatusLine):
    """A progress bar at the bottom of a terminal, below other output."""

    def __init__(self, console: Console) -> None:
        cropped = Column(ratio=1, no_wrap=True, overflow="crop")
        # rich's refresh thread is off, because each refresh would disturb a measurement.
        self._progress = Progress(
            BarColumn(bar_width=max(8, min(30, console.width // 6))),
            TextColumn("{task.fields[count]}", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[failures]}", "red", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True, overflow="crop")),
            TextColumn("{task.fields[now]}", "dim", markup=False, table_column=cropped),
            console=console, auto_refresh=False, transient=True, expand=True,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._task = self._progress.add_task("", total=None, count="", failures="", left="", now="starting")
        self._progress.start()

    def update(self, status: Status) -> None:
        planned = status.planned
        self._progress.update(
            self._task, completed=status.done, total=planned, now=status.now, left=status.left,
            failures=status.failures, count="" if planned is None else f"{status.done}/{planned}",
            refresh=True,
        )  # fmt: skip

    def stop(self) -> None:
        self._progress.stop()


class PlainLines(StatusLine):
    """A status line that is printed every ``every`` seconds, for output that is not a terminal."""

    def __init__(self, console: Console, every: float) -> None:
        self._console = console
        self._every = every
        self._printed = time.monotonic()
        self._waited = False

    def update(self, status: Status) -> None:
        due = time.monotonic() - self._printed >= self._every or status.waiting > self._waited
        self._waited = status.waiting
        if not due:
            return
        self._printed = time.monotonic()
        count = f"{status.done} of {status.planned}" if status.planned is not None else ""
        words = ", ".join(filter(None, (count, status.failures, status.left)))
        with suppress(BrokenPipeError):
            self._console.print(Text(": ".join(filter(None, (words, status.now)))), soft_wrap=True)


class RunConsole(Console):
    """A console that ignores a broken pipe, so that the run continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True

    @property
    def size(self) -> ConsoleDimensions:
        """Size of the terminal to which this console writes."""
        # rich would use the standard streams, which pytest replaces while a case runs.
        try:
            columns, rows = os.get_terminal_size(self.file.fileno())
        except (OSError, ValueError):
            return super().size
        return ConsoleDimensions(columns, rows) if columns else super().size

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size


def uncaptured(console: Console) -> Console:
    """Return a copy of ``console`` that still prints while pytest captures stdout.

    Return ``console`` itself if its file has no descriptor.
    """
    try:
        descriptor = os.dup(console.file.fileno())
    except (OSError, ValueError):
        return console
    stream = os.fdopen(descriptor, "w", encoding=console.encoding, errors="backslashreplace")
    if os.isatty(descriptor):
        return RunConsole(file=stream)
    return RunConsole(file=stream, width=console.width)


def status_line(console: Console, every: float, quiet: bool) -> StatusLine:
    """Return a live line on a terminal, plain lines elsewhere, or an invisible line if ``quiet``."""
    if quiet:
        return StatusLine()
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveLine(console) if live else PlainLines(console, every)
