"""Suggestions for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_SIMILAR = 0.5


def did_you_mean(word: str, names: Collection[str]) -> str:
    """Return "; did you mean NAME?" for the name most similar to ``word``, or "" if no name is similar."""
    nearest = difflib.get_close_matches(word.lower(), names, 1, _SIMILAR)
    # Search for prefixes separately, because a prefix such as "conv" has little similarity to a long name.
    nearest += [name for name in names if len(word) > 2 and name.startswith(word.lower())]
    return f"; did you mean {nearest[0]}?" if nearest else ""
