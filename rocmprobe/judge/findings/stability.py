"""Result of a soak test (long training under load): one sentence and a finding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.judge.assessment import quoted
from rocmprobe.judge.blame import library, signature
from rocmprobe.judge.findings.machine import GRAVE_EVENTS
from rocmprobe.knowledge.causes import advice_for
from rocmprobe.model.results import Finding, Outcome, Results
from rocmprobe.model.telemetry import CHIP, QUANTITIES
from rocmprobe.text.durations import duration
from rocmprobe.text.plain_text import one_line

CHECK = "soak"
#: Causes of a crash which say that something outside of the process ended it.
_FROM_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "oom-kill", "killed"})
_LOAD = (
    "Remove any overclocking and undervolting, or lower the clocks or the power limit, and run `rocmprobe "
    "soak` again. Until it passes, do not trust long training on this device."
)


@dataclass(frozen=True)
class Soak:
    """The numbers of a soak test.

    ``first`` describes the first mismatch. ``peak`` holds the largest reading of each sensor.
    """

    steps: int
    seconds: float
    wanted: float
    mismatches: int
    first: Mapping[str, Any]
    peak: Mapping[str, float]
    bit_for_bit: Optional[bool]
    stopped: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    answers: Optional[bool]


def read_soak(outcome: Outcome) -> Soak:
    """Return the numbers of a soak test. Missing and invalid values become zero, None or empty."""
    numbers = outcome.numerics
    mismatch = numbers.get("mismatch")
    described = [each for each in mismatch if isinstance(each, Mapping)] if isinstance(mismatch, list) else []
    events = numbers.get("kernel_events")
    stopped, answers = numbers.get("stopped"), numbers.get("answers")
    repeats = numbers.get("bit_for_bit")
    return Soak(
        steps=int(_number(numbers.get("steps"))),
        seconds=_number(numbers.get("seconds")),
        wanted=_number(numbers.get("wanted_seconds")),
        mismatches=int(_number(numbers.get("mismatches"))),
        first=described[0] if described else {},
        peak=outcome.conditions.get("peak", {}),
        bit_for_bit=repeats if isinstance(repeats, bool) else None,
        stopped=stopped if isinstance(stopped, Mapping) else {},
        events=[each for each in events if isinstance(each, Mapping)] if isinstance(events, list) else [],
        answers=answers if isinstance(answers, bool) else None,
    )


def sentence(outcome: Outcome, results: Results) -> str:
    """Return the verdict of a soak test as text."""
    return f"{_verdict(outcome)}{'' if _on_gpu(outcome, results) else ' The CPU was tested, not a GPU.'}"


def is_stable(outcome: Outcome) -> bool:
    """Return True if a soak test finished without a mismatch, a failure or a fault in the kernel log."""
    soak = read_soak(outcome)
    return outcome.works and soak.steps > 0 and not (soak.mismatches or soak.stopped or _grave(soak))


def _verdict(outcome: Outcome) -> str:
    soak = read_soak(outcome)
    ran = f"{_steps(soak.steps)} in {duration(soak.seconds)}"
    counted = _counted(soak)
    still = {
        None: "", True: "; the device responds again", False: "; the device no longer responds",
    }[soak.answers]  # fmt: skip
    if not soak.steps:
        failed = "Wrong" if outcome.state == "wrong" else "Failed before the first step"
        return f"{failed if outcome.fails else 'Not tested'}: {_why(outcome)}{still}."
    if _differs(outcome, soak):
        rounding = soak.first.get("within_rounding") is True and outcome.state != "wrong"
        kind = "different" if rounding or outcome.state == "flaky" else "wrong"
        after = duration(_number(soak.first.get("seconds")))
        return f"Not stable: first {kind} result after {after}{_heat(soak.first)}; {ran}, {counted}."
    if outcome.state == "aborted" and outcome.cause == "machine-died":
        return f"Not stable: the machine died during the soak; {ran}{_peak(soak)}, {counted} until then."
    if outcome.state == "aborted":
        return f"Stopped before its end: {ran} of {duration(soak.wanted)}{_peak(soak)}, {counted}."
    if _ended_from_outside(outcome, soak):
        return f"Unknown: something ended the process ({outcome.cause}); {ran}{_peak(soak)}, {counted}."
    if outcome.fails:
        what = _event(soak) or _why(outcome)
        return f"Not stable: {what}, after {ran}{_peak(soak)}, {counted}{still}."
    if soak.stopped:
        hot, limit = _number(soak.stopped.get("value")), _number(soak.stopped.get("limit"))
        hottest = f"stopped at {hot:.0f} °C, the limit is {limit:.0f} °C"
        return f"Too hot: {hottest}; {ran}{_peak(soak)}, {counted}."
    if _grave(soak):
        return f"Not stable: {_event(soak)}; {ran}{_peak(soak)}, {counted}."
    if soak.bit_for_bit is False:
        counted += " beyond rounding"
    return f"Stable: {ran}{_peak(soak)}, {counted}."


def stability(results: Results) -> Iterator[Finding]:
    """Yield a finding for each soak test that has a result."""
    soaks = [each for each in results.outcomes if each.check == CHECK and (each.learned or each.numerics)]
    for outcome in soaks:
        soak = read_soak(outcome)
        severity, cause, layer, advice = "info", "benign-warning", "warning-only", "Nothing to do."
        if outcome.state == "aborted" and outcome.cause != "machine-died" and not soak.mismatches:
            advice = "Run `rocmprobe soak` again and let it finish."
        elif not is_stable(outcome):
            mild = outcome.state in ("flaky", "pass") or _ended_from_outside(outcome, soak)
            severity = "warning" if mild else "error"
            cause, layer = _blamed(results, outcome)
            advice = _advice(results, outcome)
        title = sentence(outcome, results).rstrip(".")
        if len(soaks) > 1:
            title = f"{outcome.setting}: {title}"
        device = f"-{outcome.device}" if len({each.device for each in soaks}) > 1 else ""
        watched = f"kernel log: {outcome.numerics.get('kernel_log', 'not read')}"
        events = [f"kernel: {event.get('line')}" for event in soak.events]
        yield Finding(
            f"soak-{outcome.setting}{device}", severity, cause, layer, title,
            (*quoted([outcome]), *_settings(soak, outcome), *events, watched), advice,
        )  # fmt: skip


def _blamed(results: Results, outcome: Outcome) -> tuple[str, str]:
    soak = read_soak(outcome)
    if _differs(outcome, soak):
        return ("hw-power-or-fault" if _on_gpu(outcome, results) else "wrong-results-unexplained"), "hardware"
    named = signature(results, [outcome]) if outcome.fails else None
    if named:
        return named[0], named[1] or "hardware"
    if soak.stopped:
        return "thermal-throttling", "hardware"
    if _ended_from_outside(outcome, soak):
        return "unknown", "oom" if outcome.cause == "oom-kill" else "user-env"
    if _grave(soak) or soak.answers is False or outcome.state in ("hang", "aborted"):
        return "gpu-hang-reset", "driver"
    return "unknown", "hardware"


def _advice(results: Results, outcome: Outcome) -> str:
    soak = read_soak(outcome)
    if not soak.steps:
        return "Load is not the cause. Run `rocmprobe run` to find a configuration that works."
    if soak.stopped:
        return advice_for("thermal-throttling", frozenset(), outcome.native_isa)
    if _ended_from_outside(outcome, soak):
        return (
            "Another process or the kernel ended the test. Make sure that memory is free, and run it again."
        )
    if soak.answers is False:
        return f"Switch the machine off and on. rocmprobe never resets a GPU. {_LOAD}"
    if outcome.state == "flaky" and library(results) != "oneDNN":
        return (
            "The difference is within rounding: the library may have summed in a different order. To rule "
            f"this out, run `rocmprobe soak --setting deterministic`. {_LOAD}"
        )
    return _LOAD


def _differs(outcome: Outcome, soak: Soak) -> bool:
    interrupted = outcome.state == "aborted" and soak.mismatches > 0
    return soak.steps > 0 and (outcome.state in ("wrong", "flaky") or interrupted)


def _ended_from_outside(outcome: Outcome, soak: Soak) -> bool:
    return outcome.cause in _FROM_OUTSIDE and soak.answers is not False and not _grave(soak)


def _settings(soak: Soak, outcome: Outcome) -> Iterator[str]:
    if soak.bit_for_bit is not None:
        how = "bit for bit" if soak.bit_for_bit else "within rounding (this setting is not reproducible)"
        yield f"results compared {how}, batch {int(_number(outcome.numerics.get('batch')))}"
    limits = outcome.numerics.get("temperature_limits")
    if isinstance(limits, Mapping) and limits:
        known = {name: limit for name, limit in limits.items() if isinstance(limit, Mapping)}
        # A limit that the user set applies to every sensor, so name only sensors with a reading.
        own = [name for name in known if name in soak.peak] or list(known)
        yield "temperature limits: " + ", ".join(
            f"{_short(name)} {_number(known[name].get('value')):.0f} °C ({known[name].get('source')})"
            for name in own
        )
    if not any(name in soak.peak for name in CHIP):
        yield "temperature: no sensor could be read, so no temperature limit was checked"
    elif not limits:
        yield "temperature limits: none known; set one with --stop-at"


def _short(name: str) -> str:
    return QUANTITIES[name].short if name in QUANTITIES else name


def _on_gpu(outcome: Outcome, results: Results) -> bool:
    setting = results.setting(outcome.setting)
    return "cpu" not in (outcome.device, setting.device if setting else None)


def _why(outcome: Outcome) -> str:
    return outcome.evidence[0].rstrip(".") if outcome.evidence else outcome.state


def _grave(soak: Soak) -> list[Mapping[str, Any]]:
    return [event for event in soak.events if event.get("kind") in GRAVE_EVENTS]


def _event(soak: Soak) -> str:
    grave = _grave(soak)
    resets = sum(int(_number(each.get("count"))) for each in grave if each.get("kind") == "gpu-reset")
    if resets:
        return "the GPU was reset" + (f" {resets} times" if resets > 1 else "")
    return f"the kernel logged “{one_line(str(grave[0].get('line')))}”" if grave else ""


def _steps(steps: int) -> str:
    return f"{steps:,} {'step' if steps == 1 else 'steps'}"


def _counted(soak: Soak) -> str:
    if not soak.mismatches:
        return "no mismatch"
    return f"{soak.mismatches:,} {'mismatch' if soak.mismatches == 1 else 'mismatches'}"


def _heat(mismatch: Mapping[str, Any]) -> str:
    return _at(_number(mismatch.get("temperature_c")), _number(mismatch.get("power_w")), "")


def _peak(soak: Soak) -> str:
    hottest = next((soak.peak[name] for name in CHIP if name in soak.peak), 0.0)
    return _at(_number(hottest), _number(soak.peak.get("power_w")), "up to ")


def _at(degrees: float, watts: float, up_to: str) -> str:
    words = [f"{degrees:.0f} °C"] * (degrees > 0) + [f"{watts:.0f} W"] * (watts > 0)
    return f" at {up_to}{' and '.join(words)}" if words else ""


def _number(value: Any) -> float:
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known and abs(value) < 1e15 and math.isfinite(value) else 0.0
