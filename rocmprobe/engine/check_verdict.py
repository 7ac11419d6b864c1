"""Verdict of ``rocmprobe check``: one state and one line of text."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

import msgspec

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.budgets import BUDGETS
from rocmprobe.engine.liveness import COMPILING
from rocmprobe.engine.run_state import RunState
from rocmprobe.model.exit_codes import FINDINGS, INTERNAL, NOTHING, OK, UNKNOWN, WEDGED
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import Outcome
from rocmprobe.revision import version
from rocmprobe.text.plain_text import one_line

#: Maximum length of ``Verdict.verdict`` in characters.
_LONGEST = 300
#: A first call counts as hanging if it takes longer than 3 times its duration in the results, plus 5 seconds.
_USUAL_TIMES, _USUAL_MORE = 3.0, 5.0
#: If a starting worker uses no CPU time and reads no file for too long, the worker counts as hanging. The
#: limit is 5 seconds or a quarter of the case's duration so far, whichever is shorter.
_READING, _READING_SHARE = 5.0, 0.25
#: Causes of failures for lack of memory, in the machine or on the GPU. They do not prove a fault of the GPU.
_MEMORY = ("oom-kill", "out-of-memory")


class Facts(msgspec.Struct, frozen=True, tag_field="record", tag="facts"):
    """Subject of a check: device, setting, cases and limits.

    ``results`` is the path of the results with the recommended setting.
    ``usual`` has the seconds of each case's first call in these results, keyed by case id, in the order of
    the plan. ``guardian`` is the process that removes temporary files.
    """

    simulated: Optional[str] = None
    results: Optional[str] = None
    setting: Optional[str] = None
    device: Optional[str] = None
    gpu: Optional[str] = None
    native_isa: Optional[str] = None
    effective_isa: Optional[str] = None
    usual: Mapping[str, Optional[float]] = {}
    guardian: int = 0

    def update(self, progress: CheckProgress) -> None:
        progress.facts = self


class Over(msgspec.Struct, frozen=True, tag_field="record", tag="over"):
    """The last record of a check. The fields say why it ended without a failed case, if they are not empty.

    ``state`` and ``reason`` are as in ``Verdict``. ``usage`` is the message about wrong usage.
    """

    state: str = ""
    reason: Optional[str] = None
    text: str = ""
    usage: str = ""
    traceback: str = ""

    def update(self, progress: CheckProgress) -> None:
        progress.over, progress.ended = self, "over"


@dataclass
class CheckProgress(RunState):
    """The state of a check. All its times are monotonic.

    ``ended`` is the reason why the check ended: "over" (the process with the cases finished), "time" (the
    time limit passed), "signal" or "died". ``unkillable`` is True if a process survived SIGKILL.
    ``last_read`` is the time at which a starting worker last read a file, and ``last_outcome`` the time of
    the last outcome. ``total`` is the duration of the check in seconds.
    """

    facts: Facts = field(default_factory=Facts)
    over: Over = field(default_factory=Over)
    ended: str = ""
    unkillable: bool = False
    last_read: Optional[float] = None
    last_outcome: float = 0.0
    total: float = 0.0

    def start(self, case: Case, at: float) -> None:
        # A clock that is set during the check must not make a slow worker look like a hanging one.
        super().start(case, time.monotonic())

    def settle(self, outcome: Outcome, at: float) -> None:
        self.last_outcome = time.monotonic()
        super().settle(outcome, self.last_outcome)

    @property
    def last(self) -> Optional[Outcome]:
        """The last outcome, or None."""
        return next(reversed(self.outcomes.values()), None)

    @property
    def case(self) -> str:
        """Id of the case that runs, or ""."""
        return next(iter(self.running), "")


@dataclass(frozen=True)
class Verdict:
    """The result of a check, as ``check --json`` prints it.

    ``wedged`` (True if a process could not be killed) is not printed. ``state`` is "ok", "problem",
    "unknown", "busy" or "nothing". ``reason`` is "hang", "crash", "wrong", "error", "time", "busy",
    "no-device", "no-torch", "internal" or None.
    """

    state: str
    verdict: str
    setting: Optional[str]
    device: Optional[str]
    gpu: Optional[str]
    native_isa: Optional[str]
    effective_isa: Optional[str]
    reason: Optional[str]
    failed: tuple[str, ...]
    checked: tuple[Mapping[str, Any], ...]
    not_checked: tuple[str, ...]
    seconds: float
    budget: float
    results: Optional[str]
    simulated: Optional[str]
    started: str
    rocmprobe: str = field(default_factory=version)
    wedged: bool = False

    def as_json(self) -> dict[str, Any]:
        data = asdict(self)
        del data["wedged"]
        return data


def make_verdict(progress: CheckProgress, budget: float, started: str) -> Verdict:
    """Return the verdict. ``budget`` is the time limit in seconds, ``started`` an ISO 8601 time."""
    state, reason, text, failed = _state(progress, budget)
    facts, outcomes = progress.facts, progress.outcomes
    # GitHub runs "##[" as a command, even in the middle of a line.
    line = one_line(f"{state}: {text}".replace("##[", "# #["), _LONGEST).encode("ascii", "replace").decode()
    shown = ("id", "check", "dtype", "direction", "state")
    return Verdict(
        state, line, facts.setting, facts.device, facts.gpu, facts.native_isa, facts.effective_isa, reason,
        failed,
        tuple(
            {
                **{name: getattr(outcome, name) for name in shown},
                "seconds": round(progress.seconds.get(outcome.id, 0.0), 3),
            }
            for outcome in outcomes.values()
        ),
        tuple(case for case in facts.usual if case not in outcomes or outcomes[case].state == "n/a"),
        round(progress.total, 3), budget, facts.results, facts.simulated, started,
        wedged=_is_wedged(progress),
    )  # fmt: skip


def exit_code(verdict: Verdict) -> int:
    """Return the exit code of a verdict."""
    if verdict.wedged:
        return WEDGED
    if verdict.reason == "internal":
        return INTERNAL
    return {"ok": OK, "problem": FINDINGS, "nothing": NOTHING}.get(verdict.state, UNKNOWN)


def _state(progress: CheckProgress, budget: float) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    """Return (state, reason, explanation, ids of failed cases)."""
    last = progress.last
    if last and last.blocks:
        return _failed(progress, last)
    if _is_wedged(progress):
        what = _what(progress, progress.case)
        text = f"hang: a process cannot be killed during {what}; restart the machine"
        return "problem", "hang", text, tuple(filter(None, (progress.case or (last.id if last else ""),)))
    over = progress.over
    if over.state:
        return over.state, over.reason, f"{over.text}{_simulated(progress)}", ()
    if progress.ended == "over":
        return _completed(progress)
    if progress.ended == "died":
        return "unknown", "internal", f"rocmprobe itself died in {_what(progress, progress.case)}", ()
    why = "ended by a signal" if progress.ended == "signal" else f"out of time (budget {budget:g} s)"
    planned = len(progress.facts.usual)
    correct = sum(outcome.works for outcome in progress.outcomes.values())
    so_far = f", {correct} of {planned} checks correct so far" if planned else ""
    return "unknown", "time", f"time: {why} in {_what(progress, progress.case)}{so_far}", ()


def _completed(progress: CheckProgress) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    outcomes = list(progress.outcomes.values())
    correct = [outcome for outcome in outcomes if outcome.works]
    if not any(outcome.check == "convolution" for outcome in correct):
        reasons = (outcome.evidence[0] for outcome in outcomes if outcome.state == "n/a" and outcome.evidence)
        why = next(reasons, "no check ran")
        return "unknown", "error", f"{_under(progress)}: convolution has no result: {why}", ()
    return "ok", None, f"{_under(progress)}: {len(correct)} checks correct in {progress.total:.1f} s", ()


def _is_wedged(progress: CheckProgress) -> bool:
    return progress.unkillable or bool(progress.wedged)


def _failed(progress: CheckProgress, outcome: Outcome) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    state = outcome.state
    what = _what(progress, outcome.id)
    why = outcome.evidence[0] if outcome.evidence else ""
    if state == "probe-error":
        return "unknown", "internal", f"rocmprobe itself failed in {what}: {why}", ()
    if outcome.failure in _MEMORY:
        return "unknown", "error", f"not enough memory for {what}: {why}", ()
    if outcome.failure == "torch-unusable":
        return "problem", "error", f"error in {what}: {why}", (outcome.id,)
    if state == "hang" and not _proven(progress, outcome):
        return "unknown", "time", f"time: still {_doing(outcome)} in {what}: {why}", ()
    reason = state if state in ("hang", "crash", "wrong") else "error"
    if state == "flaky":
        why = f"intermittent: {why}"
    return "problem", reason, f"{reason} in {what}: {why}", (outcome.id,)


def _proven(progress: CheckProgress, outcome: Outcome) -> bool:
    """Return True if a worker that timed out certainly hangs, and False if it could just be slow."""
    activity, starting = outcome.activity, outcome.phase == "start"
    seconds, usual = progress.seconds.get(outcome.id, 0.0), progress.facts.usual.get(outcome.id)
    if activity in COMPILING:
        return False
    if activity == "gpu-busy" and seconds >= BUDGETS["quick"].stall:
        return True
    if not starting and usual is not None and seconds > _USUAL_TIMES * usual + _USUAL_MORE:
        return True
    if activity == "idle":
        last_read = progress.last_read
        silent = seconds if last_read is None else progress.last_outcome - last_read
        return not starting or silent > min(_READING, _READING_SHARE * seconds)
    return outcome.phase == "steady"


def _doing(outcome: Outcome) -> str:
    if outcome.activity in COMPILING:
        return "compiling"
    return "reading" if outcome.activity == "idle" else "computing"


def _what(progress: CheckProgress, case_id: str) -> str:
    if not case_id:
        return f"the start{_simulated(progress)}" if not progress.outcomes else _under(progress)
    running, outcome = progress.running.get(case_id), progress.outcomes.get(case_id)
    phase = running.phase if running else outcome.phase if outcome else ""
    subject = "import of torch" if phase == "start" else _words(progress, case_id)
    return f"{subject}, {_under(progress)}"


def _words(progress: CheckProgress, case_id: str) -> str:
    parts = case_id.split("/")
    check = next((at for at, part in enumerate(parts) if part == progress.facts.setting), 1) + 1
    words = parts[check:]
    if words and words[0] == "convolution" and len(words) == 3:
        return f"convolution {words[2]} {parse_problem(words[1]).dtype}"
    return " ".join(words)


def _under(progress: CheckProgress) -> str:
    facts = progress.facts
    if not facts.setting:
        return "the machine's facts"
    isa = facts.native_isa or facts.gpu
    where = f"{isa} ({facts.device})" if isa and facts.device != "cpu" else facts.device
    return f"{facts.setting} on {where}{_simulated(progress)}"


def _simulated(progress: CheckProgress) -> str:
    return " (simulated)" if progress.facts.simulated else ""
