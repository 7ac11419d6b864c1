"""Devices to test, found through torch or HIP."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Optional

from rocmprobe.backends import backend_for
from rocmprobe.backends.capi import Place
from rocmprobe.engine import libraries
from rocmprobe.knowledge.visible_devices import in_processor, visible
from rocmprobe.model.results import BadInput, Fact, Gpu, Machine, NothingToTest

DRIVERS = ("torch", "capi")
_DEVICE = re.compile(r"cuda(?::(\d{1,9}))?")


@dataclass(frozen=True)
class Device:
    """A device to test.

    ``device`` is torch's name, e.g. "cuda:0". ``gpu`` is None for the CPU. ``place`` has the libraries that
    the driver ``capi`` calls.
    """

    device: str
    backend: str
    gpu: Optional[Gpu] = None
    drivers: tuple[str, ...] = ("torch",)
    place: Optional[Place] = None

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


def find_targets(wanted: str, machine: Machine) -> tuple[Device, ...]:
    """Return the devices that ``wanted`` ("auto", "cpu", "cuda:N" or "all") selects.

    ``auto`` selects the first AMD GPU, preferably a discrete one, or else the CPU. Other GPUs are not
    detected. A CUDA build of torch tests a GPU only if ``wanted`` names the GPU.
    Raise NothingToTest if torch or the device is missing, and BadInput if ``wanted`` is invalid.
    """
    kind = machine.value("torch.kind")
    if kind is None:
        raise NothingToTest(
            "no torch in this Python; `rocmprobe install` prints the commands that install one for this GPU"
        )
    gpus = visible(machine) if kind == "rocm" else []
    cuda = tuple(
        Device(f"cuda:{index}", backend_for("cuda", kind).name, gpu) for index, gpu in enumerate(gpus)
    )
    cpu = Device("cpu", backend_for("cpu", kind).name)
    if wanted == "cpu":
        return (cpu,)
    if wanted == "auto":
        return (cuda[_first_card(gpus)],) if cuda else (cpu,)
    if wanted == "all":
        return cuda or (cpu,)
    number = _number(wanted)
    if kind == "cuda":
        return (Device(f"cuda:{number}", backend_for("cuda", kind).name, Gpu()),)
    if number >= len(cuda):
        raise NothingToTest(
            f"--device {wanted}: torch {machine.value('torch.version')} ({kind} build) and this machine have "
            f"{len(cuda)} matching GPU(s); see `rocmprobe detect`"
        )
    return (cuda[number],)


def targets_of(
    device: str, driver: str, wanted_libraries: str, machine: Machine
) -> tuple[tuple[Device, ...], Machine]:
    """Return the devices for ``driver`` ("auto", "torch" or "capi"), and ``machine`` with facts from HIP.

    Raise NothingToTest and BadInput like ``find_targets`` and ``libraries.find_place``.
    """
    if driver not in ("auto", *DRIVERS):
        raise BadInput(f"--driver {driver!r}: unknown; use auto, {', '.join(DRIVERS)}")
    if driver == "torch":
        return find_targets(device, machine), machine
    if driver == "capi":
        return _called_directly(device, wanted_libraries, machine)
    kind = machine.value("torch.kind")
    if kind is None:
        try:
            return _called_directly(device, wanted_libraries, machine)
        except NothingToTest as reason:
            raise NothingToTest(
                "no torch in this Python; `rocmprobe install` prints the commands that install one for this "
                f"GPU. Without torch: {reason}"
            ) from reason
    if device != "cpu" and (kind == "rocm" or machine.amd_gpus or (kind == "cpu" and device != "auto")):
        # Prefer torch's libraries for capi, so that the two drivers differ only in who calls the libraries.
        first = "torch" if kind == "rocm" else ""
        try:
            direct, machine = _called_directly(device, wanted_libraries, machine, first)
        except NothingToTest as reason:
            if wanted_libraries:
                raise
            why = Fact(None, f"the driver capi is not used: {reason}")
            machine = replace(machine, facts={**machine.facts, "capi.place": why})
        else:
            return (_joined(find_targets(device, machine), direct) if kind == "rocm" else direct), machine
    return find_targets(device, machine), machine


def _joined(by_torch: tuple[Device, ...], direct: tuple[Device, ...]) -> tuple[Device, ...]:
    places = {target.device: target.place for target in direct}
    both = tuple(
        replace(target, drivers=DRIVERS, place=places[target.device]) if target.device in places else target
        for target in by_torch
        if target.device != "cpu"
    )
    reached = {target.device for target in both}
    return both + tuple(target for target in direct if target.device not in reached)


def _called_directly(
    device: str, wanted: str, machine: Machine, first: str = ""
) -> tuple[tuple[Device, ...], Machine]:
    if device == "cpu":
        raise NothingToTest(
            "--driver capi calls HIP, rocBLAS and MIOpen, which need a GPU; use --driver torch, or a GPU"
        )
    number = None if device in ("auto", "all") else _number(device)
    place = libraries.find_place(wanted, first)
    answer = libraries.query_hip(place)
    if not answer.devices or (number or 0) >= len(answer.devices):
        asked = "" if number is None else f"--device {device}: "
        raise NothingToTest(
            f"{asked}HIP in {place.folder} sees {len(answer.devices)} device(s); see `rocmprobe detect`"
        )
    known = visible(machine)
    gpus = [known[at] if at < len(known) else answer.gpu(at) for at in range(len(answer.devices))]
    machine = replace(machine, facts={**machine.facts, **libraries.facts(place, answer)})
    if not machine.amd_gpus:
        machine = replace(machine, gpus=(*machine.gpus, *gpus))
    one = _first_card(gpus) if number is None else number
    wanted_numbers = range(len(gpus)) if device == "all" else [one]
    backend = backend_for("cuda", "rocm").name
    targets = tuple(Device(f"cuda:{at}", backend, gpus[at], ("capi",), place) for at in wanted_numbers)
    return targets, machine
