"""Cache folders of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Optional


def folder(environ: Mapping[str, str], variable: str, name: str) -> Optional[Path]:
    """Return the folder in ``environ[variable]``, by default ``rocmprobe/NAME`` in the user's cache folder.

    Return None if the variable is "0" or if the user has no home.
    """
    named = environ.get(variable)
    if named == "0":
        return None
    if not named:
        home = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if not os.path.isabs(home):
            # A user in a container can have no home.
            return None
        named = os.path.join(home, "rocmprobe", name)
    return _absolute(named)


@cache
def _absolute(path: str) -> Path:
    # Cache the result, because a program can change its working directory.
    return Path(path).absolute()
