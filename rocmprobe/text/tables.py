"""The data tables of the package, ``data/*.toml``."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, TypeVar

import msgspec
import tomli

_T = TypeVar("_T")


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the types of rows. Every key of a row must be a field."""


def toml(text: str) -> dict[str, Any]:
    """Parse ``text`` as TOML. Raise ValueError if the text is not TOML."""
    # tomli is compiled and needs a third of the time of tomllib.
    return tomli.loads(text)


def table_text(name: str) -> str:
    """Return the text of ``data/NAME.toml``."""
    return resources.files("rocmprobe").joinpath(f"data/{name}.toml").read_text("utf-8")


@cache
def table(name: str) -> dict[str, Any]:
    """Return the parsed ``data/NAME.toml``. The caller must not change the returned object."""
    return toml(table_text(name))


def rows(name: str, key: str, kind: type[_T]) -> tuple[_T, ...]:
    """Return the rows ``[[key]]`` of ``data/NAME.toml`` as objects of the type ``kind``."""

    def convert(row: dict[str, Any]) -> _T:
        try:
            return msgspec.convert(row, kind)
        except msgspec.ValidationError as error:
            raise invalid_row(name, key, row, error) from error

    return tuple(map(convert, table(name)[key]))


def invalid_row(name: str, key: str, row: dict[str, Any], error: Exception) -> ValueError:
    """Return an exception that names the invalid row by its first field."""
    return ValueError(f"data/{name}.toml: [[{key}]] {next(iter(row.values()), '')}: {error}")
