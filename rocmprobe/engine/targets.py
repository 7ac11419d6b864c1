"""Devices to test."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from rocmprobe.backends import backend_for
from rocmprobe.backends.direct.libraries import find_libraries
from rocmprobe.knowledge.visible_devices import MASKS, in_processor, visible
from rocmprobe.model.results import BadInput, Gpu, Machine, NothingToTest

_DEVICE = re.compile(r"cuda(?::(\d{1,9}))?")


@dataclass(frozen=True)
class Device:
    """A device to test.

    ``device`` is torch's name, e.g. "cuda:0". ``gpu`` is None for the CPU. ``torch`` is False if there is no
    torch, so that only the checks without torch can run.
    """

    device: str
    backend: str
    gpu: Optional[Gpu] = None
    torch: bool = True

    @property
    def native_isa(self) -> Optional[str]:
        return self.gpu.native_isa.value if self.gpu else None

    @property
    def effective_isa(self) -> Optional[str]:
        return self.gpu.effective_isa.value if self.gpu else None


def _number(wanted: str) -> int:
    match = _DEVICE.fullmatch(wanted)
    if not match:
        raise BadInput(f"--device {wanted!r}: unknown; use auto, cpu, cuda:N or all")
    return int(match[1] or 0)


def _first_card(gpus: list[Gpu]) -> int:
    return next((number for number, gpu in enumerate(gpus) if not in_processor(gpu)), 0)


def _hidden(number: int, machine: Machine) -> str:
    """Return which variables hide the GPU with this number from torch, or "" if none does."""
    without = visible(replace(machine, variables={}))
    masks = [f"{name}={value}" for name, value in machine.environment.items() if name in MASKS]
    if machine.value("torch.kind") == "cpu" or number >= len(without) or not masks:
        return ""
    count = f"{len(visible(machine))} of {len(without)} GPU(s) can be used"
    return f"it is hidden by {' '.join(masks)} ({count}); unset the variable, or name another device"


def _nvidia_driver() -> bool:
    """Return True if the system has device files of NVIDIA's driver, or of WSL, which hides the vendor."""
    return any(any(Path("/dev").glob(name)) for name in ("nvidia*", "nvhost*", "dxg"))


def find_targets(wanted: str, machine: Machine) -> tuple[Device, ...]:
    """Return the devices that ``wanted`` ("auto", "cpu", "cuda:N" or "all") selects.

    ``auto`` selects the first AMD GPU, preferably a discrete one, or else the CPU. Other GPUs are not
    detected. A CUDA build of torch tests a GPU only if ``wanted`` names it and NVIDIA's driver is there.
    Without torch, only AMD GPUs can be tested, and only if ROCm is installed.
    Raise NothingToTest if torch or the device is missing, and BadInput if ``wanted`` is invalid.
    """
    kind = machine.value("torch.kind")
    gpus = visible(machine) if kind in ("rocm", None) else []
    if kind is None and (wanted == "cpu" or not gpus or "libamdhip64" not in find_libraries(os.environ)):
        raise NothingToTest(
            "no torch in this Python; `rocmprobe install` prints the commands that install one for an AMD "
            "GPU, and for the CPU or a simulated machine `pip install torch` is enough"
        )
    cuda = tuple(
        Device(f"cuda:{index}", backend_for("cuda", "rocm").name, gpu, kind is not None)
        for index, gpu in enumerate(gpus)
    )
    cpu = Device("cpu", backend_for("cpu", "").name)
    if wanted == "cpu":
        return (cpu,)
    if wanted == "auto":
        return (cuda[_first_card(gpus)],) if cuda else (cpu,)
    if wanted == "all":
        return cuda or (cpu,)
    number = _number(wanted)
    if kind == "cuda" and _nvidia_driver():
        return (Device(f"cuda:{number}", backend_for("cuda", kind).name, Gpu()),)
    if number >= len(cuda) and (why := _hidden(number, machine)):
        raise NothingToTest(f"--device {wanted}: {why}")
    if number >= len(cuda):
        build = f"torch {machine.value('torch.version')} ({kind} build) and this machine have"
        raise NothingToTest(
            f"--device {wanted}: {build if kind else 'this machine has'} {len(cuda)} matching GPU(s); see "
            "`rocmprobe detect`"
        )
    return (cuda[number],)
