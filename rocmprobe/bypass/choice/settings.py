"""Defaults of the bypass from environment variables, and checks of names."""

from __future__ import annotations

import os
from collections.abc import Collection
from math import inf
from typing import Optional

from rocmprobe.bypass.algorithms import ALGORITHMS

DEFAULT_WORKSPACE_MB = 256
MEGABYTE = 1 << 20
WORKSPACE_VARIABLE = "ROCMPROBE_BYPASS_WORKSPACE_MB"
ALGORITHM_VARIABLE = "ROCMPROBE_BYPASS_ALGORITHM"
_NAMES = ("auto", *ALGORITHMS)


def check_known(value: str, known: Collection[str], what: str) -> None:
    """Raise ValueError if ``value`` is not in ``known``. ``what`` names the kind of the value."""
    if value not in known:
        raise ValueError(f"no {what} {value!r}; there are {', '.join(known)}")


def workspace_or_default(workspace_mb: Optional[float]) -> float:
    """Return ``workspace_mb``, or the default in MiB if it is None.

    The default is the environment variable ROCMPROBE_BYPASS_WORKSPACE_MB, or 256 if it is not set.

    Raises:
        ValueError: if the workspace is not a positive number.
    """
    if workspace_mb is not None:
        if not 0 < workspace_mb < inf:
            raise ValueError(f"workspace_mb must be a positive number of MiB, not {workspace_mb!r}")
        return workspace_mb
    text = os.environ.get(WORKSPACE_VARIABLE) or str(DEFAULT_WORKSPACE_MB)
    try:
        return workspace_or_default(float(text))
    except ValueError:
        raise ValueError(f"{WORKSPACE_VARIABLE}={text}: set a positive number of MiB") from None


def algorithm_or_default(algorithm: Optional[str]) -> str:
    """Return ``algorithm``, or the default if it is None.

    The default is the environment variable ROCMPROBE_BYPASS_ALGORITHM, or "auto" if it is not set.

    Raises:
        ValueError: if the algorithm is unknown.
    """
    if algorithm is not None:
        check_known(algorithm, _NAMES, "algorithm")
        return algorithm
    text = os.environ.get(ALGORITHM_VARIABLE) or "auto"
    if text not in _NAMES:
        raise ValueError(f"{ALGORITHM_VARIABLE}={text}: there are {', '.join(_NAMES)}")
    return text
