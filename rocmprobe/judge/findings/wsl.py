"""Findings about reasons why ROCm in WSL cannot reach the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge import wsl
from rocmprobe.knowledge.compatibility import answer, of_machine
from rocmprobe.model.results import Fact, Finding, Machine


def wsl_findings(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if ROCm is installed in WSL and cannot reach a GPU."""
    machine = run.machine
    kind = machine.value("container.wsl")
    wanted = machine.value("torch.kind") == "rocm" or machine.value("rocm.version")
    if kind in (None, "no") or not wanted or _reached(run):
        return
    missing = ["WSL1 has no GPU"] if kind == "WSL1" else list(_missing(machine))
    advice = (
        "In PowerShell run `wsl --list`, then `wsl --set-version NAME 2` with the name of this distribution."
        if kind == "WSL1"
        else " ".join(_steps(machine))
    )
    no_adapter = "No WDDM adapters found" in (machine.value("rocminfo.message") or "")
    blind = no_adapter or run.device == "cpu"
    if not missing and not blind:
        return
    title = (
        f"ROCm cannot reach a GPU in this WSL: {', '.join(missing)}"
        if missing
        else "librocdxg is installed, but ROCm finds no GPU in this WSL"
    )
    advice = (
        " ".join(_refused(machine)) or advice or "Update the GPU driver on Windows. " + _generations(machine)
    )
    severity = "error" if machine.value("torch.kind") == "rocm" else "warning"
    yield Finding("wsl", severity, "unsupported-platform", "driver", title, tuple(_evidence(machine)), advice)


def _reached(run: Evidence) -> bool:
    machine = run.machine
    listed = machine.value("rocminfo.gpus")
    return bool(listed or machine.value("deep.available") or (run.device or "").startswith("cuda"))


def _missing(machine: Machine) -> Iterator[str]:
    rocm = _rocm(machine)
    if machine.value("wsl.dxg") is False:
        yield "there is no /dev/dxg"
    if machine.facts.get("wsl.librocdxg", Fact(True)).value is None:
        yield "librocdxg is not installed"
    if wsl.too_old(rocm):
        yield f"ROCm {rocm} does not load librocdxg"
    elif wsl.needs_variable(rocm) and wsl.bridge().variable not in machine.variables:
        yield f"{wsl.bridge().variable} is not set"


def _steps(machine: Machine) -> Iterator[str]:
    rocm, bridge = _rocm(machine), wsl.bridge()
    if machine.value("wsl.dxg") is False:
        yield (
            "Run `wsl --update` in PowerShell and install AMD's current driver on Windows; a container needs "
            "`--device /dev/dxg`."
        )
    if machine.facts.get("wsl.librocdxg", Fact(True)).value is None:
        yield "Install librocdxg (https://github.com/ROCm/librocdxg)."
    if wsl.too_old(rocm):
        yield f"Install a torch for ROCm {bridge.first_rocm} or newer."
    elif wsl.needs_variable(rocm) and bridge.variable not in machine.variables:
        yield f"Run `export {bridge.variable}=1`: ROCm before {bridge.without_variable} needs it."


def _refused(machine: Machine) -> Iterator[str]:
    """Yield advice if the bridge between WSL and Windows (librocdxg) does not support the chip."""
    found = (answer(of_machine(machine, gpu), "wsl-takes-chip") for gpu in machine.amd_gpus)
    refused = next((each for each in found if each is not None and not each.holds), None)
    if refused:
        yield f"{refused.says}. Use PyTorch on Windows itself, or Linux without WSL."


def _generations(machine: Machine) -> str:
    takes = machine.value("wsl.takes") or wsl.takes(())
    others = [f"{family.name}: {family.text}" for family in wsl.families() if family.works != "listed"]
    return f"librocdxg supports {', '.join(takes)}. {' '.join(others)}"


def _evidence(machine: Machine) -> Iterator[str]:
    for name in ("container.wsl", "wsl.dxg", "wsl.librocdxg", "wsl.dids", "rocminfo.message"):
        fact = machine.facts.get(name)
        if fact is not None:
            yield f"{name}: {fact.value}, from {fact.source}"
    for family in wsl.families():
        yield f"{family.name}: {family.text} {family.source}"


def _rocm(machine: Machine) -> Optional[str]:
    found = machine.value("torch.hip") or machine.value("rocm.version")
    return str(found) if found else None
