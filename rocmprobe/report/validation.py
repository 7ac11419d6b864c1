"""The bypass's errors beside their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.cases import CONVOLUTIONS
from rocmprobe.model import Outcome, Results
from rocmprobe.report import text
from rocmprobe.report.states import LOOKS, Look

#: What is told besides the measures that have a limit, with the words that head it.
VIEWS = {"bound_ratio": "of its bound", "exact": "integers equal", "cancelling": "and where they cancel"}


@dataclass(frozen=True)
class ValidationRow:
    problem: str
    direction: str
    look: Look
    shares: tuple[Optional[float], ...]
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """The bypass's errors, each as a share of its limit; ``summary`` says the worst."""

    measures: tuple[str, ...]
    rows: tuple[ValidationRow, ...]
    summary: str


def validation(results: Results) -> Optional[Validation]:
    bypass = {setting.name for setting in results.settings if setting.bypass} | {"bypass"}
    mine = [o for o in results.outcomes if o.check in CONVOLUTIONS and o.setting in bypass and o.numerics]
    if not mine:
        return None
    names = [name for o in mine for name in o.numerics if f"{name}_limit" in o.numerics]
    measures = tuple(dict.fromkeys(names))
    rows, highest = [], (0.0, "")
    for outcome in mine:
        shares = tuple(_share(outcome, name) for name in measures)
        subject = f"{outcome.problem or outcome.id}, {outcome.direction or 'fwd'}"
        highest = max([highest, *((share, subject) for share in shares if share is not None)])
        cells = tuple(_against(outcome, name) for name in measures)
        views = tuple(_view(outcome, name) for name in VIEWS)
        rows.append(
            ValidationRow(
                outcome.problem or outcome.id,
                outcome.direction or "",
                LOOKS[outcome.state],
                shares,
                (*cells, *views),
            )
        )
    good = sum(row.look.tone in ("good", "slow") for row in rows)
    summary = f"{good} of {text.count(len(rows), 'result')} within their limits"
    if highest[1]:
        summary += f"; the largest error is {highest[0]:.0%} of its limit ({text.one_line(highest[1], 90)})"
    return Validation(measures, tuple(rows), summary + ".")


def _view(outcome: Outcome, name: str) -> str:
    value = outcome.numerics.get(name)
    share = text.numeric(value)
    return f"{share:.0%}" if share is not None else text.show(value) if value is not None else ""


def _share(outcome: Outcome, name: str) -> Optional[float]:
    value = text.numeric(outcome.numerics.get(name))
    limit = text.numeric(outcome.numerics.get(f"{name}_limit"))
    return value / limit if value is not None and limit else None


def _against(outcome: Outcome, name: str) -> str:
    if name not in outcome.numerics:
        return ""
    return f"{text.show(outcome.numerics[name])} of {text.show(outcome.numerics.get(f'{name}_limit'))}"
