"""Limits for the size of the page."""

from __future__ import annotations

from dataclasses import dataclass

from rocmprobe.text.readable import clipped

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
