"""Status of the bypass in a process, written as one line of a file when the process ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from rocmprobe.bypass import counts, kernel_modules
from rocmprobe.bypass.choice import plan_file
from rocmprobe.exec.inject.ending import append, at_end


def write_at_end(path: str, devices: Sequence[str]) -> None:
    """Append the bypass's counts to the file ``path`` when this process ends.

    Each process forked from this process appends its own counts. ``devices`` are the device types of the
    bypass.
    """

    def write() -> None:
        line = {"pid": os.getpid(), "command": sys.argv, "device": _device(devices), **counts.counted()}
        line["own_kernels"] = kernel_modules.state()
        line["inexact"] = plan_file.inexact()
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
