"""A Linux or a ROCm that is older than the chip."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import device_of
from rocmprobe.knowledge.compatibility import Combination, answer, of_machine
from rocmprobe.model.results import NATIVE, Fact, Finding, Gpu, Machine, Results


def older_than_the_chip(results: Results) -> Iterator[Finding]:
    """By the releases that first knew a chip, where nothing on the machine shows that it works."""
    machine, seen = results.machine, set()
    for gpu in machine.amd_gpus:
        asked = of_machine(machine, gpu)
        found = [*_linux(machine, gpu, asked), *_rocm(results, gpu, asked)]
        for each in found:
            if each.id not in seen:
                seen.add(each.id)
                yield each


def _linux(machine: Machine, gpu: Gpu, asked: Combination) -> Iterator[Finding]:
    knows = answer(asked, "kernel-knows-chip")
    # What KFD lists, it knows: a distribution or DKMS has brought a newer driver.
    if knows is None or knows.holds or gpu.order.value is not None or gpu.cus.value is not None:
        return
    if machine.value("amdgpu.origin") == "dkms":
        return
    yield Finding(
        f"kernel-older-than-{asked.gfx}",
        _severity(gpu),
        "kernel-driver-too-old",
        "driver",
        f"The kernel is older than the chip: {knows.says}",
        (f"kernel.release {asked.kernel}, from {machine.facts['kernel.release'].source}", knows.source),
        "Install a newer kernel of your distribution, or AMD's driver (amdgpu-dkms).",
    )


def _rocm(results: Results, gpu: Gpu, asked: Combination) -> Iterator[Finding]:
    knows, code = answer(asked, "runtime-knows-chip"), answer(asked, "torch-has-code")
    # Who built torch for the chip has a runtime that knows it.
    if knows is None or knows.holds or (code and code.holds) or _worked(results, gpu):
        return
    machine = results.machine
    versions = ("torch.version", "torch.hip", "rocm.version")
    facts = {name: machine.facts[name] for name in versions if name in machine.facts}
    witness, fact = next(((name, fact) for name, fact in facts.items() if fact.value), ("", Fact()))
    yield Finding(
        f"rocm-older-than-{asked.gfx}",
        _severity(gpu),
        "rocm-too-old-for-gpu",
        "hip",
        f"ROCm is older than the chip: {knows.says}",
        (f"{witness} {fact.value}, from {fact.source}", knows.source),
        "Install a torch of a newer ROCm: `rocmprobe install` lists those with code for this GPU.",
    )


def _severity(gpu: Gpu) -> str:
    """A GPU in a processor is seldom the one that is meant."""
    return "info" if gpu.apu.value else "warning"


def _worked(results: Results, gpu: Gpu) -> bool:
    """Whether anything of torch worked on this GPU as it comes."""
    settings = {setting.name for setting in results.settings if setting.verdict in NATIVE}
    return (device_of(results) or "cpu") != "cpu" and any(
        outcome.works
        and outcome.setting in settings
        and outcome.native_isa == gpu.native_isa.value
        and outcome.device != "cpu"
        for outcome in results.outcomes
    )
