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


def examples(most: int) -> int:
    """How many examples hypothesis draws: half of ``most`` in `.ci/run`, else a fifth, and at least 10."""
    return max(10, most // 2 if THOROUGH else most // 5)
