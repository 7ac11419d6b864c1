"""Finding about long searches that a variable of the user forces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from rocmprobe.judge.assessment import AS_FOUND, case_key
from rocmprobe.judge.blame import search_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.first_calls import MUCH_LESS, SLOW_FIRST_CALL
from rocmprobe.judge.noise import time_of
from rocmprobe.knowledge.variables import forcing_search
from rocmprobe.model.baseline import observed_state
from rocmprobe.model.results import Finding, Outcome
from rocmprobe.text.plain_text import assignments
from rocmprobe.text.readable import duration

#: Groups of checks whose first call can search for a convolution.
_CONVOLVING = ("conv", "train")
_EVIDENCE_LINES = 4


def forced_search(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if a variable forces searches, and calls in the user's own environment hang or are
    slow."""
    forcing, pairs = forcing_search(run.machine), searches(run)
    if not pairs:
        return
    # A search that ended proves more than one that was interrupted.
    pairs.sort(key=lambda pair: (_first_call(pair[0]) is None, _first_call(pair[1]) is None))
    seconds, without = map(_first_call, pairs[0])
    interrupted = any(_first_call(found) is None for found, _ in pairs)
    assigned = " and ".join(assignments(forcing))
    title = f"{'Probably not' if interrupted else 'Not'} a hang: MIOpen searches, because {assigned}"
    if seconds is not None:
        title += f"; a first call takes {_words(seconds)}"
    if without is not None:
        title += (
            f"{', and' if seconds is not None else '; the same first call takes'} {_words(without)} in a "
        )
        title += "clean environment"
    names = " and ".join(forcing)
    advice = (
        f"Unset {names}. For tuned kernels, let the search end once, which can take half an hour or longer, "
        f"then unset {names} and keep MIOpen's databases (~/.config/miopen)."
    )
    evidence = tuple(_described(*pair) for pair in pairs[:_EVIDENCE_LINES])
    yield Finding("forced-search", "warning", "cold-compile-slow", search_layer(run), title, evidence, advice)


def searches(run: Evidence) -> list[tuple[Outcome, Optional[Outcome]]]:
    """Return the outcomes of forced searches, each with the outcome in a clean environment."""
    if run.library != "MIOpen" or not forcing_search(run.machine):
        return []
    clean = {case_key(outcome): outcome for outcome in run.under.get("default", ())}
    pairs = [(each, clean.get(case_key(each))) for each in run.under.get(AS_FOUND, ())]
    return [(found, default) for found, default in pairs if _may_search(found, default)]


def _may_search(found: Outcome, default: Optional[Outcome]) -> bool:
    """Return True if the first call under ``as-found`` hung or was slow, and under ``default`` was not."""
    if found.rung not in _CONVOLVING or (default is not None and observed_state(default) == "hang"):
        return False
    if observed_state(found) == "hang":
        # A search compiles on the CPU and times kernels on the GPU.
        return found.phase == "first-call" and found.activity != "idle"
    seconds, without = _first_call(found), _first_call(default)
    if seconds is None or seconds <= SLOW_FIRST_CALL:
        return False
    return without is None or without <= MUCH_LESS * seconds


def _first_call(outcome: Optional[Outcome]) -> Optional[float]:
    return time_of(outcome.timings.get("first_call")) if outcome is not None and outcome.works else None


def _words(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else f"{seconds:.2g} s"


def _described(found: Outcome, default: Optional[Outcome]) -> str:
    seconds, without = _first_call(found), _first_call(default)
    case = " ".join(filter(None, (found.problem or found.check, found.direction, found.dtype)))
    ended = f"{_words(seconds)}" if seconds is not None else "no end within the time limit"
    clean = f"{_words(without)}" if without is not None else "not timed"
    return f"First call, {case}: {ended} in your own environment; {clean} in a clean one"
