"""Status of the bypass in a process, written as one line of a file when the process ends."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from rocmprobe.bypass import counts, own_kernels
from rocmprobe.exec.inject.ending import append, at_end

Counts = dict[str, dict[str, int]]


def write_at_end(path: str, devices: Sequence[str]) -> None:
    """Append the bypass's counts to the file ``path`` when this process ends.

    Each process forked from this process appends its own counts. ``devices`` are the device types of the
    bypass.
    """
    before: list[Counts] = [{kind: {} for kind in counts.counted()}]
    parents = list(before)

    def remember() -> None:
        before[:] = [counts.counted()]

    def start_anew() -> None:
        parents[:] = before

    # A child inherits the counts of its parent. Subtract them, because the parent reports them itself. Copy
    # them before the fork, because another thread can hold their lock during the fork.
    os.register_at_fork(before=remember, after_in_child=start_anew)

    def write() -> None:
        own = _since(parents[0], counts.counted())
        line = {"pid": os.getpid(), "command": sys.argv, "device": _device(devices), **own}
        line["own_kernels"] = own_kernels.state()
        try:
            append(path, line)
        except OSError as error:
            print(f"rocmprobe: {path}: the status could not be written ({error.strerror})", file=sys.stderr)

    at_end(write)


def _device(devices: Sequence[str]) -> str:
    if len(devices) == 1:
        return devices[0]
    # torch has no full annotations for this module.
    cuda: Any = torch.cuda
    return "cuda" if cuda.is_initialized() else "cpu"


def _since(before: Counts, now: Counts) -> Counts:
    # If the program has reset the counts, they are lower than before. Then subtract nothing.
    return {
        kind: dict(Counter(counts) - Counter(before[kind]) if _grew(before[kind], counts) else counts)
        for kind, counts in now.items()
    }


def _grew(before: dict[str, int], now: dict[str, int]) -> bool:
    return all(now.get(name, 0) >= count for name, count in before.items())
