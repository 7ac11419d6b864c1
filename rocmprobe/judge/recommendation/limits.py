"""Limits of a recommended setting: what fails under it, although it is the best one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Union

from rocmprobe.checks import CHECKS, DIRECT
from rocmprobe.checks.tools.case import Case
from rocmprobe.judge.assessment import (
    BELOW_CONVOLUTION,
    batch_norm_setting,
    concerns_convolution,
    representative,
)
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.primitives import kind_words
from rocmprobe.knowledge.expectations import observed
from rocmprobe.model.results import Outcome, Results, Setting

#: Words for the checks that every program needs. They are plural.
BASICS = {
    "copy": "copies", "repeated": "repeated copies and kernels", "elementwise": "elementwise operations",
    "gemm": "matrix products", "matmul": "matrix products", "reductions": "reductions",
}  # fmt: skip


def limits(run: Evidence, setting: Setting, dtypes: Collection[str]) -> tuple[str, ...]:
    """Return what fails in ``dtypes`` under ``setting``, e.g. "transposed 2-d convolution (float16)".

    If a check did not run under this setting, its failures count under a setting that runs the same code.
    """
    words: dict[str, set[str]] = {}
    passed: dict[str, set[str]] = {}
    for outcome in outcomes_of(run, setting):
        if outcome.dtype in dtypes and outcome.check not in DIRECT and concerns_convolution(outcome):
            found = words if outcome.fails else passed
            found.setdefault(words_of(outcome), set()).add(outcome.dtype)
    return tuple(
        f"{name} ({', '.join(sorted(failing))})" if passed.get(name, set()) - failing else name
        for name, failing in words.items()
    )


def outcomes_of(run: Evidence, setting: Setting) -> Iterator[Outcome]:
    """Yield the outcomes that are valid for ``setting``: its own, or else those of the same code."""
    by_check: dict[str, dict[str, list[Outcome]]] = {}
    for outcome in run.on_device:
        if outcome.learned:
            by_check.setdefault(outcome.check, {}).setdefault(outcome.setting, []).append(outcome)
    for check, by_setting in by_check.items():
        names = (setting.name, *_same_code(check, setting))
        yield from next((by_setting[name] for name in names if name in by_setting), ())


def _same_code(check: str, setting: Setting) -> Iterator[str]:
    """Yield the names of the settings under which ``check`` runs the same code as under ``setting``."""
    yield representative(setting)
    known = CHECKS.get(check)
    if setting.device == "cpu" or known is None:
        return
    if known.layer and known.layer.option not in setting.pytorch_layers:
        yield batch_norm_setting(setting)
    elif known.rung == "controls":
        # PyTorch's own kernels run these operators under every setting.
        yield "default"


def words_of(outcome: Union[Case, Outcome]) -> str:
    """Return the operation that ``outcome`` tested, in words."""
    check = CHECKS.get(outcome.check)
    if outcome.check == "convolution-kinds":
        return kind_words(outcome)
    if outcome.check == "problem-matrix":
        return f"uncommon {kind_words(outcome)}"
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
