"""The ISA that the ROCm runtime believes a GPU to have, after HSA_OVERRIDE_GFX_VERSION.

Rules of the ROCm thunk (libhsakmt topology.c): the form with a node number wins over the plain one, a set but
empty variable counts, and a malformed value makes the runtime fail. The number counts the nodes of the KFD
topology, processors too, so that the first GPU is often 1; nodes that are closed to a container are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.variables import release
from rocmprobe.model.results import Fact


def effective_isa(
    native: Fact, node: Optional[int], environ: Mapping[str, str], hip: Optional[str] = None
) -> Fact:
    """The effective ISA of a GPU; ``node`` is the runtime's number for it, None where KFD does not list it.

    Releases up to 6.2 know only the plain variable. ``hip`` is the version of the runtime; where it is not
    known, the source of a per-node value says so.
    """
    per_node = f"{OVERRIDE}_{node}"
    runtime = release(hip or "")
    old = runtime is not None and runtime <= (6, 2)
    name = per_node if node is not None and per_node in environ and not old else OVERRIDE
    if name not in environ:
        return Fact(native.value, f"{native.source}; no {OVERRIDE}")
    value = environ[name]
    isa = gpus.isa_of_override(value)
    if isa is None:
        return Fact(None, f"{name}={value!r} is not MAJOR.MINOR.STEPPING: the ROCm runtime refuses to start")
    unsure = name == per_node and runtime is None
    note = " (ROCm 6.2 and older ignore the form with a node number)" if unsure else ""
    return Fact(isa, f"{name}={value}{note}")
