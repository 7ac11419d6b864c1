"""Facts that disagree."""

from __future__ import annotations

import dataclasses

from rocmprobe.judge.findings.disagreements import disagreements
from rocmprobe.model.results import Fact, Gpu, Machine


def machine(native="gfx1010", effective="gfx1030", **facts):
    gpu = Gpu(
        address=Fact("0000:0b:00.0", "KFD"),
        vendor=Fact("amd", "KFD"),
        native_isa=Fact(native, "KFD"),
        effective_isa=Fact(effective, "override"),
    )
    return Machine((gpu,), {name.replace("__", "."): Fact(value, name) for name, value in facts.items()})


def about(machine):
    return [what for what, _, _ in disagreements(machine)]


def test_what_each_source_sees():
    # Nothing known nothing to disagree.
    assert disagreements(Machine()) == []
    assert about(machine(None, None)) == []

    # What torch sees against the facts.
    device = {"gcnArchName": "gfx1010:xnack-", "pci_bus_id": 11, "pci_device_id": 0}
    seen = {"deep__hip": "6.1", "deep__device_count": 1, "deep__devices": [device]}
    assert about(machine(effective="gfx1010", **seen)) == []
    assert about(machine(**seen)) == ["the effective ISA"]
    assert about(machine(deep__hip="6.1", deep__device_count=0, deep__devices=[])) == ["the number of GPUs"]
    # torch before 2.4 does not name the ISA.
    assert about(machine(**{**seen, "deep__devices": [{"name": "AMD"}]})) == []

    # Arch list against the code objects.
    lists = {"torch__targets": ["gfx900", "gfx1030"], "deep__arch_list": ["gfx900"]}
    assert about(machine("gfx1030", **lists)) == ["the targets that torch is built for"]


def test_versions_of_miopen():
    same = {"miopen__version_expected": "2.17.0", "miopen__version_told": "2.17.0"}
    assert about(machine(**same)) == []
    other = {**same, "miopen__version_told": "3.4.0"}
    assert about(machine(**other)) == ["the version of MIOpen"]
    deep_facts = {"deep__hip": "5.2", "deep__library": "3.4.0"}
    assert about(machine(**same, **deep_facts)) == ["the version of MIOpen that torch loads"]
    assert about(machine(**other, **deep_facts)) == ["the version of MIOpen"]
    # On a CUDA build that number is cuDNN's.
    assert about(machine(**same, deep__library=90100)) == []


def test_numbers_of_gpus():
    # GPUs that torch is not shown are not missed.
    seen = {"deep__hip": "6.1", "deep__device_count": 0, "deep__devices": []}
    assert about(machine(**seen)) == ["the number of GPUs"]
    hidden = machine(**seen)
    hidden = Machine(hidden.gpus, hidden.facts, {"HIP_VISIBLE_DEVICES": Fact("-1", "environment")})
    assert about(hidden) == []
    assert about(machine(**seen, kfd__unlisted=["0000:0b:00.0"])) == []

    # Torch numbers the GPUs otherwise.
    card = Gpu(
        address=Fact("0000:03:00.0"), vendor=Fact("amd"), order=Fact(0), index=Fact(0, "the order of ROCr")
    )
    integrated = Gpu(address=Fact("0000:10:00.1"), vendor=Fact("amd"), order=Fact(1), index=Fact(1))
    hidden = dataclasses.replace(integrated, index=Fact(None))
    places = [{"pci_bus_id": 0x03, "pci_device_id": 0}, {"pci_bus_id": 0x10, "pci_device_id": 0}]

    def seen(gpus, devices):
        facts = {"deep.hip": "6.1", "deep.device_count": len(devices), "deep.devices": devices}
        masked = {"HIP_VISIBLE_DEVICES": Fact("0", "environment")} if hidden in gpus else {}
        return about(Machine(gpus, {name: Fact(value, name) for name, value in facts.items()}, masked))

    assert seen((card, integrated), places) == []
    assert seen((card, integrated), places[::-1]) == ["the GPU that is cuda:0", "the GPU that is cuda:1"]
    assert seen((card, hidden), places[:1]) == []
    assert seen((card, hidden), places) == ["the number of GPUs"]
