"""Progress of a run: a bar on a terminal, a line every ten seconds elsewhere, and a line for each failure.

The progress is read from the journal, so it is the same for cases in this process and in xdist's workers.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Optional

import rich.progress
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.table import Column
from rich.text import Text

from rocmprobe.checks.tools.case import Case
from rocmprobe.cli.base import describe_holder
from rocmprobe.cli.time_left import TimeLeft
from rocmprobe.engine import journal
from rocmprobe.engine.lease import leased
from rocmprobe.engine.run_state import Running, RunState
from rocmprobe.engine.setup import setup_of
from rocmprobe.judge.failures import counts
from rocmprobe.judge.judgement import Expectations
from rocmprobe.model.results import Outcome
from rocmprobe.model.states import STATES
from rocmprobe.text.console import Console
from rocmprobe.text.readable import duration

_STYLES = {"good": "green", "slow": "yellow", "bad": "bold red", "fault": "bold red", "unlearned": "dim"}
#: Maximum length of a printed line, if the output is not a terminal.
_LONGEST = 200
#: A plan that adds no more cases than this is not printed.
_FEW = 20
#: Results of pytest whose number is shown.
_FAILED = ("failed", "xfailed", "error")
#: The countdown begins after this many seconds without an event, or after this fraction of the time limit.
_PATIENCE, _SHARE = 3.0, 0.25


class RunConsole(Console):
    """A console that ignores a broken pipe, so that the run continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def _waited(running: Running) -> float:
    return time.monotonic() - running.since


def _is_late(running: Running) -> bool:
    return running.limit > 0 and _waited(running) > min(_PATIENCE, _SHARE * running.limit)


