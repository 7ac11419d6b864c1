"""How much the tests try: `pytest` the distinct cases, `.ci/run` also what repeats over more of them."""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("ROCMPROBE_THOROUGH"))


def examples(thorough: int) -> int:
    """How many examples hypothesis draws: ``thorough`` of them, or a fifth."""
    return thorough if THOROUGH else max(10, thorough // 5)
