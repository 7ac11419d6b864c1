"""Short codes of settings, for column headers and bars that are too narrow for the names."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LONGEST = 3


def short_codes(names: Iterable[str]) -> dict[str, str]:
    """Return a unique code for each name: its initials, or its first two letters if it is a single word."""
    codes: dict[str, str] = {}
    for name in names:
        words = [word for word in re.split(r"\W+", name) if word]
        if len(words) > 1:
            code = "".join(word[0] for word in words[:_LONGEST]).upper()
        else:
            word = words[0] if words else "?"
            code = word.upper() if len(word) <= _LONGEST else word[:2].capitalize()
        number, found = 1, code
        while found in codes.values():
            number += 1
            found = f"{code}{number}"
        codes[name] = found
    return codes
