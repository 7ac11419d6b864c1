"""How each state looks and reads, and what pytest makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocmprobe.knowledge.layers import OPTIONS
from rocmprobe.model.results import Outcome, Results


@dataclass(frozen=True)
class Look:
    """A state for the eye: a symbol that needs no colour, a tone that needs no symbol."""

    state: str
    symbol: str
    tone: str
    meaning: str
    pytest: str


#: Worst first: where one cell shows several outcomes, the first of them in this order wins.
LOOKS = {
    look.state: look
    for look in (
        Look("crash", "↯", "bad", "the process died of a signal", "failed"),
        Look("hang", "∞", "bad", "exceeded its time limit and was ended", "failed"),
        Look("wrong", "≠", "bad", "it ran, and the numbers are wrong", "failed"),
        Look("error", "✕", "bad", "it raised an exception", "failed"),
        Look("aborted", "†", "bad", "in flight when the run or the machine died", "failed"),
        Look("flaky", "~", "bad", "different results when repeated", "failed"),
        Look("xfail", "⊗", "bad", "fails, as expected", "xfailed"),
        Look("probe-error", "?", "fault", "rocmprobe itself failed here", "error"),
        Look("slow", "◔", "slow", "right, but by a fallback or over its time limit", "passed"),
        Look("xpass", "⊕", "slow", "expected to fail, and works", "xpassed"),
        Look("blocked", "⊘", "unlearned", "an earlier failure forbids it", "skipped"),
        Look("pass", "✓", "good", "right, within its limits", "passed"),
        Look("skipped", "◌", "unlearned", "left out on request, or not needed here", "skipped"),
        Look("n/a", "∅", "unlearned", "does not apply to this device", "skipped"),
    )
}
#: The place of each state in that order.
RANK = {state: rank for rank, state in enumerate(LOOKS)}

SEVERITY_SYMBOLS = {"error": "✕", "warning": "▲", "info": "i"}

VERDICT_WORDS = {
    "native": "Native",
    "native-with-settings": "Native, with settings",
    "vendor-off": "Vendor library off",
    "bypass": "Bypass",
    "cpu": "CPU",
    "none": "No safe configuration",
    "not-judged": "Not judged",
    "gpu-not-tested": "GPU not tested",
}


def verdict_word(results: Results) -> str:
    """The verdict in words, with the layers that PyTorch's own kernels compute beside native convolution."""
    found = results.recommendation
    if found is None:
        return "No recommendation"
    setting = next((each for each in results.settings if each.name == found.configuration.setting), None)
    return verdict_with_layers(found.verdict, setting.pytorch_layers if setting else ())


def verdict_with_layers(verdict: str, pytorch_layers: Iterable[str]) -> str:
    """A verdict in words, with the layers that PyTorch's own kernels compute beside convolution, given as
    keywords of ``rocmprobe.bypass.install``."""
    others = [OPTIONS[option] for option in pytorch_layers if option in OPTIONS]
    word = VERDICT_WORDS[verdict]
    return f"{word}, {' and '.join(others)} by PyTorch" if others else word


VERDICT_TONES = {
    "native": "good",
    "native-with-settings": "good",
    "vendor-off": "slow",
    "bypass": "slow",
    "cpu": "slow",
    "none": "bad",
    "not-judged": "unlearned",
    "gpu-not-tested": "slow",
}


def verdict_tone(results: Results) -> str:
    """Return the tone of the verdict; neutral where the run was stopped before all was tested."""
    if results.recommendation is None:
        return "fault"
    return "unlearned" if results.partial else VERDICT_TONES[results.recommendation.verdict]


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    return min(outcomes, key=lambda outcome: RANK[outcome.state])


def reason(outcome: Outcome) -> str:
    """The one line that says why an outcome is what it is, or nothing."""
    if outcome.state == "xpass" and outcome.expected:
        return f"{outcome.expected.state}, expected to fail: {outcome.expected.reason}"
    if outcome.evidence:
        return outcome.evidence[0]
    for attempt in outcome.attempts:
        if attempt.message:
            return attempt.message
    return outcome.cause or ""
