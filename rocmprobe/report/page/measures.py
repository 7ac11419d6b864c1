"""Rows of values as a table: what the tables of the page have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocmprobe.report import text
from rocmprobe.report.states import VERDICT_WORDS


@dataclass(frozen=True)
class Table:
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(rows: Sequence[Mapping[str, Any]], first: Sequence[str]) -> Table:
    """Rows of any shape as a table: the columns of ``first``, then others as they appear."""
    names = list(dict.fromkeys([*first, *(name for row in rows for name in row)]))
    names = [name for name in names if any(_cell(name, row.get(name)) for row in rows)]
    body = tuple(tuple(_cell(name, row.get(name)) for name in names) for row in rows)
    return Table(tuple(name.replace("_", " ") for name in names), body)


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
