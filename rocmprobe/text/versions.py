"""Comparison of versions by their numbers.

The package ``packaging`` refuses versions of ROCm's libraries, e.g. "5.2.21151-afdc89f8" of HIP.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Optional

#: The leading numbers of a version. Versions with fewer numbers come first.
Release = tuple[int, ...]


@cache
def version_numbers(version: str) -> Release:
    """Return the first three numbers of a version, without a local part such as "+rocm5.2"."""
    return tuple(int(number) for number in re.findall(r"\d{1,9}", version.partition("+")[0])[:3])


def release(version: Optional[str]) -> Optional[Release]:
    """Return (major, minor) of a version, or None if it has no such numbers."""
    numbers = version_numbers(version or "")[:2]
    return numbers if len(numbers) == 2 else None


def within(version: str, since: str, until: str) -> bool:
    """Return True if ``version`` is between ``since`` and ``until``, both included.

    If ``until`` is "2.6", every 2.6.x is included. If ``until`` is "", there is no upper limit.
    """
    numbers, last = version_numbers(version), version_numbers(until)
    return version_numbers(since) <= numbers and (not until or numbers[: len(last)] <= last)
