"""The data tables of the package, ``data/*.toml``."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import tomli


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
