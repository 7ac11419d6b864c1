"""The answer for programs whose input sizes keep changing, where it is another than for one size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from rocmprobe.judge.findings.sizes import quickest
from rocmprobe.model.results import Results

#: The purpose, in a key of ``Recommendation.per``, and in words.
CHANGING_SIZES = "changing-sizes"
IN_WORDS = "input sizes that keep changing"


def for_changing_sizes(results: Results, dtype: str, chosen: Optional[str]) -> dict[str, Mapping[str, Any]]:
    """The entry of ``per`` for that purpose; empty where ``chosen``, the setting that is recommended for
    inference, is as good, or where nothing was measured."""
    better = quickest(results, dtype, chosen)
    if better is None:
        return {}
    best, _ = better
    setting = next(each for each in results.settings if each.name == best.setting)
    answer = {
        "verdict": setting.verdict, "setting": setting.name, "env": dict(setting.env),
        "new_size_seconds": best.new,
    }  # fmt: skip
    return {f"{dtype}/{CHANGING_SIZES}": answer}


def in_words(results: Results, dtype: str, chosen: Optional[str]) -> str:
    """The same as a sentence, after a space."""
    better = quickest(results, dtype, chosen)
    if better is None:
        return ""
    best, own = better
    return (
        f" For {IN_WORDS}, use the setting “{best.setting}”: a new size costs "
        f"{best.new:.2g} s instead of {own.new:.3g} s."
    )
