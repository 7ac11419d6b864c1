"""The verdict: what was seen, as one state with one line. A pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Optional

from rocmprobe import __version__
from rocmprobe.gate.messages import Order, Seen
from rocmprobe.model.exit_codes import FINDINGS, INTERNAL, NOTHING, OK, UNKNOWN, WEDGED
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.states import state_of, works
from rocmprobe.text.plain_text import one_line

STATES = ("ok", "problem", "unknown", "busy", "nothing")
REASONS = ("hang", "crash", "wrong", "error", "time", "busy", "no-device", "no-torch", "internal")
CONVENTIONS = ("own", "npd", "autopkgtest", "nagios")
#: Characters of the line; node-problem-detector shows the first 80 bytes of it by default.
_LONGEST = 300
#: A first call that takes this many times as long as in the results, and seconds more, hangs.
_USUAL_TIMES, _USUAL_MORE = 3.0, 5.0
#: A start that does nothing hangs where it has read nothing for so many seconds, or this share of its time.
_READING, _READING_SHARE = 5.0, 0.25
#: Causes that say that others have the memory, of the machine or of the GPU, and not that anything is broken.
_MEMORY = ("oom-kill", "out-of-memory")


@dataclass(frozen=True)
class Verdict:
    """What ``check --json`` prints, but for ``wedged``: a process could not be killed."""

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


def judged(seen: Seen, order: Order, started: str) -> Verdict:
    """The verdict on what was ``seen`` of a check that ``started`` at that time (ISO 8601)."""
    state, reason, text, failed = _state(seen, order)
    facts = seen.facts
    answered = {each["id"] for each in seen.answers if each["state"] != "n/a"}
    # GitHub would run that as a command, from anywhere in a line.
    line = one_line(f"{state}: {text}".replace("##[", "# #["), _LONGEST).encode("ascii", "replace").decode()
    return Verdict(
        state, line, facts.get("setting"), facts.get("device"), facts.get("gpu"), facts.get("native_isa"),
        facts.get("effective_isa"), reason, failed,
        tuple(
            {key: each[key] for key in ("id", "check", "dtype", "direction", "state", "seconds")}
            for each in seen.answers
        ),
        tuple(each for each in seen.planned if each not in answered),
        round(seen.seconds, 3), order.budget, facts.get("results"), facts.get("simulated"), started,
        wedged=seen.unkillable,
    )  # fmt: skip


def exit_code(verdict: Verdict, convention: str) -> int:
    """The exit code of a verdict by a name of ``CONVENTIONS``."""
    state, reason = verdict.state, verdict.reason
    if convention == "npd":
        return {"problem": 1, "unknown": 2}.get(state, 0)
    if convention == "autopkgtest":
        return {"ok": 0, "problem": 1}.get(state, 77)
    if convention == "nagios":
        if state == "busy" or (state == "unknown" and reason == "time"):
            return 1
        return {"ok": 0, "problem": 2}.get(state, 3)
    if verdict.wedged:
        return WEDGED
    if reason == "internal":
        return INTERNAL
    return {"ok": OK, "problem": FINDINGS, "nothing": NOTHING}.get(state, UNKNOWN)


def _state(seen: Seen, order: Order) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    """State, reason, the rest of the line, and the ids of what failed."""
    last = seen.answers[-1] if seen.answers else None
    if last and state_of(last["state"], last["cause"]).blocks:
        return _failed(seen, last)
    if seen.unkillable:
        text = f"hang: a process cannot be killed in {_what(seen, seen.asking)}; restart the machine"
        return "problem", "hang", text, _ids(seen)
    if seen.over.get("state"):
        over = seen.over
        return over["state"], over["reason"], f"{over['text']}{_simulated(seen)}", ()
    if seen.ended == "over":
        return _all_asked(seen)
    if seen.ended == "died":
        return "unknown", "internal", f"the probe itself died in {_what(seen, seen.asking)}", ()
    why = "ended by a signal" if seen.ended == "signal" else f"out of time (budget {order.budget:g} s)"
    right = sum(works(each["state"]) for each in seen.answers)
    so_far = f", {right} of {len(seen.planned)} right so far" if seen.planned else ""
    return "unknown", "time", f"time: {why} in {_what(seen, seen.asking)}{so_far}", ()


def _all_asked(seen: Seen) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    right = [each for each in seen.answers if works(each["state"])]
    needless = [each for each in seen.answers if each["state"] == "n/a"]
    if not any(each["check"] == "convolution" for each in right):
        why = next((each["evidence"][0] for each in needless if each["evidence"]), "nothing was asked")
        return "unknown", "error", f"{_under(seen)}: nothing was learned of convolution: {why}", ()
    return "ok", None, f"{_under(seen)}: {len(right)} checks right in {seen.seconds:.1f} s", ()


def _failed(seen: Seen, last: Mapping[str, Any]) -> tuple[str, Optional[str], str, tuple[str, ...]]:
    state = last["state"]
    what = _what(seen, last["id"])
    why = (last["evidence"] or [""])[0]
    if state == "probe-error":
        return "unknown", "internal", f"the probe itself failed in {what}: {why}", ()
    if last["cause"] in _MEMORY:
        return "unknown", "error", f"no memory for {what}: {why}", ()
    if last["cause"] == "torch-unusable":
        return "problem", "error", f"error in {what}: {why}", (last["id"],)
    if state == "hang" and not _proven(seen, last):
        return "unknown", "time", f"time: still {_doing(last)} in {what}: {why}", ()
    reason = state if state in ("hang", "crash", "wrong") else "error"
    if state == "flaky":
        why = f"comes and goes: {why}"
    return "problem", reason, f"{reason} in {what}: {why}", (last["id"],)


def _proven(seen: Seen, last: Mapping[str, Any]) -> bool:
    """Return True if silence until the limit shows a hang.

    A busy process shows one only in a repeated call. Before that it can import, load or compile kernels, or
    compute the expected result.
    """
    activity, starting = last["activity"], last["phase"] == "start"
    if activity == "compiler-child":
        return False
    usual = last.get("usual")
    if not starting and usual is not None and last["seconds"] > _USUAL_TIMES * usual + _USUAL_MORE:
        return True
    if activity == "idle":
        silent = last["ended"] - seen.moved if seen.moved is not None else last["seconds"]
        return not starting or silent > min(_READING, _READING_SHARE * last["seconds"])
    return bool(last["phase"] == "steady")


def _doing(last: Mapping[str, Any]) -> str:
    return {"compiler-child": "compiling", "idle": "reading"}.get(last["activity"], "computing")


def _ids(seen: Seen) -> tuple[str, ...]:
    return (seen.asking,) if seen.asking else tuple(each["id"] for each in seen.answers[-1:])


def _what(seen: Seen, case_id: str) -> str:
    """The question in words, with the setting and the device; or what comes before the first one."""
    if not case_id:
        return f"the start{_simulated(seen)}" if not seen.answers else _under(seen)
    last = seen.answers[-1] if seen.answers and seen.answers[-1]["id"] == case_id else None
    phase = last["phase"] if last else seen.phase
    subject = "import of torch" if phase == "start" else _words(seen, case_id)
    return f"{subject}, {_under(seen)}"


def _words(seen: Seen, case_id: str) -> str:
    parts = case_id.split("/")
    check = next((at for at, part in enumerate(parts) if part == seen.facts.get("setting")), 1) + 1
    words = parts[check:]
    if words and words[0] == "convolution" and len(words) == 3:
        return f"convolution {words[2]} {parse_problem(words[1]).dtype}"
    return " ".join(words)


def _under(seen: Seen) -> str:
    facts = seen.facts
    if not facts.get("setting"):
        return "the machine's facts"
    isa = facts.get("native_isa") or facts.get("gpu")
    where = f"{isa} ({facts['device']})" if isa and facts["device"] != "cpu" else facts["device"]
    return f"{facts['setting']} on {where}{_simulated(seen)}"


def _simulated(seen: Seen) -> str:
    return " (simulated)" if seen.facts.get("simulated") else ""
