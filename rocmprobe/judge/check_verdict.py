"""Verdict of ``rocmprobe check``: one state and one line of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from rocmprobe import __version__
from rocmprobe.model.exit_codes import FINDINGS, INTERNAL, NOTHING, OK, UNKNOWN, WEDGED
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.states import state_of, works
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


@dataclass
class CheckProgress:
    """The events of a check so far.

    ``phase`` is the latest phase of the latest case, e.g. "start". ``answers`` are the outcomes as JSON
    objects, each with three more keys:

    - "seconds": duration of the case
    - "ended": monotonic time at which the outcome arrived
    - "usual": seconds of the first call in an earlier run, or None

    The field ``ended`` is the reason why the check ended: "over" (the process with the cases finished),
    "time" (the time limit passed), "signal" or "died". ``unkillable`` is True if a process survived SIGKILL.
    ``last_read`` is the monotonic time at which a starting worker last read a file.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    planned: list[str] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    running: str = ""
    phase: str = ""
    over: dict[str, Any] = field(default_factory=dict)
    ended: str = ""
    unkillable: bool = False
    last_read: Optional[float] = None
    seconds: float = 0.0
    _began: float = 0.0

    def add(self, record: Mapping[str, Any], now: float) -> None:
        """Add a journal record, or a record of the kind "facts". ``now`` is the monotonic time."""
        kind = record.get("record")
        content = {key: value for key, value in record.items() if key != "record"}
        if kind == "facts":
            self.facts.update(content)
        elif kind == "plan":
            self.planned = list(content["cases"])
        elif kind == "intent":
            self.running, self.phase, self._began = content["case"], "", now
        elif kind == "waiting":
            self.phase = content["phase"]
        elif kind == "outcome":
            outcome = content["outcome"]
            seconds = now - self._began if outcome["id"] == self.running else 0.0
            usual = self.facts.get("usual", {}).get(outcome["id"])
            self.answers.append({**outcome, "seconds": round(seconds, 3), "ended": now, "usual": usual})
            self.running = ""
        elif kind == "wedged":
            self.unkillable = True
        elif kind == "over":
            self.over, self.ended = content, "over"


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
    answered = {each["id"] for each in progress.answers if each["state"] != "n/a"}
    # GitHub runs "##[" as a command, even in the middle of a line.
    line = one_line(f"{state}: {text}".replace("##[", "# #["), _LONGEST).encode("ascii", "replace").decode()
    return Verdict(
        state, line, facts.get("setting"), facts.get("device"), facts.get("gpu"), facts.get("native_isa"),
        facts.get("effective_isa"), reason, failed,
        tuple(
            {key: each[key] for key in ("id", "check", "dtype", "direction", "state", "seconds")}
            for each in progress.answers
        ),
        tuple(each for each in progress.planned if each not in answered),
        round(progress.seconds, 3), budget, facts.get("results"), facts.get("simulated"), started,
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
    last = progress.answers[-1] if progress.answers else None
    if last and state_of(last["state"], last["cause"]).blocks:
        return _failed(progress, last)
    if progress.unkillable:
        what = _what(progress, progress.running)
        text = f"hang: a process cannot be killed during {what}; restart the machine"
        return "problem", "hang", text, _ids(progress)
    if progress.over.get("state"):
        over = progress.over
        return over["state"], over["reason"], f"{over['text']}{_simulated(progress)}", ()
    if progress.ended == "over":
        return _completed(progress)
    if progress.ended == "died":
        return "unknown", "internal", f"rocmprobe itself died in {_what(progress, progress.running)}", ()
    why = "ended by a signal" if progress.ended == "signal" else f"out of time (budget {budget:g} s)"
    correct = sum(works(each["state"]) for each in progress.answers)
    so_far = f", {correct} of {len(progress.planned)} checks correct so far" if progress.planned else ""
    return "unknown", "time", f"time: {why} in {_what(progress, progress.running)}{so_far}", ()


def _completed(progress: CheckProgress) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    correct = [each for each in progress.answers if works(each["state"])]
    not_applicable = [each for each in progress.answers if each["state"] == "n/a"]
    if not any(each["check"] == "convolution" for each in correct):
        why = next((each["evidence"][0] for each in not_applicable if each["evidence"]), "no check ran")
        return "unknown", "error", f"{_under(progress)}: convolution has no result: {why}", ()
    return "ok", None, f"{_under(progress)}: {len(correct)} checks correct in {progress.seconds:.1f} s", ()


def _failed(
    progress: CheckProgress, last: Mapping[str, Any]
) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    state = last["state"]
    what = _what(progress, last["id"])
    why = (last["evidence"] or [""])[0]
    if state == "probe-error":
        return "unknown", "internal", f"rocmprobe itself failed in {what}: {why}", ()
    if last["cause"] in _MEMORY:
        return "unknown", "error", f"not enough memory for {what}: {why}", ()
    if last["cause"] == "torch-unusable":
        return "problem", "error", f"error in {what}: {why}", (last["id"],)
    if state == "hang" and not _proven(progress, last):
        return "unknown", "time", f"time: still {_doing(last)} in {what}: {why}", ()
    reason = state if state in ("hang", "crash", "wrong") else "error"
    if state == "flaky":
        why = f"intermittent: {why}"
    return "problem", reason, f"{reason} in {what}: {why}", (last["id"],)


def _proven(progress: CheckProgress, last: Mapping[str, Any]) -> bool:
    """Return True if a worker that timed out certainly hangs, and False if it could just be slow."""
    activity, starting = last["activity"], last["phase"] == "start"
    if activity == "compiler-child":
        return False
    usual = last.get("usual")
    if not starting and usual is not None and last["seconds"] > _USUAL_TIMES * usual + _USUAL_MORE:
        return True
    if activity == "idle":
        silent = last["ended"] - progress.last_read if progress.last_read is not None else last["seconds"]
        return not starting or silent > min(_READING, _READING_SHARE * last["seconds"])
    return bool(last["phase"] == "steady")


def _doing(last: Mapping[str, Any]) -> str:
    return {"compiler-child": "compiling", "idle": "reading"}.get(last["activity"], "computing")


def _ids(progress: CheckProgress) -> tuple[str, ...]:
    return (progress.running,) if progress.running else tuple(each["id"] for each in progress.answers[-1:])


def _what(progress: CheckProgress, case_id: str) -> str:
    if not case_id:
        return f"the start{_simulated(progress)}" if not progress.answers else _under(progress)
    last = progress.answers[-1] if progress.answers and progress.answers[-1]["id"] == case_id else None
    phase = last["phase"] if last else progress.phase
    subject = "import of torch" if phase == "start" else _words(progress, case_id)
    return f"{subject}, {_under(progress)}"


def _words(progress: CheckProgress, case_id: str) -> str:
    parts = case_id.split("/")
    check = next((at for at, part in enumerate(parts) if part == progress.facts.get("setting")), 1) + 1
    words = parts[check:]
    if words and words[0] == "convolution" and len(words) == 3:
        return f"convolution {words[2]} {parse_problem(words[1]).dtype}"
    return " ".join(words)


def _under(progress: CheckProgress) -> str:
    facts = progress.facts
    if not facts.get("setting"):
        return "the machine's facts"
    isa = facts.get("native_isa") or facts.get("gpu")
    where = f"{isa} ({facts['device']})" if isa and facts["device"] != "cpu" else facts["device"]
    return f"{facts['setting']} on {where}{_simulated(progress)}"


def _simulated(progress: CheckProgress) -> str:
    return " (simulated)" if progress.facts.get("simulated") else ""
