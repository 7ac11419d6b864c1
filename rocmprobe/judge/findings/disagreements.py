"""Facts on which two sources disagree: a GPU's effective ISA, and the targets that torch is built for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Fact, Finding, Machine
from rocmprobe.text.plain_text import sentence_case

#: (what both facts are about, first fact, second fact).
Disagreement = tuple[str, Fact, Fact]


def disagreements(machine: Machine) -> list[Disagreement]:
    """Return the facts on which two sources disagree."""
    return [*_arch_lists(machine), *_effective_isas(machine)]


def _fact(machine: Machine, name: str) -> Fact:
    return machine.facts.get(name, Fact())


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


def _torch_place(device: Mapping[str, Any]) -> str:
    bus, slot = device.get("pci_bus_id"), device.get("pci_device_id")
    return f"{bus:02x}:{slot:02x}.0" if isinstance(bus, int) and isinstance(slot, int) else ""


def _base(target: str) -> str:
    return target.partition(":")[0]


def _bases(targets: Fact) -> set[str]:
    return {_base(target) for target in targets.value or ()}


def disagreeing_sources(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each fact on which two sources disagree."""
    for number, (what, one, other) in enumerate(disagreements(run.machine)):
        title = f"{sentence_case(what)}: {_short(one)} against {_short(other)}"
        evidence = (f"{_short(one)}, from {one.source}", f"{_short(other)}, from {other.source}")
        advice = "Trust a value from a running program more than a value from a file."
        yield Finding(f"disagreement-{number}", "info", "unknown", "torch-build", title, evidence, advice)


def _short(fact: Fact) -> str:
    return " ".join(fact.value) if isinstance(fact.value, list) else str(fact.value)
