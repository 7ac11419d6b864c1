"""Names and ISAs of the GPUs of a machine."""

from __future__ import annotations

from typing import Optional

from rocmprobe.model.results import Gpu, Machine
from rocmprobe.text.plain_text import one_line


def gpu_name(gpu: Gpu) -> str:
    """Return the name of ``gpu``, or its ISA if it has no name."""
    return str(gpu.name.value or gpu.native_isa.value or "unknown GPU")


def card(machine: Machine) -> str:
    """Return the names of the GPUs, or of the CPU if there is no GPU."""
    names = [gpu_name(gpu) for gpu in machine.gpus]
    return " + ".join(names) or one_line(str(machine.value("cpu.name") or "CPU"), 60)


def poses(native: Optional[str], effective: Optional[str]) -> bool:
    """Return True if the ROCm runtime treats a GPU as another ISA than its own."""
    return bool(native and effective and native != effective)
