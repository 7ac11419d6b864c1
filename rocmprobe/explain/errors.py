"""Meanings of errors without a certain cause: the rows of ``data/errors.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Optional

from rocmprobe.explain.inference import short
from rocmprobe.text.log import Line
from rocmprobe.text.tables import table

_LONGEST = 80


@dataclass(frozen=True)
class ErrorMeaning:
    """Meaning of an error: one row of data/errors.toml, which explains the fields."""

    of: str
    pattern: str
    says: str
    step: str
    layer: str
    source: str
    general: bool = False

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


@dataclass(frozen=True)
class FoundError:
    """Line of a log with the meaning of its error.

    ``general`` is True if the meaning only says which software failed.
    """

    line: int
    says: str
    step: str
    layer: str
    general: bool = False


@lru_cache(maxsize=1)
def meanings() -> tuple[ErrorMeaning, ...]:
    """Return every row, in the order of the table."""
    return tuple(ErrorMeaning(**row) for row in table("errors")["error"])


@cache
def _any_row(of: str) -> re.Pattern[str]:
    """Return one pattern for all rows of data/errors.toml whose field ``of`` has this value, e.g. "amd"."""
    return re.compile("|".join(f"(?:{row.pattern})" for row in meanings() if row.of == of))


def find_error(lines: Iterable[Line], of: str) -> Optional[FoundError]:
    """Return the meaning of an error in ``lines``, or None if no row of data/errors.toml matches.

    Use only rows whose field ``of`` has this value, e.g. "amd". Of these rows, the first that matches a line
    counts. If several lines match the row, use the last line.
    """
    any_row = _any_row(of)
    searched = [line for line in lines if any_row.search(line.text)]
    for row in meanings():
        if row.of != of:
            continue
        for line in reversed(searched):
            if match := row.regex.search(line.text):
                quoted = short(match[0].strip(), _LONGEST)
                return FoundError(
                    line.number, row.says.replace("{0}", quoted), row.step, row.layer, row.general
                )
    return None