class Progress:
    """Display of the run in ``folder`` during a ``with`` block."""

    def __init__(
        self, folder: Path, verbose: bool = False, console: Optional[Console] = None, every: float = 10.0
    ) -> None:
        self._console = console or RunConsole()
        self._verbose = verbose
        self._every = every
        self._run = journal.run_of(folder)
        self._appended = journal.Appended(folder / journal.NAME)
        self._state = RunState()
        self._setup = setup_of(self._run, folder)
        self._time_left = TimeLeft(self._setup.budgets)
        self._settled: dict[str, Outcome] = {}
        self._skipped: Counter[tuple[str, str]] = Counter()
        self._failures: set[tuple[str, ...]] = set()
        self._failing: set[str] = set()  # devices on which a convolution fails
        self._printed = time.monotonic()
        self._read()
        self._expectations = Expectations(self._run.machine, self._state.baseline)
        for outcome in self._state.outcomes.values():
            self._add(outcome)
        self._bar: Optional[rich.progress.Progress] = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            status = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            self._bar = rich.progress.Progress(
                BarColumn(bar_width=max(8, min(30, self._console.width // 6))),
                MofNCompleteColumn(),
                TextColumn("{task.description}", markup=False, table_column=status),
                console=self._console,
                auto_refresh=False,  # each refresh by rich's own thread would disturb a measurement
                transient=True,
                expand=True,
            )
            self._bar.add_task("starting", total=None)
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._watcher.join()
        if self._bar:
            self._bar.stop()
        self._follow()
        for (check, why), count in self._skipped.items():
            self._print(
                f"{'[skipped]':<11} {count} {'case' if count == 1 else 'cases'} of {check}  {why}", "dim"
            )

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, self._every / 4)):
            self._follow()
            if self._state.current:
                self._show_status()

    def _follow(self) -> None:
        state = self._state
        planned, finished, waiting = len(state.current), len(state.outcomes), self._waiting()
        answer = state.answer
        self._read()
        # The ladder adds its cases one by one.
        if len(state.current) > planned + _FEW or (state.current and not planned):
            self._show_plan()
        for outcome in [*state.outcomes.values()][finished:]:
            self._show_outcome(self._add(outcome))
        if state.answer != answer:
            self._print(f"So far: {state.answer}", "bold")
        if self._waiting() != waiting:
            self._printed = 0.0  # print the next status at once

    def _read(self) -> None:
        # The run must continue even if this display cannot read the journal.
        with suppress(OSError):
            for record in self._appended.new():
                record.update(self._state)

    def _waiting(self) -> Optional[Case]:
        return next((each.case for each in self._state.running.values() if each.needs_device), None)

    def _add(self, outcome: Outcome) -> Outcome:
        marked = self._settled[outcome.id] = self._expectations.marked(outcome)
        if outcome.id in self._state.seconds:
            self._time_left.add_finished(outcome.id, outcome.state, self._state.seconds[outcome.id])
        if marked.fails and marked.check == "convolution":
            self._failing.add(marked.device)
        return marked

    def _seconds_left(self) -> tuple[float, bool]:
        left = filter(self._is_certain, self._state.current - self._settled.keys())
        running = self._state.running
        hanging = {case: time.time() - each.begun for case, each in running.items() if _is_late(each)}
        return self._time_left.of(left, hanging, len(self._run.targets))

    def _is_certain(self, case: str) -> bool:
        """Return True unless the case runs only after a failure and no convolution has failed."""
        device, name, *_ = case.split("/")
        setting = self._setup.named(device, name)
        conditional = (setting.solver or setting.by_name) and self._run.options.settings != "all"
        return not conditional or device in self._failing

    def _show_plan(self) -> None:
        count, before = len(self._state.current), len(self._state.current & self._settled.keys())
        done = f", {before} of them done before" if before else ""
        left = duration(self._seconds_left()[0], rough=True)
        # The guesses are times on a CPU. On a GPU, first calls also compile kernels.
        if self._run.simulation or set(self._run.devices) == {"cpu"}:
            took = f"about {left} if nothing hangs"
        else:
            took = f"at least {left}, more while kernels for the GPU are compiled"
        self._print(f"{count} {'case' if count == 1 else 'cases'}{done}; {took}")

    def _show_status(self) -> None:
        outcomes = [self._settled[case] for case in self._state.current & self._settled.keys()]
        failed = [f"{row.number} {row.words}" for row in counts(outcomes) if row.result in _FAILED]
        left, now = self._now()
        words = ", ".join(filter(None, [*failed, left]))
        status = ": ".join(filter(None, (words, now)))
        if self._bar:
            task = self._bar.task_ids[0]
            self._bar.update(
                task, completed=len(outcomes), total=len(self._state.current), description=status
            )
            self._bar.refresh()
        elif time.monotonic() - self._printed >= self._every:
            self._printed = time.monotonic()
            self._print(f"{len(outcomes)} of {len(self._state.current)}, {status}")

    def _now(self) -> tuple[str, str]:
        """Return the time left and the current step, in words."""
        waiting = self._waiting()
        if waiting:
            setting = self._setup.setting(waiting)
            device = leased(waiting, setting, self._run.targets)
            return "", f"waiting for {describe_holder(device) or f'another run on {device}'}"
        seconds, with_hangs = self._seconds_left()
        left = f"{'at most ' if with_hangs else ''}{duration(seconds, rough=True)} left"
        running = max(self._state.running.values(), key=_waited, default=None)
        if running is None:
            return (left, "") if seconds else ("", "writing the report")
        if _is_late(running):
            doing = "compiling" if running.compiles else "no answer"
            left = f"{doing}, stopped in {max(0.0, running.limit - _waited(running)):.0f} s, {left}"
        return left, f"{running.case.setting} {running.case.check}"

    def _show_outcome(self, outcome: Outcome) -> None:
        why = outcome.evidence[0] if outcome.evidence and outcome.state != "pass" else ""
        device = f"{outcome.device} " if len(self._run.targets) > 1 else ""
        state, direction = STATES[outcome.state], outcome.direction or ""
        if self._verbose and outcome.state == "skipped":
            self._skipped[outcome.check, why] += 1
        elif self._verbose:
            subject = f"{outcome.check:<18}  {outcome.problem or outcome.dtype:<36}  {direction:<11}"
            where = f"{device}{outcome.setting:<18}  {subject}"
            self._print(f"{f'[{outcome.state}]':<11} ", _STYLES[state.tone], where, f"  {why[:118]}")
        elif state.tone in ("bad", "fault"):
            kind = (outcome.device, outcome.setting, outcome.check, re.sub(r"\d+", "#", why))
            if kind in self._failures:
                return
            self._failures.add(kind)
            where = f"{device}{outcome.setting} {outcome.check} {outcome.dtype} {direction}".rstrip()
            known = "known: " if outcome.state == "xfail" else ""
            detail = f"  {known}{why}  {outcome.problem or ''}"
            self._print(f"{state.symbol} ", _STYLES[state.tone], where, detail)

    def _print(self, text: str, style: str = "", where: str = "", detail: str = "") -> None:
        line = Text(text, style).append(where, "default").append(detail, "dim")
        line.rstrip()
        if not self._verbose:
            width = self._console.width - 1 if self._console.is_terminal else _LONGEST
            line.truncate(width, overflow="ellipsis")
        self._console.print(line, soft_wrap=True)
