"""How much the tests try: `pytest` each feature and rule once, `.ci/run` also what costs more."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

try:
    #: torch before 2.0 lacks kernels on a CPU: most of float16, and loss scaling.
    OLD_TORCH = version("torch").startswith("1.")
except PackageNotFoundError:
    OLD_TORCH = False
THOROUGH = bool(os.environ.get("ROCMPROBE_THOROUGH"))


def examples(thorough: int) -> int:
    """How many examples hypothesis draws: ``thorough`` of them, or a fifth."""
    return thorough if THOROUGH else max(10, thorough // 5)
