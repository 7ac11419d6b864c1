"""Parts that several sections use: tables of values, and limits for the size of the page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocmprobe.report import text
from rocmprobe.report.states import VERDICT_WORDS


@dataclass(frozen=True)
class Table:
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(rows: Sequence[Mapping[str, Any]], first: Sequence[str]) -> Table:
    """Return a table of ``rows``, which can have any keys."""
    names = list(dict.fromkeys([*first, *(name for row in rows for name in row)]))
    names = [name for name in names if any(_cell(name, row.get(name)) for row in rows)]
    body = tuple(tuple(_cell(name, row.get(name)) for name in names) for row in rows)
    return Table(tuple(name.replace("_", " ") for name in names), body)


def with_device(name: str, device: str, devices: Collection[str]) -> str:
    """Return ``name``, followed by the device if there are several ``devices``."""
    return f"{name} ({device})" if len(devices) > 1 else name


def _cell(name: str, value: Any) -> str:
    if value in (None, ""):
        return ""
    if name == "verdict":
        return VERDICT_WORDS.get(str(value), str(value))
    amount = text.numeric(value)
    if amount is not None and name.endswith("seconds"):
        return text.seconds(amount)
    if amount is not None and name.endswith("bytes"):
        return text.bytes_(amount)
    return text.show(value)


#: Largest size of a page in bytes. Issue trackers accept attachments of up to 25 MB.
CAP = 20_000_000


@dataclass(frozen=True)
class Fit:
    """Size limits for the content of the page.

    - ``value``: characters of a value
    - ``width``: characters of a line
    - ``lines``: lines of a failed outcome or of a log
    - ``entries``: failed outcomes in a group, also the number of logs
    - ``rows``: other outcomes in a group, also the rows of the table of all outcomes
    - ``data``: bytes of the embedded results

    ``tables`` is True if tables of measurements are shown. ``left_out`` names the parts that the page
    lacks.
    """

    value: int
    width: int
    lines: int
    entries: int
    rows: int
    data: int
    tables: bool
    left_out: str


#: Limits, from the largest page to the smallest. The first limits that give a page below CAP are used.
FITS = (
    Fit(4000, 2000, 200, 1_000_000, 1_000_000, CAP, True, ""),
    Fit(
        1000, 300, 20, 2_000, 8_000, 0, True,
        "the later lines of evidence and logs, results.json itself, failed outcomes after the first 2000, "
        "and other outcomes after the first 8000",
    ),
    Fit(
        300, 200, 10, 500, 2_000, 0, False,
        "the later lines of evidence and logs, matrices and tables of measurements, results.json itself, "
        "failed outcomes after the first 500, and other outcomes after the first 2000",
    ),
    Fit(
        200, 80, 3, 50, 100, 0, False,
        "nearly all evidence, matrices and tables, results.json itself, and all but a few outcomes",
    ),
)  # fmt: skip


def fit_lines(lines: list[str], fit: Fit) -> list[str]:
    """Return ``lines`` within the limits of ``fit``."""
    if len(lines) > fit.lines:
        head = fit.lines // 2
        tail = fit.lines - head
        left_out = f"[{len(lines) - fit.lines} lines left out]"
        lines = [*lines[:head], left_out, *lines[-tail:]]
    return [clipped(line, fit.width) for line in lines]


def clipped(text: str, limit: int) -> str:
    """Return the first ``limit`` characters of ``text``, followed by the number of cut characters."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … [{len(text) - limit} characters left out]"
