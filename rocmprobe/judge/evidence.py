"""Asking the outcomes of a run: which settings hold up, for which dtype and purpose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from statistics import geometric_mean
from typing import Optional

from rocmprobe._toml import tomllib
from rocmprobe.model import FAILING_STATES, WORKING_STATES, Outcome, Results, Setting

#: Settings that still go through the vendor library.
NATIVE = ("native", "native-with-settings")


@dataclass(frozen=True)
class Standing:
    """How one setting did: the outcomes that count, and of these the ones that speak against it."""

    setting: Setting
    counted: tuple[Outcome, ...]
    against: tuple[Outcome, ...]

    @property
    def right(self) -> bool:
        """Right on everything asked, and something was asked."""
        return bool(self.counted) and not self.against


def device_of(results: Results) -> Optional[str]:
    """The device that the recommendation is about: the first one tested."""
    return results.outcomes[0].device if results.outcomes else None


def standing(results: Results, setting: Setting, dtype: str, purpose: str) -> Standing:
    """What speaks for and against ``setting`` for convolutions of ``dtype`` and ``purpose``.

    Inference asks the forward direction alone. Training asks all directions, and for float32 the
    training step too, which includes batch norm. What is not applicable does not count.
    """
    device = device_of(results)
    counted = []
    for outcome in results.outcomes:
        if (outcome.device, outcome.setting) != (device, setting.name) or outcome.state in ("n/a", "skipped"):
            continue
        convolution = outcome.check == "convolution" and outcome.dtype == dtype
        if (convolution and (purpose == "training" or outcome.direction == "fwd")) or (
            outcome.check in ("training-step", "gradients") and purpose == "training" and dtype == "float32"
        ):
            counted.append(outcome)
    against = tuple(outcome for outcome in counted if outcome.state not in WORKING_STATES)
    return Standing(setting, tuple(counted), against)


def dtypes(results: Results) -> tuple[str, ...]:
    """The dtypes whose convolutions were asked about, float32 first."""
    seen = {outcome.dtype for outcome in results.outcomes if outcome.check == "convolution"}
    return tuple(sorted(seen, key=lambda name: (name != "float32", name)))


def times(results: Results, names: Iterable[str], purpose: str, quantile: str = "") -> dict[str, float]:
    """Geometric mean of seconds over the throughput problems that every named setting was timed on.

    ``quantile`` "" takes the medians, "_p10" and "_p90" the deciles. Settings without timings are left
    out; empty where no problem is common to those that have some.
    """
    key = ("fwd" if purpose == "inference" else "fwd_bwd") + quantile
    timed: dict[str, dict[str, float]] = {}
    for outcome in results.outcomes:
        known = outcome.device == device_of(results) and outcome.check == "throughput" and outcome.problem
        if known and outcome.state in WORKING_STATES and outcome.setting in set(names):
            timed.setdefault(outcome.setting, {})[str(outcome.problem)] = float(outcome.timings[key])
    common = set.intersection(*(set(by_problem) for by_problem in timed.values())) if timed else set()
    if not common:
        return {}
    return {name: geometric_mean([rows[text] for text in common]) for name, rows in timed.items()}


@lru_cache(maxsize=1)
def _signatures() -> tuple[tuple[re.Pattern[str], str, str], ...]:
    text = resources.files("rocmprobe").joinpath("data/signatures.toml").read_text("utf-8")
    rows = tomllib.loads(text)["signature"]
    return tuple((re.compile(row["pattern"]), row["cause"], row["layer"]) for row in rows)


def signature(outcomes: Iterable[Outcome]) -> Optional[tuple[str, str]]:
    """(cause, layer) that the evidence of failed outcomes names, or None where it names none."""
    text = "\n".join(line for outcome in outcomes for line in outcome.evidence)
    for pattern, cause, layer in _signatures():
        if pattern.search(text):
            return cause, layer
    return None


def failed(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Those that were asked and failed; blocked ones only repeat another's failure."""
    return tuple(outcome for outcome in outcomes if outcome.state in FAILING_STATES)


def quoted(outcomes: Iterable[Outcome], most: int = 3) -> tuple[str, ...]:
    """One line for each of the first outcomes: what, and what it came to."""
    return tuple(
        f"{outcome.id}: {outcome.state}" + (f", {outcome.evidence[0]}" if outcome.evidence else "")
        for outcome in list(outcomes)[:most]
    )
