"""Progress output of a run, which replaces pytest's own terminal output."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

import pytest
from rich.text import Text

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.cli.base import describe_holder
from rocmprobe.cli.status_line import Status, StatusLine, status_line, uncaptured
from rocmprobe.cli.time_left import TimeLeft
from rocmprobe.engine.budgets import BUDGETS
from rocmprobe.engine.journal import NAME, Appended, run_of
from rocmprobe.engine.lease import leased
from rocmprobe.model.results_file import from_json
from rocmprobe.model.states import STATES
from rocmprobe.text.console import Console
from rocmprobe.text.durations import duration

NORMAL, VERBOSE, QUIET = "normal", "verbose", "quiet"
_STYLES = {"good": "green", "slow": "yellow", "bad": "bold red", "fault": "bold red", "unlearned": "dim"}
_WIDEST_CHECK = max(map(len, CHECKS))
_DIGITS = re.compile(r"\d+")
_LONGEST = 200
#: The status line shows a countdown after this many seconds without an event, or after this fraction of the
#: time limit, whichever is shorter.
_PATIENCE, _SHARE = 3.0, 0.25


class Progress:
    """A pytest plugin that shows the progress of the run in ``folder``."""

    def __init__(self, console: Console, folder: Path, every: float = 10.0, verbosity: str = NORMAL) -> None:
        self._console = uncaptured(console)
        self._every = every
        self._verbosity = verbosity
        self._line = StatusLine()
        self._states: Counter[str] = Counter()
        self._skipped: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        self._shown: set[tuple[str, ...]] = set()
        run = run_of(folder)
        budgets = BUDGETS[run.options.level]
        self._time_left = TimeLeft(budgets.measure, 60 * run.options.minutes or budgets.soak)
        self._planned: Optional[set[str]] = None
        self._targets = run.targets
        self._settings = run.settings
        # Settings for single solvers are left out: their names are long, and most runs do not test them.
        names = [setting.name for rows in run.settings.values() for setting in rows if not setting.solver]
        self._every_solver = run.options.settings == "all"
        self._widest_setting = max(map(len, names))
        self._several_devices = len(run.targets) > 1
        self._widest_target = max(map(len, run.devices))
        # The estimated times were measured on a CPU. On a GPU, first calls also compile kernels.
        self._compiles = not run.simulation and any(device != "cpu" for device in run.devices)
        self._workers = 1
        self._appended = Appended(folder / NAME)
        self._settled: set[str] = set()
        self._running: dict[str, _Running] = {}
        self._waiting: set[str] = set()
        self._lock = threading.RLock()
        # If cases run in xdist's workers, pytest reports only outcomes, so read the journal for other events.
        for record in self._new_records():
            self._take(record)
        # Forget cases that were running when an earlier session of this run died.
        self._running.clear()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._workers = getattr(session.config.option, "numprocesses", None) or 1
        self._line = status_line(self._console, self._every, self._verbosity == QUIET)
        self._watcher.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._follow()
        self._update_line()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found: dict[str, Any] = dict(report.user_properties).get("rocmprobe", {})  # type: ignore[assignment]
        if report.when != "setup" or not found:
            return
        self._follow()
        self._states[found["state"]] += 1
        said = found["evidence"][0] if found["evidence"] and found["state"] != "pass" else ""
        if self._verbosity == VERBOSE:
            if found["state"] == "skipped":
                self._skipped.setdefault((found["check"], said), []).append(found)
            else:
                self._print_case(found["state"], found, said)
        elif STATES[found["state"]].tone in ("bad", "fault"):
            self._print_failure(found, said)

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        self._print_skipped()
        with self._lock:
            self._line.stop()
            self._line = StatusLine()

    def pytest_unconfigure(self) -> None:
        """Restore the terminal, even after a session that did not finish."""
        self._over.set()
        with self._lock:
            self._line.stop()

    def _print_failure(self, found: Mapping[str, Any], said: str) -> None:
        key = (found["device"], found["setting"], found["check"], _DIGITS.sub("#", said))
        if key in self._shown:
            return
        self._shown.add(key)
        state = STATES[found["state"]]
        where = " ".join(
            (*([found["device"]] if self._several_devices else []),
             found["setting"], found["check"], found["dtype"], found["direction"] or "")
        ).rstrip()  # fmt: skip
        known = "known: " if found["state"] == "xfail" else ""
        line = Text(f"{state.symbol} ", _STYLES[state.tone]).append(where, "default")
        line.append(f"  {known}{said}", "dim").append(f"  {found['problem'] or ''}", "dim")
        line.rstrip()
        width = self._console.width - 1 if self._console.is_terminal else _LONGEST
        line.truncate(width, overflow="ellipsis")
        self._print(line)

    def _print_skipped(self) -> None:
        for (check, said), cases in self._skipped.items():
            if len(cases) == 1:
                self._print_case("skipped", cases[0], said)
                continue
            line = Text("[skipped]".ljust(12), style="dim")
            self._print(line.append(f"{len(cases)} cases of {check}  {said}"[:160], style="dim"))

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, self._every / 4)):
            self._follow()
            self._update_line()

    def _update_line(self) -> None:
        with self._lock:
            if not self._over.is_set():
                self._line.update(self._status())

    def _status(self) -> Status:
        known = self._states["xfail"]
        failed = sum(self._states[state.name] for state in STATES.values() if state.tone in ("bad", "fault"))
        if self._planned is None:
            return Status()
        now, left, waiting = self._now()
        done = len(self._planned & self._settled)
        return Status(done, len(self._planned), failed - known, known, now, left, waiting)

    def _now(self) -> tuple[str, str, bool]:
        waiting = next((self._running[case] for case in self._waiting if case in self._running), None)
        if waiting is not None:
            return f"waiting for {self._holder(waiting.question)}", "", True
        left = duration(self._seconds_left(), rough=True)
        running = max(self._running.values(), key=lambda each: each.seconds, default=None)
        if running is None:
            return "", f"{left} left", False
        question = running.question
        now = f"{question['setting']} {question['check']}"
        if running.is_late:
            return now, f"no answer, stopped in {running.seconds_left:.0f} s", False
        return now, f"{left} left", False

    def _follow(self) -> None:
        with self._lock:
            for record in self._new_records():
                self._take(record)
                if record["record"] == "plan":
                    self._announce_plan(set(record["cases"]))

    def _announce_plan(self, planned: set[str]) -> None:
        self._planned = planned
        before = len(planned & self._settled)
        answered = f", {before} of them done before" if before else ""
        left = duration(self._seconds_left(), rough=True)
        if self._compiles:
            took = f"at least {left}, more while kernels for the GPU are compiled"
        else:
            took = f"about {left} if nothing hangs"
        cases = "1 case" if len(planned) == 1 else f"{len(planned)} cases"
        self._print(Text(f"{cases}{answered}; {took}"))

    def _seconds_left(self) -> float:
        left = (self._planned or set()) - self._settled
        # Leave out cases of single solvers, because most runs test them only after a failure.
        sure = left if self._every_solver else {case for case in left if case.split("/")[2] != "solver"}
        return self._time_left.of(sure, self._workers)

    def _take(self, record: Mapping[str, Any]) -> None:
        kind = record["record"]
        if kind == "intent":
            self._running[record["case"]] = _Running(record["question"], record["at"])
        elif kind == "waiting" and record["phase"] == "device":
            if record["left"] is None:
                self._waiting.add(record["case"])
            else:
                self._waiting.discard(record["case"])
        elif kind == "waiting" and record["case"] in self._running:
            self._running[record["case"]].wait_until(record["left"])
        elif kind == "outcome":
            case = record["outcome"]["id"]
            running = self._running.pop(case, None)
            self._waiting.discard(case)
            self._settled.add(case)
            if running is not None and self._planned:
                self._time_left.add_finished(case, record["at"] - running.begun)
        elif kind == "retry":
            self._settled.discard(record["case"])

    def _holder(self, question: Mapping[str, Any]) -> str:
        case = from_json(Case, question)
        setting = next(each for each in self._settings[case.device] if each.name == case.setting)
        name = leased(case, setting, self._targets)
        return describe_holder(name) or f"another run on {name}"

    def _new_records(self) -> list[dict[str, Any]]:
        # The run must continue even if the progress output cannot read the journal.
        try:
            return self._appended.new()
        except OSError:
            return []

    def _print_case(self, state: str, question: Mapping[str, Any], said: str) -> None:
        style = _STYLES[STATES[state].tone]
        columns = [
            question["setting"].ljust(self._widest_setting), question["check"].ljust(_WIDEST_CHECK),
            (question["problem"] or question["dtype"]).ljust(36), (question["direction"] or "").ljust(11),
        ]  # fmt: skip
        if self._several_devices:
            columns.insert(0, question["device"].ljust(self._widest_target))
        line = Text(f"[{state}]".ljust(12), style=style).append("  ".join(columns), style="default")
        line.append(f"  {said}"[:120], style="dim")
        line.rstrip()
        self._print(line)

    def _print(self, line: Text) -> None:
        if self._verbosity == QUIET:
            return
        with self._lock, suppress(BrokenPipeError):
            self._console.print(line, soft_wrap=True)


class _Running:
    def __init__(self, question: Mapping[str, Any], begun: float) -> None:
        self.question = question
        self.begun = begun
        self._since = time.monotonic()
        self._ends: Optional[float] = None

    def wait_until(self, left: float) -> None:
        """Start a countdown of ``left`` seconds for the current step. 0 means no limit."""
        self._since = time.monotonic()
        self._ends = self._since + left if left else None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._since

    @property
    def seconds_left(self) -> float:
        return max(0.0, (self._ends or 0.0) - time.monotonic())

    @property
    def is_late(self) -> bool:
        limit = (self._ends or 0.0) - self._since
        return self._ends is not None and self.seconds > min(_PATIENCE, _SHARE * limit)
