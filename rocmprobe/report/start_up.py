"""First calls as a table: what search and compilation take, cold and warm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from rocmprobe.judge.start_up import FirstCalls, start_ups
from rocmprobe.model import Results
from rocmprobe.report import text
from rocmprobe.report.measures import Table


@dataclass(frozen=True)
class StartUps:
    caption: str
    table: Table


def start_up(results: Results) -> Optional[StartUps]:
    """First calls under each setting, cold and warm, beside the calls that follow."""
    found = start_ups(results)
    if not found:
        return None
    devices = {each.device for each in found}
    survives = {True: "yes", False: "no", None: "too few starts to tell"}
    rows = tuple(
        (
            each.problem if len(devices) == 1 else f"{each.problem} ({each.device})",
            each.setting,
            _first_calls(each.cold),
            _first_calls(each.warm),
            text.seconds(each.steady),
            survives[each.cache_survives],
        )
        for each in found
    )
    caption = (
        "Median of the first call in new processes, least to largest in brackets: with empty databases and "
        "caches, with those that such a process left, and of the calls that follow. Warm is faster where its "
        "every first call was."
    )
    if results.simulated:
        caption += " Times of the simulating CPU, whose library keeps nothing."
    header = ("problem", "setting", "cold first call", "warm first call", "steady", "warm is faster")
    return StartUps(caption, Table(header, rows))


def _first_calls(calls: FirstCalls) -> str:
    return f"{text.seconds(calls.median)} ({text.seconds(calls.least)} to {text.seconds(calls.largest)})"
