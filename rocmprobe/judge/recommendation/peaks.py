"""What settings take of memory, by what the check of memory measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from rocmprobe.judge.assessment import device_of, representative
from rocmprobe.model.results import Outcome, Results, Setting

#: Peaks this close count as equal: allocators round sizes up, for which the check allows as much.
SAME_MEMORY = 1.2
#: No device has as many bytes; what is more is no measurement.
_MOST = 2**60


def peaks(results: Results, settings: Iterable[Setting], dtype: str, purpose: str) -> dict[str, float]:
    """Bytes by setting: the peaks above the operands over the memory problems of ``dtype`` that all of them
    were measured on, added up; for inference those of the forward direction alone.

    The check runs under few settings: one without a value gets that of its representative.
    Settings of which nothing is known are left out.
    """
    measured: dict[str, dict[str, float]] = {}
    for outcome in results.outcomes:
        asked = (outcome.device, outcome.dtype) == (device_of(results), dtype)
        peak = _peak(outcome, purpose) if asked else None
        if peak and outcome.problem:
            measured.setdefault(outcome.setting, {})[outcome.problem] = peak
    found = {
        setting.name: measured.get(setting.name) or measured.get(representative(setting), {})
        for setting in settings
    }
    known = {name: rows for name, rows in found.items() if rows}
    common = set.intersection(*map(set, known.values())) if known else set()
    return {name: sum(rows[text] for text in common) for name, rows in known.items() if common}


def _peak(outcome: Outcome, purpose: str) -> Optional[float]:
    """Bytes above the operands. What took more than was predicted is as well measured as the rest."""
    if outcome.check != "memory":
        return None
    whole, above, forward = (
        _bytes(outcome.memory.get(f"{name}_bytes")) for name in ("peak", "above_output", "forward_workspace")
    )
    if purpose != "inference" or whole is None or above is None or forward is None:
        return whole
    return max(0.0, whole - above + forward)


def _bytes(value: object) -> Optional[float]:
    """``value`` if it is an amount of memory; results may come from elsewhere, and hold anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < _MOST else None
