"""Cache folders of the user: results and compiled kernels that one process keeps for later processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Optional


def folder(environ: Mapping[str, str], variable: str, name: str) -> Optional[Path]:
    """Return the path in ``variable``, or ``rocmprobe/NAME`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Return None if the variable is ``0``, which disables caching, or if the user has no home.
    """
    named = environ.get(variable)
    if named == "0":
        return None
    if not named:
        home = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if not os.path.isabs(home):
            # Users in containers may have no home.
            return None
        named = os.path.join(home, "rocmprobe", name)
    return _absolute(named)


@cache
def _absolute(path: str) -> Path:
    # Cached, because a program may change its working directory.
    return Path(path).absolute()
