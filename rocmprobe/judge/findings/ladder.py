"""Findings about failures below convolution and in PyTorch's own kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rocmprobe.judge.assessment import failed
from rocmprobe.judge.blame import cure, excluded, failure, rung_layer
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
    """Yield a finding about the lowest rung that fails: in float32, or else in each other dtype."""
    float32 = next(_broken_rungs(run, "float32"), None)
    if float32:
        rung, outcomes = float32
        title = f"The {rung} test fails, so the fault is below convolution and below {run.library}"
        if all(outcome.in_import for outcome in outcomes):
            title = "With the default settings, torch cannot be imported"
        advice = f"Fix this first: {_CARRIES[rung]}."
        found = failure(run, f"rung-{rung}", "error", title, outcomes, advice, rung_layer(run, rung))
        yield replace(found, evidence=(*found.evidence, *excluded(run, outcomes)))
        return
    for dtype in sorted({outcome.dtype for outcome in run.outcomes} - {"float32"}):
        for rung, outcomes in list(_broken_rungs(run, dtype))[:1]:
            title = f"The {rung} test fails in {dtype}, so the fault is below convolution; float32 works"
            name, advice = f"rung-{rung}-{dtype}", "Stay with float32."
            found = failure(run, name, "warning", title, outcomes, advice, rung_layer(run, rung))
            if found.cause == "hipblaslt-missing-arch":
                found = replace(found, advice=f"{advice} {cure(run, found.cause, outcomes)}")
            if (dtype, found.cause) == ("float16", "wrong-results-unexplained"):
                found = replace(found, cause="fp16-broken")
            yield found


def _broken_rungs(run: Evidence, dtype: str) -> Iterator[tuple[str, tuple[Outcome, ...]]]:
    for rung in _CARRIES:
        tested = (*run.of(rung), *(run.of("repeated") if rung == "copy" else ()))
        outcomes = failed(outcome for outcome in tested if outcome.dtype == dtype)
        if outcomes:
            yield rung, outcomes


def controls(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if operators that never use the vendor library fail."""
    broken = failed(outcome for outcome in run.under.get("default", ()) if outcome.rung == "controls")
    single = tuple(outcome for outcome in broken if outcome.dtype == "float32")
    if broken:
        names = list(dict.fromkeys(outcome.check for outcome in broken))
        words = joined([*names[:_NAMED], f"{len(names) - _NAMED} more"] if len(names) > _NAMED else names)
        dtypes = "" if single else f" in {joined(sorted({outcome.dtype for outcome in broken}))}"
        yield failure(
            run,
            "controls",
            "error" if single else "warning",
            f"PyTorch's own kernels fail{dtypes} ({words}), so the fault is below {run.library}",
            single or broken,
            f"No setting of {run.library} fixes this. Check the torch build and the driver below it.",
            rung_layer(run, "controls"),
        )
