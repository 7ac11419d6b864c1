"""Words for verdicts and severities, and the outcome that a table cell shows."""

from __future__ import annotations

from collections.abc import Iterable

from rocmprobe.knowledge.layers import OPTIONS
from rocmprobe.model.results import Outcome, Results
from rocmprobe.model.states import rank

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
    """Return the verdict in words, including the layers that run in PyTorch's own kernels."""
    found = results.recommendation
    if found is None:
        return "No recommendation"
    setting = results.setting(found.configuration.setting)
    return verdict_with_layers(found.verdict, setting.pytorch_layers if setting else ())


def verdict_with_layers(verdict: str, pytorch_layers: Iterable[str]) -> str:
    """Return ``verdict`` in words, including the layers that run in PyTorch's own kernels."""
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
    """Return the colour tone of the verdict, which is neutral if the run ended early."""
    if results.recommendation is None:
        return "fault"
    return "unlearned" if results.partial else VERDICT_TONES[results.recommendation.verdict]


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    return min(outcomes, key=lambda outcome: rank(outcome.state, outcome.failure))


def reason(outcome: Outcome) -> str:
    """Return the line that explains an outcome's state, or ""."""
    if outcome.state == "xpass" and outcome.expected:
        return f"{outcome.expected.state}, expected to fail: {outcome.expected.reason}"
    if outcome.evidence:
        return outcome.evidence[0]
    for attempt in outcome.attempts:
        if attempt.message:
            return attempt.message
    return outcome.failure or ""
