"""Findings about failures below convolution and in PyTorch's own kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Optional

from rocmprobe.judge.assessment import failed
from rocmprobe.judge.blame import cure, excluded, failure, rung_layer
from rocmprobe.judge.curing import advice_of, change_words, curing_setting
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
    """Yield a finding about the lowest rung that fails: in float32, or else in other dtypes."""
    float32 = next(_broken_rungs(run, {"float32"}), None)
    if float32:
        rung, outcomes = float32
        title = f"The {rung} test fails, so the fault is below convolution and below {run.library}"
        if all(outcome.in_import for outcome in outcomes):
            title = "With the default settings, torch cannot be imported"
        yield _finding(run, rung, "error", title, f"Fix this first: {_CARRIES[rung]}.", outcomes)
        return
    explained: set[Optional[str]] = set()
    for rung, broken in _broken_rungs(run, {outcome.dtype for outcome in run.outcomes}):
        outcomes = tuple(outcome for outcome in broken if outcome.dtype not in explained)
        dtypes = sorted({str(outcome.dtype) for outcome in outcomes})
        if not dtypes:
            continue
        explained.update(dtypes)
        title = f"The {rung} test fails in {joined(dtypes)}, so the fault is below convolution; float32 works"
        found = _finding(run, rung, "warning", title, "Stay with float32.", outcomes, dtypes)
        if (dtypes, found.cause) == (["float16"], "wrong-results-unexplained"):
            found = replace(found, cause="fp16-broken")
        yield found


def _finding(
    run: Evidence,
    rung: str,
    severity: str,
    title: str,
    advice: str,
    outcomes: tuple[Outcome, ...],
    dtypes: Sequence[str] = (),
) -> Finding:
    curing = curing_setting(run, outcomes)
    if curing:
        title, advice = f"{title}; {change_words(curing)} it works", advice_of(curing)
    layer, name = rung_layer(run, rung), "-".join(("rung", rung, *dtypes))
    found = failure(run, name, severity, title, outcomes, advice, layer, curing is not None)
    if found.cause == "hipblaslt-missing-arch" and not curing:
        found = replace(found, advice=f"{advice} {cure(run, found.cause, outcomes)}")
    return replace(found, evidence=(*found.evidence, *excluded(run, outcomes)))


def _broken_rungs(
    run: Evidence, dtypes: Collection[Optional[str]]
) -> Iterator[tuple[str, tuple[Outcome, ...]]]:
    for rung in _CARRIES:
        tested = (*run.of(rung), *(run.of("repeated") if rung == "copy" else ()))
        outcomes = failed(outcome for outcome in tested if outcome.dtype in dtypes)
        if outcomes:
            yield rung, outcomes


def controls(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if operators that never use the vendor library fail."""
    broken = failed(outcome for outcome in run.under.get("default", ()) if outcome.rung == "controls")
    single = tuple(outcome for outcome in broken if outcome.dtype == "float32")
    if broken:
        names = list(dict.fromkeys(outcome.check for outcome in broken))
        words = joined(names, _NAMED)
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
