"""Suggestions for a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Collection

#: Names less similar than this (0 to 1) are no suggestion.
_SIMILAR = 0.5


def did_you_mean(word: str, names: Collection[str]) -> str:
    """Return "; did you mean NAME?" for the name nearest to ``word``, or "" if none is near."""
    nearest = difflib.get_close_matches(word.lower(), names, 1, _SIMILAR)
    # A prefix such as "conv" is little similar to a long name.
    nearest += [name for name in names if len(word) > 2 and name.startswith(word.lower())]
    return f"; did you mean {nearest[0]}?" if nearest else ""
