"""What is kept of a failure: of all that a child printed, the lines that explain it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rocmprobe.knowledge.miopen_log import Reading
from rocmprobe.text.log import same

#: Lines of each kind that are kept.
_MOST = 15
#: Innermost frames kept of a stack.
_FRAMES = 8
_TELLING = re.compile(r"error|fatal|fault|abort|terminate|what\(\)|exception", re.IGNORECASE)


def evidence_of(log: str, reading: Reading, raised: Iterable[str]) -> list[str]:
    """Lines, the most informative first: the errors in the library's log (``reading``), its last command,
    lines that read like a failure, the stack, what Python raised, and the end of what was printed.

    Of lines that differ by numbers, addresses and names of temporary files alone the first is kept: each try
    prints its own.
    """
    printed = [line for line in log.splitlines() if line.strip()]
    telling = [line for line in printed if _TELLING.search(line)]
    return _distinct(
        [
            *_distinct(reading.errors)[:_MOST], *reading.commands[-1:], *telling[-_MOST:], *_stack(printed),
            *raised, *printed[-_MOST:],
        ]
    )  # fmt: skip


def _distinct(lines: Iterable[str]) -> list[str]:
    found: dict[str, str] = {}
    for line in lines:
        found.setdefault(same(line), line)
    return list(found.values())


def _stack(printed: list[str]) -> list[str]:
    """The innermost frames of the last stack that faulthandler printed of the thread that Python ran."""
    starts = [number for number, line in enumerate(printed) if line.startswith("Current thread 0x")]
    return printed[starts[-1] : starts[-1] + _FRAMES + 1] if starts else []
