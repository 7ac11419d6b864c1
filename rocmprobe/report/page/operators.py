"""Table of PyTorch's operators that failed, each with the command that reproduces the failure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Optional

from rocmprobe.model.results import Outcome, Results
from rocmprobe.model.states import State
from rocmprobe.report.page.layout import with_device

_SHOWN = 100


@dataclass(frozen=True)
class Operator:
    """A row of the table: one operator in one dtype."""

    name: str
    dtype: str
    look: State
    message: str
    command: str


@dataclass(frozen=True)
class Operators:
    """The table of failed operators."""

    title: str
    caption: str
    rows: tuple[Operator, ...]
    left_out: int


def operators(results: Results) -> Optional[Operators]:
    """Return the table of operators that failed under the setting "default", or None if none failed."""
    tested = [each for each in results.outcomes if (each.rung, each.setting) == ("controls", "default")]
    failed = [each for each in tested if each.fails]
    if not failed:
        return None
    devices = {each.device for each in tested}
    where = "this CPU" if devices == {"cpu"} else "this card"
    caption = (
        f"{len(failed)} of {len(tested)} tests of operators failed. Each test compares an operator and its "
        "gradient to fp64 on the CPU."
    )
    rows = tuple(_row(results, each, devices) for each in failed[:_SHOWN])
    title = f"Operators with wrong results or errors on {where}"
    return Operators(title, caption, rows, len(failed) - len(rows))


def _row(results: Results, outcome: Outcome, devices: set[str]) -> Operator:
    name = with_device(outcome.check, outcome.device, devices)
    message = outcome.evidence[0] if outcome.evidence else ""
    command = f"rocmprobe repro {shlex.quote(results.relative_path)} {shlex.quote(outcome.id)}"
    return Operator(name, outcome.dtype, outcome.meaning, message, command)
