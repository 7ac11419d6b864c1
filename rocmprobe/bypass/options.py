"""What holds where a caller does not say: variables of the user, else the defaults."""

from __future__ import annotations

import os

from rocmprobe.bypass.algorithms import ALGORITHMS
from rocmprobe.bypass.plan import DEFAULT_WORKSPACE_MB, POLICIES

WORKSPACE_VARIABLE = "ROCMPROBE_BYPASS_WORKSPACE_MB"
ALGORITHM_VARIABLE = "ROCMPROBE_BYPASS_ALGORITHM"


def workspace_or_default(workspace_mb: float | None) -> float:
    """MiB of workspace: the argument, else the variable, else 256.

    Raises:
        ValueError: for what is not a positive number.
    """
    if workspace_mb is not None:
        if not workspace_mb > 0:
            raise ValueError(f"workspace_mb is a positive number of MiB, not {workspace_mb!r}")
        return workspace_mb
    text = os.environ.get(WORKSPACE_VARIABLE) or str(DEFAULT_WORKSPACE_MB)
    try:
        return workspace_or_default(float(text))
    except ValueError:
        raise ValueError(f"{WORKSPACE_VARIABLE}={text}: set a positive number of MiB") from None


def algorithm_or_default(algorithm: str | None) -> str:
    """The argument, else the variable, else "auto".

    Raises:
        ValueError: for an unknown algorithm.
    """
    known = (*POLICIES, *ALGORITHMS)
    if algorithm is not None:
        if algorithm not in known:
            raise ValueError(f"no algorithm {algorithm!r}; there are {', '.join(known)}")
        return algorithm
    text = os.environ.get(ALGORITHM_VARIABLE) or "auto"
    if text not in known:
        raise ValueError(f"{ALGORITHM_VARIABLE}={text}: there are {', '.join(known)}")
    return text
