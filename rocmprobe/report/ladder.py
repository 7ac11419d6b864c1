"""Ladder of a device: the state of each rung (group of checks), from simple to complex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.checks import CONVOLUTIONS
from rocmprobe.judge.failures import counts, counts_sentence, worst
from rocmprobe.model.cards import poses
from rocmprobe.model.results import RUNGS, Outcome, Results
from rocmprobe.model.states import STATES, State
from rocmprobe.report import matrix
from rocmprobe.report.anchors import anchors

_IMPORT = "Import of torch"
RUNG_WORDS = {
    "copy": "Copy",
    "elementwise": "Elementwise",
    "gemm": "GEMM",
    "im2col": "im2col",
    "controls": "Controls",
    "direct": "Direct calls",
    "conv": "Convolution",
    "batch-norm": "Batch norm",
    "primitives": "Primitives",
    "train": "Training step",
}


@dataclass(frozen=True)
class Rung:
    name: str
    look: Optional[State]
    detail: str
    anchor: str


@dataclass(frozen=True)
class Ladder:
    """The rungs (groups of checks) of a run."""

    rungs: tuple[Rung, ...]
    caption: str


@dataclass(frozen=True)
class DeviceSection:
    """Ladder and matrices of one device."""

    name: str
    isa: str
    ladder: Ladder
    layers: Optional[matrix.Matrix]
    problem_matrix: Optional[matrix.Matrix]
    matrix: Optional[matrix.Matrix]


def device_names(results: Results) -> list[str]:
    """Return the names of the tested devices in alphabetical order."""
    names = dict.fromkeys(outcome.device for outcome in results.outcomes)
    return sorted(names)


def device(results: Results, name: str, with_tables: bool = True) -> DeviceSection:
    mine = [outcome for outcome in results.outcomes if outcome.device == name]
    native, effective = mine[0].native_isa, mine[0].effective_isa
    isa = f"{native} as {effective}" if poses(native, effective) else native or ""
    layers, problem_matrix, convolutions = (
        (
            matrix.layers(results, name),
            matrix.build(results, name, "problem-matrix"),
            matrix.build(results, name, "convolution"),
        )
        if with_tables
        else (None, None, None)
    )
    return DeviceSection(name, isa, ladder(results, mine), layers, problem_matrix, convolutions)


def ladder(results: Results, outcomes: Sequence[Outcome]) -> Ladder:
    by_default = [outcome for outcome in outcomes if outcome.setting == "default"]
    begun = [outcome for outcome in by_default if not outcome.in_import]
    rungs = (
        _import(results, by_default),
        *(rung(results, begun, step) for step in RUNGS),
    )
    return Ladder(rungs, ladder_caption(rungs))


def _import(results: Results, outcomes: Sequence[Outcome]) -> Rung:
    """Return the rung below all checks: the import of torch."""
    failed = [outcome for outcome in outcomes if outcome.in_import]
    if failed:
        return Rung(_IMPORT, failed[0].meaning, "", anchors(results)[id(failed[0])])
    ran = any(outcome.learned and outcome.rung != "direct" for outcome in outcomes)
    return Rung(_IMPORT, STATES["pass"] if ran else None, "" if ran else "not run", "")


def rung(results: Results, outcomes: Sequence[Outcome], name: str) -> Rung:
    mine = [outcome for outcome in outcomes if outcome.rung == name]
    if name == "conv":
        mine = [outcome for outcome in mine if outcome.check in CONVOLUTIONS] or mine
    if not mine:
        return Rung(RUNG_WORDS[name], None, "not run", "")
    culprit = worst(mine)
    return Rung(
        RUNG_WORDS[name],
        culprit.meaning,
        counts_sentence(counts(mine)) if len(mine) > 1 else "",
        anchors(results)[id(culprit)],
    )


def ladder_caption(rungs: Sequence[Rung]) -> str:
    """Return a sentence that names the first failing rung, or says that no rung fails."""
    applicable = [step for step in rungs if step.look is None or step.look.name != "n/a"]
    for position, step in enumerate(applicable):
        if step.look and step.look.tone == "bad":
            return f"Setting “default”: {_broken(applicable[:position], step)}"
    if all(map(_holds, applicable)):
        that_applies = " that applies" if len(applicable) < len(rungs) else ""
        return f"Setting “default”: every layer{that_applies} works."
    return "Setting “default”: no layer fails, but not every layer could be tested."


def _broken(below: Sequence[Rung], step: Rung) -> str:
    held = [each.name for each in below if _holds(each)]
    unknown = [each.name for each in below if not _holds(each)]
    if unknown:
        prefix = f"{', '.join(held)} {'work' if len(held) > 1 else 'works'}; " if held else ""
        return f"{prefix}{step.name} fails. Lower layers without a result: {', '.join(unknown)}."
    prefix = f"everything up to {held[-1]} works; " if held else ""
    return f"{prefix}{step.name} is the first layer that fails."


def _holds(step: Rung) -> bool:
    return step.look is not None and step.look.tone in ("good", "slow")
