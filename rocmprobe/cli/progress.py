"""What a user sees of a run, in place of pytest's own terminal output.

An estimate at the start, a line for each question as it is settled, one for those that are running
where nothing was printed for a while, and the time used at the end.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case, trial_key
from rocmprobe.cli.base import describe_holder
from rocmprobe.engine.journal import NAME, Appended, run_of
from rocmprobe.engine.lease import leased
from rocmprobe.engine.options import BUDGETS
from rocmprobe.model.results_file import from_json
from rocmprobe.model.states import STATES
from rocmprobe.text.console import Console

_STYLES = {"good": "green", "slow": "yellow", "bad": "bold red", "fault": "bold red", "unlearned": "dim"}
_WIDEST_CHECK = max(map(len, CHECKS))
#: Seconds that a run takes before more is said of how long it will be, and by what factor it must be longer.
_WORTH_SAYING, _MUCH_LONGER = 60.0, 2.0
#: Seconds of answers before more is concluded from them: the first ones pay for the start of the processes.
_ENOUGH = 20.0
#: Seconds of the fork server and of a child (some are spawned, and import torch).
_SERVER, _CHILD = 4.0, 1.5


class Progress:
    """A pytest plugin for the run in ``folder``; prints to ``console`` and counts the states.

    After ``silence`` seconds without a line it says what is running. It reads that in the journal, since
    xdist's workers ask and this process only hears what is settled.
    """

    def __init__(self, console: Console, folder: Path, silence: float = 10.0) -> None:
        self._console = uncaptured(console)
        self._silence = silence
        self._states: Counter[str] = Counter()
        self._skipped: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        run = run_of(folder)
        self._time_left = TimeLeft(BUDGETS[run.options.level].measure)
        self._planned: set[str] = set()
        self._promised = float("inf")
        self._summed_up = float("-inf")
        self._targets = run.targets
        self._settings = run.settings
        # Names of solvers are long, and most runs ask none.
        names = [setting.name for rows in run.settings.values() for setting in rows if not setting.solver]
        self._every_solver = run.options.settings == "all"
        self._widest_setting = max(map(len, names))
        self._several_devices = len(run.targets) > 1
        self._widest_target = max(map(len, run.devices))
        self._several_drivers = any(len(target.drivers) > 1 for target in run.targets)
        # The guesses are from a CPU: they hold no time for a GPU's first calls, which compile.
        self._compiles = not run.simulation and any(device != "cpu" for device in run.devices)
        self._workers = 1
        self._appended = Appended(folder / NAME)
        self._settled: set[str] = set()
        self._running: dict[str, _Running] = {}
        #: Cases that wait until other processes let go of a device, and whether that was said.
        self._waiting: dict[str, bool] = {}
        self._lock = threading.RLock()
        for record in self._new_records():
            self._take(record)
        # What was in flight when a run died is not running now.
        self._running.clear()
        self._started = self._spoke = time.monotonic()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._workers = getattr(session.config.option, "numprocesses", None) or 1
        self._watcher.start()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._follow()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found: dict[str, Any] = dict(report.user_properties).get("rocmprobe", {})  # type: ignore[assignment]
        if report.when != "setup" or not found:
            return
        self._follow()
        self._states[found["state"]] += 1
        said = found["evidence"][0] if found["evidence"] and found["state"] != "pass" else ""
        if found["state"] == "skipped":
            self._skipped.setdefault((found["check"], said), []).append(found)
        else:
            self._say(found["state"], found, said)

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        self._say_skipped()
        if self._states:
            counts = ", ".join(f"{count} {state}" for state, count in self._states.most_common())
            self._print(Text(f"{counts}; {time.monotonic() - self._started:.0f} s"))

    def _say_skipped(self) -> None:
        """What there was no reason to ask, such as each solver alone where nothing fails: one line for all
        that have one reason."""
        for (check, said), questions in self._skipped.items():
            if len(questions) == 1:
                self._say("skipped", questions[0], said)
                continue
            line = Text("[skipped]".ljust(12), style="dim")
            self._print(line.append(f"{len(questions)} questions of {check}  {said}"[:160], style="dim"))

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, self._silence / 4)):
            with self._lock:
                self._follow()
                silent = time.monotonic() - self._spoke >= self._silence
                for case, running in self._running.items():
                    if case in self._waiting:
                        if silent or not self._waiting[case]:
                            self._waiting[case] = True
                            self._print(Text(f"waiting for {self._holders(running.question)}"))
                    elif silent and self._planned:  # a worker may begin before another writes the plan
                        self._say("running", running.question, str(running))

    def _follow(self) -> None:
        """Take over what the journal says so far, and announce its plan."""
        with self._lock:
            answered = len(self._settled)
            for record in self._new_records():
                self._take(record)
                if record["record"] == "plan":
                    self._announce_plan(set(record["cases"]))
            if len(self._settled) > answered and self._planned:
                self._announce_delay()

    def _announce_plan(self, planned: set[str]) -> None:
        self._planned = planned
        before = len(planned & self._settled)
        answered = f", {before} of them answered before" if before else ""
        seconds = self._seconds_left()
        self._promised = time.monotonic() + seconds
        said = f"{len(planned)} questions to this machine{answered}; "
        if self._compiles:
            said += f"at least {seconds:.0f} s, more while kernels for the GPU are compiled"
        else:
            said += f"about {seconds:.0f} s if nothing hangs"
        self._print(Text(said))

    def _seconds_left(self) -> float:
        left = self._planned - self._settled
        # Solvers are run alone where something fails, mostly.
        sure = left if self._every_solver else {case for case in left if case.split("/")[3] != "solver"}
        return self._time_left.of(sure, self._workers)

    def _announce_delay(self) -> None:
        """Say so where it takes much longer than was said: first calls compile, and machines differ."""
        now = time.monotonic()
        # Not at each outcome: what is left is summed up, which takes long where it is thousands.
        if self._time_left.spent < _ENOUGH or now - self._summed_up < 1:
            return
        seconds, self._summed_up = self._seconds_left(), now
        if seconds > _WORTH_SAYING and seconds > _MUCH_LONGER * (self._promised - now):
            self._promised = now + seconds
            answered = len(self._planned & self._settled)
            said = f"{answered} of {len(self._planned)} answered in {now - self._started:.0f} s"
            self._print(Text(f"{said}; about {seconds / 60:.0f} min more"))

    def _take(self, record: Mapping[str, Any]) -> None:
        kind = record["record"]
        if kind == "intent":
            self._running[record["case"]] = _Running(record["question"], record["at"])
        elif kind == "waiting" and record["phase"] == "device":
            if record["left"] is None:
                self._waiting[record["case"]] = False
            else:
                self._waiting.pop(record["case"], None)
        elif kind == "waiting" and record["case"] in self._running:
            self._running[record["case"]].waits(record["phase"], record["left"])
        elif kind == "outcome":
            case = record["outcome"]["id"]
            running = self._running.pop(case, None)
            self._waiting.pop(case, None)
            self._settled.add(case)
            if running is not None and self._planned:
                self._time_left.answered(case, record["at"] - running.begun)
        elif kind == "retry":
            self._settled.discard(record["case"])

    def _holders(self, question: Mapping[str, Any]) -> str:
        """Name the other processes that hold what a question waits for."""
        case = from_json(Case, question)
        setting = next(each for each in self._settings[case.device] if each.name == case.setting)
        names = leased(case, setting, self._targets)
        return ", ".join(filter(None, map(describe_holder, names))) or f"another run on {', '.join(names)}"

    def _new_records(self) -> list[dict[str, Any]]:
        # Who only watches does not end the run for a journal that cannot be read.
        try:
            return self._appended.new()
        except OSError:
            return []

    def _say(self, state: str, question: Mapping[str, Any], said: str) -> None:
        style = _STYLES[STATES[state].tone] if state in STATES else "dim"
        columns = [
            question["setting"].ljust(self._widest_setting), question["check"].ljust(_WIDEST_CHECK),
            (question["problem"] or question["dtype"]).ljust(36), (question["direction"] or "").ljust(11),
        ]  # fmt: skip
        if self._several_drivers:
            columns.insert(0, question["driver"].ljust(5))
        if self._several_devices:
            columns.insert(0, question["device"].ljust(self._widest_target))
        line = Text(f"[{state}]".ljust(12), style=style).append("  ".join(columns), style="default")
        line.append(f"  {said}"[:120], style="dim")
        line.rstrip()
        self._print(line)

    def _print(self, line: Text) -> None:
        with self._lock:
            with suppress(BrokenPipeError):
                self._console.print(line, soft_wrap=True)
            self._spoke = time.monotonic()


class RunConsole(Console):
    """A run whose output nobody reads any more goes on in silence; rich would exit."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def uncaptured(console: Console) -> Console:
    """``console`` on a descriptor of its own: pytest takes stdout away while a case runs, which
    is when there is something to say of those that are running."""
    try:
        descriptor = os.dup(console.file.fileno())
    except (OSError, ValueError):
        return console
    stream = os.fdopen(descriptor, "w", encoding=console.encoding, errors="backslashreplace")
    return RunConsole(file=stream, width=console.width)


