"""Redaction: user, home and host never leave the house, since reports get attached to public issues."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any


@lru_cache(maxsize=1)
def _identifiers() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Patterns of this machine's identifiers and their placeholders, longest first.

    A name shorter than three letters, or one like ``root``, is everybody's and stays.
    """
    host = socket.gethostname()
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or Path.home().name
    # Libraries print paths as they resolved them, and a host without its domain.
    homes = {str(Path.home()), str(Path.home().resolve())}
    names = {host: "<host>", host.partition(".")[0]: "<host>", user: "<user>"}
    rules = []
    for home in sorted(homes, key=len, reverse=True):
        if len(home) > 1:
            rules.append((re.compile(re.escape(home) + r"(?=/|\W|$)"), "<home>"))
    for name, placeholder in sorted(names.items(), key=lambda item: len(item[0]), reverse=True):
        if len(name) >= 3 and name not in ("root", "localhost", "user"):
            rules.append((re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])"), placeholder))
    return tuple(rules)


#: Keys under which results and journal hold free text; ids, states and names stay as they are.
_FREE_TEXT = frozenset({"value", "source", "log", "evidence", "message", "folder"})


def redacted(data: Any, free_text: bool = False) -> Any:
    """JSON ``data`` with identifiers in its free text replaced by stable placeholders."""
    if isinstance(data, str):
        for pattern, placeholder in _identifiers() if free_text else ():
            data = pattern.sub(placeholder, data)
        return data
    if isinstance(data, Mapping):
        return {key: redacted(item, free_text or key in _FREE_TEXT) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [redacted(item, free_text) for item in data]
    return data
