"""How much the tests try: `pytest` each feature and rule once, `.ci/run` also what costs more."""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("ROCMPROBE_THOROUGH"))


def examples(thorough: int) -> int:
    """How many examples hypothesis draws: ``thorough`` of them, or a fifth."""
    return thorough if THOROUGH else max(10, thorough // 5)
