"""Lines of a summary that must fit on a screen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

#: Number of columns by which continuation rows are indented.
_INDENT = 2
#: A word, or code in backticks, which must not be broken because users copy the code.
_WORD = re.compile(r"(?:`[^`]*`|\S)+")


@dataclass(frozen=True)
class Line:
    """One line of a summary.

    If space is short, lines with the highest ``rank`` are left out first. A line is cut after ``most`` rows,
    where 0 means no limit. If ``copied``, the line is neither wrapped nor cut. ``in_report`` is True if the
    report has the line, too.
    """

    text: Text
    rank: int = 0
    most: int = 0
    copied: bool = False
    in_report: bool = False


def wrapped(words: Text, width: int) -> list[Text]:
    """Return ``words`` in rows of at most ``width`` columns."""
    starts: list[int] = []
    for word in _WORD.finditer(words.plain):
        begin = starts[-1] if starts else 0
        if word.start() > begin and cell_len(words.plain[begin : word.end()]) > width:
            starts.append(word.start())
    rows = list(words.divide(starts))
    for row in rows:
        row.rstrip()
    return rows


def print_paragraph(words: Text, console: Console, indent: int) -> None:
    """Print ``words``, wrapped and indented by ``indent`` columns, without breaking code."""
    for row in wrapped(words, max(20, console.width - indent)):
        console.print(Text(" " * indent).append_text(row), soft_wrap=True)


def print_lines(lines: Sequence[Line], console: Console) -> None:
    for line in lines:
        for row in _rows(line, console):
            console.print(row, soft_wrap=True)


def fitted(lines: Sequence[Line], most: int, console: Console) -> tuple[list[Line], list[Line]]:
    """Return the lines that fit into ``most`` rows, and the lines that are left out."""
    kept = list(lines)
    heights = {id(line): sum(_height(row, console) for row in _rows(line, console)) for line in lines}
    left_out = []
    while sum(heights[id(line)] for line in kept) > most:
        last = max(reversed(kept), key=lambda line: line.rank)
        if last.rank == 0:
            break
        kept.remove(last)
        left_out.append(last)
    return _without_double_blanks(kept), left_out


def _without_double_blanks(lines: Iterable[Line]) -> list[Line]:
    found: list[Line] = []
    for line in lines:
        if line.text.plain or (found and found[-1].text.plain):
            found.append(line)
    return found


def _height(row: Text, console: Console) -> int:
    return -(-row.cell_len // console.width) or 1 if console.is_terminal else 1


def _rows(line: Line, console: Console) -> list[Text]:
    # Do not wrap lines if a program reads the output.
    if line.copied or not console.is_terminal:
        return [line.text]
    width = max(20, console.width - _INDENT)
    rows = wrapped(line.text, width)
    if line.most and len(rows) > line.most:
        rows = rows[: line.most]
        rows[-1].rstrip()
        rows[-1].truncate(width - 1)
        rows[-1].append("…")
    return [rows[0], *(Text(" " * _INDENT).append_text(row) for row in rows[1:])]
