"""Verdict of ``rocmprobe check``: one state and one line of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from rocmprobe import __version__
from rocmprobe.engine.journal import Intent, Plan, Record, Settled, Waiting, Wedged
from rocmprobe.model.exit_codes import FINDINGS, INTERNAL, NOTHING, OK, UNKNOWN, WEDGED
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import Outcome
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


class Facts(Record, frozen=True, tag="facts"):
    """Subject of a check: device, setting and limits.

    ``results`` is the path of the results with the recommended setting.
    ``usual`` has the seconds of each case's first call in these results, keyed by case id. ``guardian`` is
    the process that removes temporary files.
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


class Over(Record, frozen=True, tag="over"):
    """The last record of a check. The fields say why it ended without a failed case, if they are not empty.

    ``state`` and ``reason`` are as in ``Verdict``. ``usage`` is the message about wrong usage.
    """

    state: str = ""
    reason: Optional[str] = None
    text: str = ""
    usage: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Checked:
    """The outcome of a case, its duration in seconds, and the monotonic time at which it arrived.

    ``usual`` is the duration of the case's first call in an earlier run.
    """

    outcome: Outcome
    seconds: float
    ended: float
    usual: Optional[float] = None


@dataclass
class CheckProgress:
    """The progress of a check so far.

    ``phase`` is the latest phase of the running case, e.g. "start". ``ended`` is the reason why the check
    ended: "over" (the process with the cases finished), "time" (the time limit passed), "signal" or "died".
    ``unkillable`` is True if a process survived SIGKILL. ``last_read`` is the monotonic time at which a
    starting worker last read a file.
    """

    facts: Facts = field(default_factory=Facts)
    planned: list[str] = field(default_factory=list)
    checked: list[Checked] = field(default_factory=list)
    running: str = ""
    phase: str = ""
    over: Over = field(default_factory=Over)
    ended: str = ""
    unkillable: bool = False
    last_read: Optional[float] = None
    seconds: float = 0.0
    _began: float = 0.0

    def add(self, record: Record, now: float) -> None:
        """Add a record. ``now`` is the monotonic time."""
        if isinstance(record, Facts):
            self.facts = record
        elif isinstance(record, Plan):
            self.planned += record.cases
        elif isinstance(record, Intent):
            self.running, self.phase, self._began = record.case, "", now
        elif isinstance(record, Waiting):
            self.phase = record.phase
        elif isinstance(record, Settled):
            outcome = record.outcome
            seconds = now - self._began if outcome.id == self.running else 0.0
            self.checked.append(Checked(outcome, round(seconds, 3), now, self.facts.usual.get(outcome.id)))
            self.running = ""
        elif isinstance(record, Wedged):
            self.unkillable = True
        elif isinstance(record, Over):
            self.over, self.ended = record, "over"


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
    rocmprobe: str = __version__
    wedged: bool = False

    def as_json(self) -> dict[str, Any]:
        data = asdict(self)
        del data["wedged"]
        return data


