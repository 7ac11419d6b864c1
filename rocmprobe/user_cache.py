"""The folder in which what one process found out or compiled is kept for the next ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Optional


def folder(environ: Mapping[str, str], variable: str, name: str) -> Optional[Path]:
    """What ``variable`` names, or ``rocmprobe/NAME`` in ``$XDG_CACHE_HOME`` or ``~/.cache``. None where
    nothing is kept: the variable is ``0``, or the user has no home."""
    named = environ.get(variable)
    if named == "0":
        return None
    if not named:
        home = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if not os.path.isabs(home):
            # A user without a home, as containers have them.
            return None
        named = os.path.join(home, "rocmprobe", name)
    return _absolute(named)


@cache
def _absolute(path: str) -> Path:
    # Once: a program may change its working directory.
    return Path(path).absolute()
