"""Facts on which two sources disagree, e.g. the number of GPUs according to KFD and to torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rocmprobe.model.results import Fact, Machine

#: (what both facts are about, first fact, second fact).
Disagreement = tuple[str, Fact, Fact]


def disagreements(machine: Machine) -> list[Disagreement]:
    """Return the facts on which two sources disagree."""
    return [
        *_library_versions(machine),
        *_device_counts(machine),
        *_arch_lists(machine),
        *_effective_isas(machine),
        *_numbers(machine),
    ]


def some_hidden(machine: Machine) -> bool:
    """Return True if a variable such as HIP_VISIBLE_DEVICES restricts the visible GPUs."""
    return any(name.endswith("_VISIBLE_DEVICES") for name in machine.variables)


def _fact(machine: Machine, name: str) -> Fact:
    return machine.facts.get(name, Fact())


def _library_versions(machine: Machine) -> Iterator[Disagreement]:
    expected, reported = _fact(machine, "miopen.version_expected"), _fact(machine, "miopen.version_told")
    if _differ(expected, reported):
        yield "the version of MIOpen", expected, reported
    deep = _fact(machine, "deep.library")
    known = reported if reported.value is not None else expected
    if _fact(machine, "deep.hip").value and _differ(known, deep):
        yield "the version of MIOpen that torch loads", known, deep


def _device_counts(machine: Machine) -> Iterator[Disagreement]:
    count = _fact(machine, "deep.device_count")
    found = len(machine.amd_gpus) - len(_fact(machine, "kfd.unlisted").value or ())
    if any(gpu.order.value is not None for gpu in machine.amd_gpus):
        found = sum(gpu.index.value is not None for gpu in machine.amd_gpus)
    elif some_hidden(machine):
        return
    disagree = count.value is not None and count.value != found
    if _fact(machine, "deep.hip").value and disagree:
        yield "the number of GPUs", Fact(found, "KFD and PCI"), count


def _arch_lists(machine: Machine) -> Iterator[Disagreement]:
    arch_list, targets = _fact(machine, "deep.arch_list"), _fact(machine, "torch.targets")
    if _bases(arch_list) and _bases(targets) and _bases(arch_list) != _bases(targets):
        yield "the targets that torch is built for", arch_list, targets


def _effective_isas(machine: Machine) -> Iterator[Disagreement]:
    gpus = {str(gpu.address.value).partition(":")[2]: gpu for gpu in machine.amd_gpus}
    fact = _fact(machine, "deep.devices")
    for device in fact.value or ():
        gpu, reported = gpus.get(_torch_place(device)), device.get("gcnArchName")
        if gpu and reported and gpu.effective_isa.value not in (None, _base(reported)):
            yield "the effective ISA", gpu.effective_isa, Fact(_base(reported), f"{fact.source} gcnArchName")


def _numbers(machine: Machine) -> Iterator[Disagreement]:
    devices = _fact(machine, "deep.devices")
    found = {gpu.index.value: gpu for gpu in machine.amd_gpus if gpu.index.value is not None}
    for number, device in enumerate(devices.value or ()):
        place, gpu = _torch_place(device), found.get(number)
        # Partitions of a card differ only in the PCI function, which torch does not report.
        if gpu and place and str(gpu.address.value).partition(":")[2][:-1] != place[:-1]:
            yield (
                f"the GPU that is cuda:{number}",
                Fact(gpu.address.value, gpu.index.source),
                Fact(place, f"{devices.source} pci_bus_id"),
            )


def _torch_place(device: Mapping[str, Any]) -> str:
    bus, slot = device.get("pci_bus_id"), device.get("pci_device_id")
    return f"{bus:02x}:{slot:02x}.0" if isinstance(bus, int) and isinstance(slot, int) else ""


def _differ(one: Fact, other: Fact) -> bool:
    return one.value is not None and other.value is not None and one.value != other.value


def _base(target: str) -> str:
    return target.partition(":")[0]


def _bases(targets: Fact) -> set[str]:
    return {_base(target) for target in targets.value or ()}
