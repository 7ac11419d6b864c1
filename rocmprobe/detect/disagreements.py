"""Facts that should agree and do not: two witnesses of one thing."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.model import Fact, Machine

#: What the two facts are about, the one and the other.
Disagreement = tuple[str, Fact, Fact]


def disagreements(machine: Machine) -> list[Disagreement]:
    """Pairs of facts that should agree and do not: what they are about, the one fact and the other.

    Only what is known on both sides is compared, so a machine that was not asked deeply has those that
    its files show.
    """
    return [
        *_library_versions(machine),
        *_device_counts(machine),
        *_arch_lists(machine),
        *_missing_code(machine),
        *_effective_isas(machine),
    ]


def _fact(machine: Machine, name: str) -> Fact:
    return machine.facts.get(name, Fact())


def _library_versions(machine: Machine) -> Iterator[Disagreement]:
    expected, told = _fact(machine, "miopen.version_expected"), _fact(machine, "miopen.version_told")
    if _differ(expected, told):
        yield "the version of MIOpen", expected, told
    deep = _fact(machine, "deep.library")
    known = told if told.value is not None else expected
    if _fact(machine, "deep.hip").value and _differ(known, deep):
        yield "the version of MIOpen that torch loads", known, deep


def _device_counts(machine: Machine) -> Iterator[Disagreement]:
    """torch numbers the GPUs that KFD lists and no variable hides."""
    count = _fact(machine, "deep.device_count")
    found = len([gpu for gpu in machine.gpus if gpu.vendor.value == "amd"])
    found -= len(_fact(machine, "kfd.unlisted").value or ())
    hidden = any(name.endswith("_VISIBLE_DEVICES") for name in machine.variables)
    if _fact(machine, "deep.hip").value and count.value is not None and count.value != found and not hidden:
        yield "the number of GPUs", Fact(found, "KFD and PCI"), count


def _arch_lists(machine: Machine) -> Iterator[Disagreement]:
    arch_list, targets = _fact(machine, "deep.arch_list"), _fact(machine, "torch.targets")
    if _bases(arch_list) and _bases(targets) and _bases(arch_list) != _bases(targets):
        yield "the targets that torch is built for", arch_list, targets


def _missing_code(machine: Machine) -> Iterator[Disagreement]:
    """GPUs for whose ISA, native or effective, torch or rocBLAS has no code."""
    for gpu in machine.gpus:
        for name in ("torch.targets", "rocblas.targets"):
            targets = _fact(machine, name)
            if targets.value is None:
                continue
            pretends = gpu.effective_isa.value != gpu.native_isa.value
            isas = [("native", gpu.native_isa), *([("effective", gpu.effective_isa)] if pretends else [])]
            for what, isa in isas:
                if isa.value and not _serves(_bases(targets), isa.value):
                    yield f"code for the {what} ISA in {name.partition('.')[0]}", isa, targets


def _effective_isas(machine: Machine) -> Iterator[Disagreement]:
    """GPUs that torch or rocminfo name otherwise than the facts have it; only where all are seen."""
    gpus = [gpu for gpu in machine.gpus if gpu.vendor.value == "amd"]
    for name, key in (("deep.devices", "gcnArchName"), ("rocminfo.agents", "gfx")):
        devices = _fact(machine, name)
        names = [device.get(key) for device in devices.value or ()]
        if len(names) != len(gpus) or not all(names):
            continue
        facts = sorted(str(gpu.effective_isa.value) for gpu in gpus)
        told = sorted(_base(name) for name in names)
        if facts != told:
            source = "; ".join(gpu.effective_isa.source for gpu in gpus)
            yield "the effective ISA", Fact(facts, source), Fact(told, f"{devices.source} {key}")


def _differ(one: Fact, other: Fact) -> bool:
    return one.value is not None and other.value is not None and one.value != other.value


def _base(target: str) -> str:
    return target.partition(":")[0]


def _bases(targets: Fact) -> set[str]:
    return {_base(target) for target in targets.value or ()}


def _serves(targets: set[str], isa: str) -> bool:
    """Whether code for one of the targets is for an ISA, by its own name or a family's.

    A family is written gfx10-1-generic or gfx11-generic in a code object and gfx101x in a wheel's name.
    """
    family = {f"{isa[:-2]}-{isa[-2]}-generic", f"{isa[:-2]}-generic", f"{isa[:-1]}x"}
    return isa in targets or bool(family & targets)
