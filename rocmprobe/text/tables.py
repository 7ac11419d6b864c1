"""The data tables of the package, ``data/*.toml``."""

from __future__ import annotations

import json
import os
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

#: Environment variable with the path of a folder that has the tables as NAME.json. A worker can run in a
#: Python without tomli, so the parent process writes the JSON files (``write_as_json``).
AS_JSON = "ROCMPROBE_TABLES"


def toml(text: str) -> dict[str, Any]:
    """Parse ``text`` as TOML. Raise ValueError if the text is not TOML."""
    # Imported late, because a worker can run in a Python without tomli. tomli is compiled and needs a
    # third of the time of tomllib.
    import tomli

    return tomli.loads(text)


def table_text(name: str) -> str:
    """Return the text of ``data/NAME.toml``."""
    return resources.files("rocmprobe").joinpath(f"data/{name}.toml").read_text("utf-8")


@cache
def table(name: str) -> dict[str, Any]:
    """Return the parsed ``data/NAME.toml``. The caller must not change the returned object."""
    folder = os.environ.get(AS_JSON)
    if not folder:
        return toml(table_text(name))
    found: dict[str, Any] = json.loads((Path(folder) / f"{name}.json").read_text("utf-8"))
    return found


@cache
def json_table(name: str) -> dict[str, Any]:
    """Return the parsed ``data/NAME.json``. The caller must not change the returned object."""
    file = resources.files("rocmprobe").joinpath(f"data/{name}.json")
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def write_as_json(folder: Path) -> None:
    """Write every table to ``folder`` as NAME.json. Raise OSError if a file cannot be written."""
    for each in resources.files("rocmprobe").joinpath("data").iterdir():
        if each.name.endswith(".toml"):
            name = each.name[: -len(".toml")]
            (folder / f"{name}.json").write_text(json.dumps(table(name), default=str), "utf-8")
