"""Cache folders of the user, in which a process stores results and compiled kernels for later processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Optional


def folder(environ: Mapping[str, str], variable: str, name: str) -> Optional[Path]:
    """Return ``environ[variable]`` as a path, else ``rocmprobe/NAME`` in XDG_CACHE_HOME or ~/.cache.

    Return None if ``variable`` is ``0``, which disables caching, or if the user has no home.
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
