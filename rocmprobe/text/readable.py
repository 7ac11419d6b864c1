"""Readable forms of values: numbers with units, counts, dates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Optional

from rocmprobe.text import plain_text

one_line, plain = plain_text.one_line, plain_text.plain


def show(value: Any) -> str:
    """Return any JSON value as a short text for a table cell."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={show(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(show(item) for item in value)
    return str(value)


def number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else str(value)


def numeric(value: Any) -> Optional[float]:
    """Return ``value`` as a finite float, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def seconds(value: Optional[float]) -> str:
    value = numeric(value)
    if value is None:
        return "unknown"
    if value <= 0:
        return "0 s"
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def duration(seconds: float, rough: bool = False) -> str:
    """Return a duration as text, e.g. "2 h 05 min" or "1 min 30 s".

    If ``rough``, round durations of at least one minute to whole minutes.
    """
    whole = round(seconds / 60) * 60 if rough and seconds >= 60 else round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    parts = [f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest or not minutes)
    return " ".join(parts)


def spread(median: Optional[float], low: Optional[float], high: Optional[float]) -> str:
    """Return a time with its range, e.g. "20 ms (10 ms to 40 ms)"."""
    return f"{seconds(median)} ({seconds(low)} to {seconds(high)})"


def bytes_(value: Optional[float]) -> str:
    if value is None:
        return "unknown"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= size:
            amount = value / size
            return f"{amount:.3g} {unit}" if abs(amount) < 999.5 else f"{amount:.0f} {unit}"
    return f"{value:.0f} B"


def count(amount: int, noun: str, plural: str = "") -> str:
    return f"{amount} {noun if amount == 1 else plural or noun + 's'}"


def moment(text: Optional[str]) -> Optional[datetime]:
    """Parse an ISO 8601 time, also with the suffix Z. Return None if ``text`` is missing or invalid."""
    try:
        return datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None


def date(text: Optional[str]) -> str:
    when = moment(text)
    if when is None:
        return text or "unknown"
    zone = " UTC" if when.tzinfo is not None and not when.utcoffset() else when.strftime(" %z").rstrip()
    return when.strftime("%Y-%m-%d %H:%M") + zone


def clipped(text: str, limit: int) -> str:
    """Return the first ``limit`` characters of ``text``, followed by the number of cut characters."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … [{len(text) - limit} characters left out]"
