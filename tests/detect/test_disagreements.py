"""Facts that disagree."""

from __future__ import annotations

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
    assert about(machine(deep__hip="6.1", deep__device_count=0, deep__devices=[])) == []
    # torch before 2.4 does not name the ISA.
    assert about(machine(**{**seen, "deep__devices": [{"name": "AMD"}]})) == []

    # Arch list against the code objects.
    lists = {"torch__targets": ["gfx900", "gfx1030"], "deep__arch_list": ["gfx900"]}
    assert about(machine("gfx1030", **lists)) == ["the targets that torch is built for"]
