"""What each new input size costs under each setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.findings.sizes import CALLS, new_sizes
from rocmprobe.model.results import Results
from rocmprobe.report import text
from rocmprobe.report.page.layout import Table


@dataclass(frozen=True)
class Sizes:
    caption: str
    table: Table


def changing_sizes(results: Results) -> Optional[Sizes]:
    """A row for each setting that was measured, in the order of the outcomes."""
    found = new_sizes(results)
    if not found:
        return None
    devices = {each.device for each in found}
    rows = tuple(
        (
            each.setting if len(devices) == 1 else f"{each.setting} ({each.device})",
            text.seconds(each.new),
            text.seconds(each.largest),
            text.seconds(each.known),
            str(each.sizes),
            f"{each.calls_an_hour:,.0f}",
            f"{each.lost_minutes:.1f}",
        )
        for each in found
    )
    caption = (
        "A small network of two convolutions, asked for sizes that its process has not seen: seconds of the "
        "first call of each (mean and largest), and of calls whose size is known. In an hour of work: the "
        "calls where each has a new size, and the minutes that go into new sizes where one of "
        f"{CALLS} calls has one."
    )
    if results.simulated:
        caption += " Times are those of the simulating CPU, with the searches of the simulated machine."
    header = (
        "setting", "new size", "largest", "known size", "sizes", "calls in an hour, all new",
        f"minutes of an hour, one of {CALLS} new",
    )  # fmt: skip
    return Sizes(caption, Table(header, rows))
