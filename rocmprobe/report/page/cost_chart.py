"""Chart of time and memory of the settings that give correct results, relative to a reference setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.knowledge.settings import title
from rocmprobe.model.results import Costs, SettingCost
from rocmprobe.report.page.bars import LONGEST, Bar


@dataclass(frozen=True)
class ChartRow:
    setting: str
    recommended: bool
    time: Optional[Bar]
    memory: Optional[Bar]


@dataclass(frozen=True)
class CostChart:
    """Rows of the chart. If ``busy``, times are not shown, because the noise is too large."""

    caption: str
    rows: tuple[ChartRow, ...]
    busy: bool


def cost_chart(found: Costs, simulated: bool) -> CostChart:
    where = ", on the CPU that simulates the GPU" if simulated else ""
    caption = f"{found.dtype}: relative to {title(found.reference)} (1.00x), shorter is better{where}."
    longest_time = max([row.high or 0.0 for row in found.rows] or [1.0]) or 1.0
    longest_peak = max([row.memory or 0.0 for row in found.rows] or [1.0]) or 1.0
    rows = tuple(_row(row, found, longest_time, longest_peak) for row in found.rows)
    return CostChart(caption, rows, found.busy)


def _row(row: SettingCost, found: Costs, longest_time: float, longest_peak: float) -> ChartRow:
    time = memory = None
    if row.time is not None and not found.busy:
        scale = LONGEST / longest_time
        low, high = (row.low or row.time) * scale, (row.high or row.time) * scale
        time = Bar(row.time * scale, f"{row.time:.2f}x", low, high)
    if row.memory is not None:
        memory = Bar(row.memory * LONGEST / longest_peak, f"{row.memory:.2f}x")
    return ChartRow(title(row.setting), row.recommended, time, memory)
