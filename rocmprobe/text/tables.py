"""The data tables of the package, ``data/*.toml``."""

from __future__ import annotations

import sys
from functools import cache
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["table", "table_text", "tomllib"]


def table_text(name: str) -> str:
    """``data/NAME.toml`` as it is written."""
    return resources.files("rocmprobe").joinpath(f"data/{name}.toml").read_text("utf-8")


@cache
def table(name: str) -> dict[str, Any]:
    """``data/NAME.toml``, parsed once. The caller changes nothing in it."""
    return tomllib.loads(table_text(name))
