"""Findings about failures below convolution and in PyTorch's own kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from rocmprobe.judge.assessment import (
    failed,
    quoted,
)
from rocmprobe.judge.blame import blamed, cure, excluded, rung_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding, Outcome
from rocmprobe.text.plain_text import joined

#: Consequences of a failed rung (group of checks) that runs before convolution.
_CARRIES = {
    "copy": "every later test depends on it and did not run",
    "elementwise": "every later test depends on it and did not run",
    "gemm": "the bypass and PyTorch's own convolution depend on it",
    "im2col": "PyTorch's own convolution depends on it",
}


#: Maximum number of operators in a title.
_NAMED = 6


def ladder(run: Evidence) -> Iterator[Finding]:
    """Yield findings about the lowest group of checks (rung) that fails."""
    float32 = _broken_rung(run, "float32")
    if float32:
        rung, outcomes = float32
        cause, layer = blamed(run, outcomes, rung_layer(run, rung))
        yield Finding(
            f"rung-{rung}",
            "error",
            cause,
            layer,
            f"The {rung} test fails, so the fault is below convolution and below {run.library}",
            (*quoted(outcomes), *excluded(run, outcomes)),
            f"Fix this first: {_CARRIES[rung]}.",
        )
        return
    for dtype in sorted({outcome.dtype for outcome in run.outcomes} - {"float32"}):
        found = _broken_rung(run, dtype)
        if found:
            rung, outcomes = found
            cause, layer = blamed(run, outcomes, rung_layer(run, rung))
            if dtype == "float16" and cause == "wrong-results-unexplained":
                cause = "fp16-broken"
            yield Finding(
                f"rung-{rung}-{dtype}",
                "warning",
                cause,
                layer,
                f"The {rung} test fails in {dtype}, so the fault is below convolution; float32 works",
                quoted(outcomes),
                f"Stay with float32. {cure(run, cause, outcomes)}"
                if cause == "hipblaslt-missing-arch"
                else "Stay with float32.",
            )


def _broken_rung(run: Evidence, dtype: str) -> Optional[tuple[str, tuple[Outcome, ...]]]:
    for rung in _CARRIES:
        outcomes = failed(outcome for outcome in run.of(rung) if outcome.dtype == dtype)
        if outcomes:
            return rung, outcomes
    return None


def controls(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if operators that never use the vendor library fail."""
    broken = failed(
        outcome for outcome in run.outcomes if (outcome.rung, outcome.setting) == ("controls", "default")
    )
    if not broken:
        return
    single = tuple(outcome for outcome in broken if outcome.dtype == "float32")
    cause, layer = blamed(run, single or broken, rung_layer(run, "controls"))
    names = list(dict.fromkeys(outcome.check for outcome in broken))
    words = joined([*names[:_NAMED], f"{len(names) - _NAMED} more"] if len(names) > _NAMED else names)
    dtypes = "" if single else f" in {joined(sorted({outcome.dtype for outcome in broken}))}"
    yield Finding(
        "controls",
        "error" if single else "warning",
        cause,
        layer,
        f"PyTorch's own kernels fail{dtypes} ({words}), so the fault is below {run.library}",
        quoted(single or broken),
        f"No setting of {run.library} fixes this. Check the torch build and the driver below it.",
    )
