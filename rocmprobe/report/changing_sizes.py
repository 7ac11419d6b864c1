"""Table of first calls with new input sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.findings.changing_sizes import CALLS, new_sizes
from rocmprobe.model.results import Results
from rocmprobe.report.tables import Table, with_device
from rocmprobe.text import readable as text


@dataclass(frozen=True)
class Sizes:
    caption: str
    table: Table


def changing_sizes(results: Results) -> Optional[Sizes]:
    """Return the times for new input sizes, one row per setting, or None if no setting was measured."""
    found = new_sizes(results.outcomes)
    if not found:
        return None
    devices = {each.device for each in found}
    rows = tuple(
        (
            with_device(each.setting, each.device, devices),
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
        "A small network of two convolutions, called with new input sizes. Times are those of the first call "
        "with each size (mean and largest), and of later calls. The last two columns show the calls per hour "
        "if every call has a new size, and the minutes per hour that new sizes cost if one of "
        f"{CALLS} calls has a new size."
    )
    if results.simulated:
        caption += " Times are those of the CPU that simulates the GPU, plus the simulated searches."
    header = (
        "setting", "new size", "largest", "known size", "sizes", "calls per hour if every size is new",
        f"minutes lost per hour if 1 of {CALLS} calls has a new size",
    )  # fmt: skip
    return Sizes(caption, Table(header, rows))
