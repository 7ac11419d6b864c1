"""Findings about a Linux or a ROCm that is older than the chip."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.compatibility import Combination, answer, of_machine
from rocmprobe.model.results import NATIVE, Fact, Finding, Gpu, Machine


def older_than_the_chip(run: Evidence) -> Iterator[Finding]:
    """Yield findings if Linux or ROCm is too old to support the chip."""
    machine, seen = run.machine, set()
    for gpu in machine.amd_gpus:
        asked = of_machine(machine, gpu)
        found = [*_linux(machine, gpu, asked), *_rocm(run, gpu, asked)]
        for each in found:
            if each.id not in seen:
                seen.add(each.id)
                yield each


def _linux(machine: Machine, gpu: Gpu, asked: Combination) -> Iterator[Finding]:
    knows = answer(asked, "kernel-knows-chip")
    # If KFD lists the chip, the driver supports the chip even on an old version of Linux, because a
    # distribution or DKMS can install a newer driver.
    if knows is None or knows.holds or gpu.order.value is not None or gpu.cus.value is not None:
        return
    if machine.value("amdgpu.origin") == "dkms":
        return
    title = f"The kernel is older than the chip: {knows.says}"
    evidence = (f"kernel.release {asked.kernel}, from {machine.facts['kernel.release'].source}", knows.source)
    advice = "Install a newer kernel from your distribution, or AMD's driver (amdgpu-dkms)."
    name = f"kernel-older-than-{asked.gfx}"
    yield Finding(name, _severity(gpu), "kernel-driver-too-old", "driver", title, evidence, advice)


def _rocm(run: Evidence, gpu: Gpu, asked: Combination) -> Iterator[Finding]:
    knows, code = answer(asked, "runtime-knows-chip"), answer(asked, "torch-has-code")
    # A torch that was built for the chip has a runtime that knows the chip.
    if knows is None or knows.holds or (code and code.holds) or _worked(run, gpu):
        return
    machine = run.machine
    versions = ("torch.version", "torch.hip", "rocm.version")
    facts = {name: machine.facts[name] for name in versions if name in machine.facts}
    witness, fact = next(((name, fact) for name, fact in facts.items() if fact.value), ("", Fact()))
    title = f"ROCm is older than the chip: {knows.says}"
    evidence = (f"{witness} {fact.value}, from {fact.source}", knows.source)
    advice = "Install a torch for a newer ROCm: `rocmprobe install` lists builds with code for this GPU."
    yield Finding(
        f"rocm-older-than-{asked.gfx}", _severity(gpu), "rocm-too-old-for-gpu", "hip", title, evidence, advice
    )


def _severity(gpu: Gpu) -> str:
    """Return "info" for an integrated GPU, else "warning"."""
    return "info" if gpu.apu.value else "warning"


def _worked(run: Evidence, gpu: Gpu) -> bool:
    settings = {setting.name for setting in run.settings if setting.verdict in NATIVE}
    return (run.device or "cpu") != "cpu" and any(
        outcome.works
        and outcome.setting in settings
        and outcome.native_isa == gpu.native_isa.value
        and outcome.device != "cpu"
        for outcome in run.outcomes
    )
