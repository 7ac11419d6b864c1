"""Shared libraries by their file names, and the search path of the dynamic loader (ld.so(8))."""

from __future__ import annotations

import re
from collections.abc import Iterable


def pattern(*libraries: str) -> re.Pattern[str]:
    """Return the pattern of the file names of ``libraries``.

    Its groups are the library and its version, ".5.0.50200". Wheels of torch 1.9 and older add a hash to the
    names of bundled libraries.
    """
    return re.compile(rf"({'|'.join(libraries)})(?:-[0-9a-f]{{8}})?\.so((?:\.[0-9]+)*)")


def newest(names: Iterable[str], wanted: re.Pattern[str]) -> dict[str, str]:
    """Return the newest file in ``names`` (of one folder) for each library of a ``pattern``."""
    found: dict[str, tuple[list[int], str]] = {}
    for name in names:
        match = wanted.fullmatch(name) if name.startswith("lib") else None
        if match:
            version = [int(number) for number in match[2].split(".")[1:]]
            found[match[1]] = max(found.get(match[1], ([], "")), (version, name))
    return {library: name for library, (_, name) in found.items()}


def search_path(value: str) -> list[str]:
    """Return the folders of an LD_LIBRARY_PATH. Relative folders mean nothing outside of the program."""
    return [name for name in re.split("[:;]", value) if name.startswith("/")]
