"""The names under which results are gathered: one for a chip, one for a stack. They become names of folders
and addresses, so they hold nothing but small letters, digits, full stops and hyphens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Optional

from rocmprobe.model.facts import FactName
from rocmprobe.model.results import Gpu, Machine, Results
from rocmprobe.text.plain_text import one_line

_ISA = re.compile(r"gfx[0-9a-f]{3,8}")
_UNSAFE = re.compile(r"[^a-z0-9.]+")
_LONGEST = 80


def safe_name(text: str) -> str:
    """``text`` as a name of a folder and in an address, on every system."""
    name = _UNSAFE.sub("-", text.lower())[:_LONGEST].strip("-.")
    return re.sub(r"\.{2,}", ".", name) or "unknown"


def place_of(chip: str, sha256: str) -> str:
    """Where a folder of bundles has one, seen from the folder."""
    return f"{chip}/{sha256}.zip"


def chip_name(native_isa: Any, device: str) -> str:
    """The chip behind ``device``: its native ISA; "cpu", "nvidia" where there is none."""
    if isinstance(native_isa, str) and _ISA.fullmatch(native_isa):
        return native_isa
    return "cpu" if device.partition(":")[0] == "cpu" else "nvidia" if not native_isa else "unknown"


def _scalar(value: Any) -> Any:
    """The value of a fact as a text, a number or None: a journal from elsewhere may hold anything."""
    return value if value is None or isinstance(value, (str, int, float)) else one_line(json.dumps(value))


def _text(value: Any) -> Optional[str]:
    return None if value is None else str(_scalar(value))


def stack_name(machine: Machine, gpu: Optional[Gpu]) -> str:
    """The software on a chip, such as "torch-2.12.0-rocm10.1.0": torch with its build, or without torch the
    vendor library that was called; then "as-" and the ISA that the chip was made to pass for."""
    torch, miopen = _text(machine.value("torch.version")), _text(machine.value("capi.miopen"))
    hip = _text(machine.value("capi.hip") or machine.value("hip.version"))
    if torch:
        name = safe_name(f"torch-{torch}")
    elif miopen:
        name = safe_name(f"miopen-{miopen}" + (f"-hip-{hip}" if hip else ""))
    else:
        name = "unknown"
    native, effective = _isas(gpu)
    return f"{name}-as-{effective}" if effective and native and effective != native else name


def stack_facts(machine: Machine, gpu: Optional[Gpu]) -> dict[str, Any]:
    """What the stack is, by name: versions, driver, and the ISA that the chip passes for; None where a
    version is unknown."""

    def value(name: FactName) -> Optional[str]:
        return _text(machine.value(name))

    amd = gpu is not None and gpu.vendor.value == "amd"
    return {
        "torch": value("torch.version"),
        "rocm": value("rocm.version") if amd else None,
        "hip": (value("torch.hip") or value("hip.version") or value("capi.hip")) if amd else None,
        "miopen": (value("miopen.version") or value("capi.miopen")) if amd else None,
        "os": value("os.name"),
        "kernel": value("kernel.release"),
        "driver": _text(gpu.driver.value) if gpu else None,
        "effective_isa": _isas(gpu)[1],
    }


def gpu_facts(gpu: Gpu) -> dict[str, Any]:
    """Which chip it is, without what tells two cards of one product apart."""
    names = ("native_isa", "effective_isa", "name", "pci_id", "revision", "cus", "vram_bytes")
    return {name: _scalar(getattr(gpu, name).value) for name in names}


def tested_gpus(results: Results) -> Mapping[str, Optional[Gpu]]:
    """The GPU behind each device of a run, in the order of its targets; None for the processor."""
    found: dict[str, Optional[Gpu]] = {}
    for target in results.options.get("targets", ()):
        device = str(target.get("device"))
        outcome = next((each for each in results.outcomes if each.device == device and each.native_isa), None)
        found[device] = _gpu(results.machine, target, outcome.native_isa if outcome else None)
    return found


def _gpu(machine: Machine, target: Mapping[str, Any], native_isa: Optional[str]) -> Optional[Gpu]:
    if target.get("backend") == "onednn":
        return None
    vendor = "amd" if target.get("backend") == "miopen" else "nvidia"
    gpus = [gpu for gpu in machine.gpus if gpu.vendor.value == vendor]
    if native_isa:
        gpus = [gpu for gpu in gpus if gpu.native_isa.value == native_isa] or gpus
    device = str(target.get("device"))
    named = [gpu for gpu in gpus if gpu.name.value == target.get("gpu")]
    placed = [gpu for gpu in named or gpus if f"cuda:{gpu.index.value}" == device]
    return next(iter(placed or named or gpus), None)


def _isas(gpu: Optional[Gpu]) -> tuple[Optional[str], Optional[str]]:
    def isa(value: Any) -> Optional[str]:
        return value if isinstance(value, str) and _ISA.fullmatch(value) else None

    return (isa(gpu.native_isa.value), isa(gpu.effective_isa.value)) if gpu else (None, None)
