"""Which devices a run is about, decided from facts alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from rocmprobe.backends import backend_for
from rocmprobe.model import BadInput, Fact, Gpu, Machine, NothingToTest


@dataclass(frozen=True)
class Target:
    """A device to test: torch's name for it, the backend behind it, the GPU if it is one."""

    device: str
    backend: str
    gpu: Optional[Gpu] = None

    @property
    def native_isa(self) -> Optional[str]:
        return self.gpu.native_isa.value if self.gpu else None

    @property
    def effective_isa(self) -> Optional[str]:
        return self.gpu.effective_isa.value if self.gpu else None


def _visible(gpus: list[Gpu], machine: Machine) -> list[Gpu]:
    """The GPUs that torch numbers: those that the kernel lists to ROCm, in the order and choice of the
    index lists in the environment. What a list names by UUID cannot be told from facts, and stays."""
    if machine.value("kfd.unlisted"):
        gpus = [gpu for gpu in gpus if gpu.vendor.value != "amd" or gpu.cus.value is not None]
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        wanted = str(machine.variables.get(name, Fact()).value or "")
        if re.fullmatch(r"\d+(,\d+)*", wanted):
            gpus = [gpus[int(index)] for index in wanted.split(",") if int(index) < len(gpus)]
    return gpus


def find_targets(wanted: str, machine: Machine) -> tuple[Target, ...]:
    """The targets that ``wanted`` ("auto", "cpu", "cuda:N", "all") names on ``machine``.

    ``auto``: the AMD GPU if torch is a ROCm build, the NVIDIA GPU if it is a CUDA build, else the CPU.
    Raises NothingToTest where there is no torch or no such device, BadInput for another word.
    """
    kind = machine.value("torch.kind")
    if kind is None:
        raise NothingToTest(
            "no torch in this Python; install one (for an AMD GPU a ROCm build, from PyTorch's own wheel "
            "index) and run again"
        )
    vendor = {"rocm": "amd", "cuda": "nvidia"}.get(kind)
    gpus = _visible([gpu for gpu in machine.gpus if gpu.vendor.value == vendor], machine)
    cuda = tuple(
        Target(f"cuda:{index}", backend_for("cuda", kind).name, gpu) for index, gpu in enumerate(gpus)
    )
    cpu = Target("cpu", backend_for("cpu", kind).name)
    if wanted == "cpu":
        return (cpu,)
    if wanted == "auto":
        return cuda[:1] or (cpu,)
    if wanted == "all":
        return cuda or (cpu,)
    match = re.fullmatch(r"cuda(?::(\d+))?", wanted)
    if not match:
        raise BadInput(f"--device {wanted!r}: unknown; use auto, cpu, cuda:N or all")
    number = int(match[1] or 0)
    if number >= len(cuda):
        raise NothingToTest(
            f"--device {wanted}: torch {machine.value('torch.version')} ({kind} build) and this machine have "
            f"{len(cuda)} matching GPU(s); see `rocmprobe detect`"
        )
    return (cuda[number],)