class _Running:
    """A question in flight, and what is known of how long it may stay so."""

    def __init__(self, question: Mapping[str, Any], begun: float) -> None:
        """``begun``: when, as the journal counts seconds."""
        self.question = question
        self.begun = begun
        self._since = time.monotonic()
        self._phase = ""
        self._ends = 0.0

    def waits(self, phase: str, left: float) -> None:
        self._phase, self._ends = phase, time.monotonic() + left

    def __str__(self) -> str:
        now = time.monotonic()
        budget = f", silent in phase {self._phase}, given up in {max(0.0, self._ends - now):.0f} s"
        return f"for {now - self._since:.0f} s" + (budget if self._phase and self._ends > now else "")


class TimeLeft:
    """Seconds that cases take. ``measure`` is for the rounds of a throughput question.

    What was answered predicts the rest: a check takes what it took so far, and one that has not run yet
    is as much slower than the guess as those that were. On a GPU most of it is compilation.
    """

    def __init__(self, measure: float) -> None:
        self._measure = measure
        self._answered: Counter[str] = Counter()
        self._taken: dict[str, float] = {}

    def answered(self, case_id: str, seconds: float) -> None:
        """Take over what a case took, from the first word of it to its outcome."""
        check = _check(case_id)
        self._answered[check] += 1
        self._taken[check] = self._taken.get(check, 0.0) + seconds

    @property
    def spent(self) -> float:
        """Seconds that the answered cases took together."""
        return sum(self._taken.values())

    def of(self, case_ids: Iterable[str], workers: int = 1) -> float:
        """Seconds that these cases take where each answers, among ``workers`` of a device each."""
        seconds = 0.0
        children: set[str] = set()
        asked: Counter[str] = Counter()
        for case_id in case_ids:
            children.add(trial_key(case_id))
            asked[_check(case_id)] += 1
        slower = self._slower()
        for check, count in asked.items():
            answered = self._answered[check]
            # A soak lasts as long on a slow machine.
            guess = self._guess(check) * (1.0 if CHECKS[check].once else slower)
            each = self._taken[check] / answered if answered else guess
            seconds += each * count
        started = bool(self._answered)
        # What was answered has its share of the children's starts in it.
        seconds += 0.0 if started else _CHILD * len(children)
        return (0.0 if started else _SERVER) + seconds / max(1, min(workers, len(children)))

    def _guess(self, check: str) -> float:
        return CHECKS[check].seconds + (self._measure if check == "throughput" else 0.0)

    def _slower(self) -> float:
        """How many times slower than guessed the answered questions were; never less than once."""
        guessed = sum(self._guess(check) * count for check, count in self._answered.items())
        return max(1.0, self.spent / guessed) if guessed else 1.0


def _check(case_id: str) -> str:
    return case_id.split("/")[3]
