"""Limits of a recommended setting: what fails under it, although it is the best one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Union

from rocmprobe.checks import CHECKS, DIRECT
from rocmprobe.checks.tools.case import Case
from rocmprobe.judge.assessment import (
    BELOW_CONVOLUTION,
    Assessment,
    concerns_convolution,
    representative,
)
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.primitives import kind_words
from rocmprobe.knowledge.expectations import observed
from rocmprobe.model.results import Outcome, Results

#: Words for the checks that every program needs. They are plural.
BASICS = {
    "copy": "copies", "repeated": "repeated copies and kernels", "elementwise": "elementwise operations",
    "gemm": "matrix products", "matmul": "matrix products", "reductions": "reductions",
}  # fmt: skip


def limits(run: Evidence, best: Assessment, elsewhere: Collection[str]) -> tuple[str, ...]:
    """Return what fails under the setting of ``best``, e.g. "transposed 2-d convolution (float16)".

    If a check did not run under this setting, its failures count under the setting that runs the same code.
    Leave out dtypes in ``elsewhere``: for these, the recommendation names another setting.
    """
    words: dict[str, set[str]] = {}
    passed: dict[str, set[str]] = {}
    for outcome in _outcomes(run, best):
        if outcome.dtype in elsewhere or outcome.check in DIRECT or not concerns_convolution(outcome):
            continue
        found = words if outcome.fails else passed
        found.setdefault(words_of(outcome), set()).add(outcome.dtype)
    return tuple(
        f"{name} ({', '.join(sorted(dtypes))})" if passed.get(name, set()) - dtypes else name
        for name, dtypes in words.items()
    )


def _outcomes(run: Evidence, best: Assessment) -> Iterator[Outcome]:
    setting = best.setting.name
    own = {outcome.check for outcome in run.under.get(setting, ()) if outcome.learned}
    for outcome in run.on_device:
        alike = outcome.setting == representative(best.setting) and outcome.check not in own
        if outcome.learned and (outcome.setting == setting or alike):
            yield outcome


def words_of(outcome: Union[Case, Outcome]) -> str:
    """Return the operation that ``outcome`` tested, in words."""
    check = CHECKS.get(outcome.check)
    if outcome.check == "convolution-kinds":
        return kind_words(outcome)
    if check and check.layer:
        return check.layer.words
    return BASICS.get(outcome.check, outcome.check.replace("-", " "))


def failing_basics(results: Results) -> str:
    """Return in words the lowest operation that every program needs and that fails in float32, or ""."""
    broken = {
        outcome.check
        for outcome in map(observed, results.outcomes)
        if outcome.fails and (outcome.setting, outcome.dtype) == ("default", "float32")
    }
    return next((BASICS[check] for check in BELOW_CONVOLUTION if check in broken), "")
