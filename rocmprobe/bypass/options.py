"""What holds where a caller does not say: variables of the user, else the defaults."""

from __future__ import annotations

import os

from rocmprobe.bypass.algorithms import ALGORITHMS
from rocmprobe.bypass.choice.plan import DEFAULT_WORKSPACE_MB, POLICIES
from rocmprobe.bypass.other_layers import KINDS

WORKSPACE_VARIABLE = "ROCMPROBE_BYPASS_WORKSPACE_MB"
ALGORITHM_VARIABLE = "ROCMPROBE_BYPASS_ALGORITHM"
NATIVE = "native"


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


def sent_to_pytorch(convolution: str, *others: str) -> tuple[str, ...]:
    """Of ``KINDS``, in whose order ``others`` are, those that are to be "pytorch" and not "native".

    Raises:
        ValueError: for another word, ``convolution`` being "bypass" or "native".
    """
    wanted = (("convolution", convolution, "bypass"), *zip(KINDS, others, ("pytorch",) * len(KINDS)))
    for kind, word, other in wanted:
        if word not in (NATIVE, other):
            raise ValueError(f"{kind} is {NATIVE!r} or {other!r}, not {word!r}")
    return tuple(kind for kind, word in zip(KINDS, others) if word != NATIVE)
