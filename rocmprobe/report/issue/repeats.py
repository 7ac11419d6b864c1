"""Function that collapses repeated lines of a log."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONGEST = 40
#: Parts that differ between two prints of the same line: times, addresses, names of temporary files.
_VOLATILE = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{4}(?:-[0-9a-f]{4})+|\d+(?:\.\d+)?(?:e-?\d+)? ?[mun]?s\b")


def collapse(lines: Sequence[str]) -> list[str]:
    """Return the lines, with each repeated line or block shown once and followed by its count.

    Repetitions can differ in times, addresses and names of temporary files.
    """
    keys = [_VOLATILE.sub("", line.rstrip()) for line in lines]
    made: list[str] = []
    position = 0
    while position < len(lines):
        length, count = _repetition(keys, position)
        if count == 1:
            made.append(lines[position])
        elif length == 1:
            made.append(f"{lines[position]}  [{count} times]")
        else:
            block = collapse(lines[position : position + length])
            made += [*block, f"[the {len(block)} lines above: {count} times]"]
        position += length * count
    return made


def _repetition(keys: Sequence[str], start: int) -> tuple[int, int]:
    for length in range(1, _LONGEST + 1):
        block = keys[start : start + length]
        end = start + length
        while len(block) == length and keys[end : end + length] == block:
            end += length
        count = (end - start) // length
        # The count of a block of several lines needs an extra line. The result must still have fewer lines.
        if count > 1 and (length == 1 or (count - 1) * length > 1):
            return length, count
    return 1, 1
