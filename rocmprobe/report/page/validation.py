"""Section about the accuracy of the bypass: errors relative to their limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Optional

from rocmprobe.checks import CONVOLUTIONS
from rocmprobe.model.problems import problem_words
from rocmprobe.model.results import Outcome, Results
from rocmprobe.model.states import State
from rocmprobe.report.anchors import anchor
from rocmprobe.report.page.bars import Chart, chart
from rocmprobe.report.page.evidence import share_of_limit
from rocmprobe.text import readable as text

#: Column headings of the measures that are shown without a limit.
VIEWS = {"bound_ratio": "of its bound", "exact": "integers equal", "cancelling": "and where they cancel"}
#: First line and rows of an error map in the evidence, as ``checks.tools.compare`` writes them.
_MAP = "error map:"
_MAP_ROW = re.compile(r" *[0-9]+ [.+#]+")
_SHOWN_MAPS = 6


#: The page has a chart only if at least one error reaches this fraction of its limit.
_NEAR = 0.5


@dataclass(frozen=True)
class ValidationRow:
    problem: str
    direction: str
    look: State
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """Errors of the bypass, divided by their limits.

    ``maps`` has at most ``_SHOWN_MAPS`` text maps of wrong elements, and ``wrong`` is the number of all maps.
    """

    measures: tuple[str, ...]
    rows: tuple[ValidationRow, ...]
    summary: str
    charts: tuple[Chart, ...]
    maps: tuple[tuple[str, str, str], ...]
    wrong: int


def validation(results: Results) -> Optional[Validation]:
    bypass = {setting.name for setting in results.settings if setting.bypass} | {"bypass"}
    mine = [o for o in results.outcomes if o.check in CONVOLUTIONS and o.setting in bypass and o.numerics]
    if not mine:
        return None
    names = [name for o in mine for name in o.numerics if f"{name}_limit" in o.numerics]
    measures = tuple(dict.fromkeys(names))
    rows, highest = [], (0.0, "")
    worst: dict[tuple[str, str], float] = {}
    for outcome in mine:
        shares = [share for name in measures if (share := share_of_limit(outcome, name)) is not None]
        subject = f"{problem_words(outcome.problem or outcome.id)}, {outcome.direction or 'fwd'}"
        highest = max([highest, *((share, subject) for share in shares)])
        place = outcome.dtype, outcome.direction or "fwd"
        worst[place] = max([worst.get(place, 0.0), *shares])
        cells = tuple(_against(outcome, name) for name in measures)
        views = tuple(_view(outcome, name) for name in VIEWS)
        rows.append(
            ValidationRow(
                outcome.problem or outcome.id,
                outcome.direction or "",
                outcome.meaning,
                (*cells, *views),
            )
        )
    good = sum(row.look.tone in ("good", "slow") for row in rows)
    summary = f"{good} of {text.count(len(rows), 'result')} within their limits"
    if highest[1]:
        summary += f"; the largest error is {highest[0]:.0%} of its limit ({text.one_line(highest[1], 90)})"
    maps, wrong = _maps(results)
    return Validation(
        measures, tuple(rows), f"{summary}.", _charts(worst) if highest[0] >= _NEAR else (), maps, wrong
    )


def _charts(worst: Mapping[tuple[str, str], float]) -> tuple[Chart, ...]:
    """Return one chart for each dtype, with the largest error of each direction."""
    return tuple(
        chart(
            f"Largest error as a share of its limit, {dtype}",
            [
                *(
                    (direction, "first", share, f"{share:.3g}")
                    for (of, direction), share in worst.items()
                    if of == dtype
                ),
                ("limit", "limit", 1.0, "1"),
            ],
        )
        for dtype in dict.fromkeys(dtype for dtype, _ in worst)
    )


def _maps(results: Results) -> tuple[tuple[tuple[str, str, str], ...], int]:
    wrong = [
        (position, outcome)
        for position, outcome in enumerate(results.outcomes)
        if any(line.startswith(_MAP) for line in outcome.evidence)
    ]
    found = []
    for position, outcome in wrong[:_SHOWN_MAPS]:
        start = next(i for i, line in enumerate(outcome.evidence) if line.startswith(_MAP))
        rows = takewhile(_MAP_ROW.fullmatch, outcome.evidence[start + 1 :])
        label = " · ".join(filter(None, (outcome.problem, outcome.direction, outcome.setting)))
        found.append((text.one_line(label or outcome.id), "\n".join(rows), anchor(position)))
    return tuple(found), len(wrong)


def _view(outcome: Outcome, name: str) -> str:
    value = outcome.numerics.get(name)
    share = text.numeric(value)
    return f"{share:.0%}" if share is not None else text.show(value) if value is not None else ""


def _against(outcome: Outcome, name: str) -> str:
    if name not in outcome.numerics:
        return ""
    share = share_of_limit(outcome, name)
    used = f", {share:.0%}" if share is not None else ""
    return f"{text.show(outcome.numerics[name])} of {text.show(outcome.numerics.get(f'{name}_limit'))}{used}"
