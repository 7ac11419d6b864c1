"""Durations in words."""

from __future__ import annotations


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
