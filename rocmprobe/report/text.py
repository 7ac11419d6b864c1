"""Text and numbers as people read them, and foreign text made harmless for any medium."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Optional

from markupsafe import Markup

#: Colour codes, cursor moves and terminal titles (CSI, OSC, and two-character sequences).
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")

#: What XML forbids, what terminals obey, and what reorders the text around it (bidi controls, U+2028).
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def plain(text: str) -> str:
    """``text`` without terminal sequences; other control characters become visible escapes.

    Newlines and tabs stay. Markup stays Markup.
    """
    cleaned = _ESCAPES.sub("", str(text)).replace("\r\n", "\n").replace("\r", "\n")
    cleaned = _UNSAFE.sub(_visible, cleaned)
    return Markup(cleaned) if isinstance(text, Markup) else cleaned  # noqa: S704 - was Markup before


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str, limit: int = 200) -> str:
    line = " ".join(plain(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def show(value: Any) -> str:
    """Any JSON value as a short text for a table cell."""
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
    """``value`` as a finite float, or None: timings come from a file that anyone may have edited."""
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
    """An ISO 8601 time, or None; Python 3.9 does not know the suffix Z."""
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