def make_verdict(progress: CheckProgress, budget: float, started: str) -> Verdict:
    """Return the verdict. ``budget`` is the time limit in seconds, ``started`` an ISO 8601 time."""
    state, reason, text, failed = _state(progress, budget)
    facts = progress.facts
    outcomes = [each.outcome for each in progress.checked]
    answered = {outcome.id for outcome in outcomes if outcome.state != "n/a"}
    # GitHub runs "##[" as a command, even in the middle of a line.
    line = one_line(f"{state}: {text}".replace("##[", "# #["), _LONGEST).encode("ascii", "replace").decode()
    shown = ("id", "check", "dtype", "direction", "state")
    return Verdict(
        state, line, facts.setting, facts.device, facts.gpu, facts.native_isa, facts.effective_isa, reason,
        failed,
        tuple(
            {**{name: getattr(each.outcome, name) for name in shown}, "seconds": each.seconds}
            for each in progress.checked
        ),
        tuple(each for each in progress.planned if each not in answered),
        round(progress.seconds, 3), budget, facts.results, facts.simulated, started,
        wedged=progress.unkillable,
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
    last = progress.checked[-1] if progress.checked else None
    if last and last.outcome.blocks:
        return _failed(progress, last)
    if progress.unkillable:
        what = _what(progress, progress.running)
        text = f"hang: a process cannot be killed during {what}; restart the machine"
        return "problem", "hang", text, _ids(progress)
    over = progress.over
    if over.state:
        return over.state, over.reason, f"{over.text}{_simulated(progress)}", ()
    if progress.ended == "over":
        return _completed(progress)
    if progress.ended == "died":
        return "unknown", "internal", f"rocmprobe itself died in {_what(progress, progress.running)}", ()
    why = "ended by a signal" if progress.ended == "signal" else f"out of time (budget {budget:g} s)"
    correct = sum(each.outcome.works for each in progress.checked)
    so_far = f", {correct} of {len(progress.planned)} checks correct so far" if progress.planned else ""
    return "unknown", "time", f"time: {why} in {_what(progress, progress.running)}{so_far}", ()


def _completed(progress: CheckProgress) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    outcomes = [each.outcome for each in progress.checked]
    correct = [outcome for outcome in outcomes if outcome.works]
    if not any(outcome.check == "convolution" for outcome in correct):
        reasons = (outcome.evidence[0] for outcome in outcomes if outcome.state == "n/a" and outcome.evidence)
        why = next(reasons, "no check ran")
        return "unknown", "error", f"{_under(progress)}: convolution has no result: {why}", ()
    return "ok", None, f"{_under(progress)}: {len(correct)} checks correct in {progress.seconds:.1f} s", ()


def _failed(progress: CheckProgress, last: Checked) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    outcome, state = last.outcome, last.outcome.state
    what = _what(progress, outcome.id)
    why = outcome.evidence[0] if outcome.evidence else ""
    if state == "probe-error":
        return "unknown", "internal", f"rocmprobe itself failed in {what}: {why}", ()
    if outcome.failure in _MEMORY:
        return "unknown", "error", f"not enough memory for {what}: {why}", ()
    if outcome.failure == "torch-unusable":
        return "problem", "error", f"error in {what}: {why}", (outcome.id,)
    if state == "hang" and not _proven(progress, last):
        return "unknown", "time", f"time: still {_doing(outcome)} in {what}: {why}", ()
    reason = state if state in ("hang", "crash", "wrong") else "error"
    if state == "flaky":
        why = f"intermittent: {why}"
    return "problem", reason, f"{reason} in {what}: {why}", (outcome.id,)


def _proven(progress: CheckProgress, last: Checked) -> bool:
    """Return True if a worker that timed out certainly hangs, and False if it could just be slow."""
    activity, starting = last.outcome.activity, last.outcome.phase == "start"
    if activity == "compiler-child":
        return False
    usual = last.usual
    if not starting and usual is not None and last.seconds > _USUAL_TIMES * usual + _USUAL_MORE:
        return True
    if activity == "idle":
        silent = last.ended - progress.last_read if progress.last_read is not None else last.seconds
        return not starting or silent > min(_READING, _READING_SHARE * last.seconds)
    return last.outcome.phase == "steady"


def _doing(outcome: Outcome) -> str:
    return {"compiler-child": "compiling", "idle": "reading"}.get(outcome.activity or "", "computing")


def _ids(progress: CheckProgress) -> tuple[str, ...]:
    return (
        (progress.running,) if progress.running else tuple(each.outcome.id for each in progress.checked[-1:])
    )


def _what(progress: CheckProgress, case_id: str) -> str:
    if not case_id:
        return f"the start{_simulated(progress)}" if not progress.checked else _under(progress)
    last = progress.checked[-1].outcome if progress.checked else None
    phase = last.phase if last and last.id == case_id else progress.phase
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
