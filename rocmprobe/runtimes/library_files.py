"""File names of shared libraries, and the search path of the dynamic loader (ld.so(8))."""

from __future__ import annotations

import re
from collections.abc import Iterable


def pattern(*libraries: str) -> re.Pattern[str]:
    """Return a pattern for the file names of ``libraries``.

    The two groups of the pattern are the library and its version, e.g. "libamdhip64" and ".5.0.50200".
    """
    # Bundled libraries in wheels of torch 1.9 and older have a hash in their names.
    return re.compile(rf"({'|'.join(libraries)})(?:-[0-9a-f]{{8}})?\.so((?:\.[0-9]+)*)")


def newest(names: Iterable[str], wanted: re.Pattern[str]) -> dict[str, str]:
    """Return the newest file of each library, keyed by library.

    ``wanted`` is a pattern from :func:`pattern`.
    """
    newest_files: dict[str, tuple[list[int], str]] = {}
    for name in names:
        match = wanted.fullmatch(name) if name.startswith("lib") else None
        if match:
            version = [int(number) for number in match[2].split(".")[1:]]
            newest_files[match[1]] = max(newest_files.get(match[1], ([], "")), (version, name))
    return {library: name for library, (_, name) in newest_files.items()}


def search_path(value: str) -> list[str]:
    """Return the absolute folders in an LD_LIBRARY_PATH."""
    # Relative folders depend on the working directory of the program, which is unknown.
    return [name for name in re.split("[:;]", value) if name.startswith("/")]
