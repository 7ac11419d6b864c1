"""The machine's facts in the forms that issue trackers request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from rocmprobe.model.results import Gpu, Machine, Results
from rocmprobe.report import identity, text
from rocmprobe.report.escape import fence

_UNKNOWN = "not gathered"
_AGENTS = 16


def collect_env(results: Results) -> str:
    """Return the lines of ``python -m torch.utils.collect_env`` for which rocmprobe has facts."""
    machine = results.machine
    kind = machine.value("torch.kind")
    rocm = machine.value("torch.hip") or ("N/A" if kind in ("cpu", "cuda") else None)
    rows = [
        ("PyTorch version", machine.value("torch.version")),
        ("CUDA used to build PyTorch", _cuda(machine)),
        ("ROCM used to build PyTorch", rocm),
        ("", ""),
        ("OS", machine.value("os.name")),
        ("Python version", machine.value("python.version")),
        ("Python platform", f"Linux-{machine.value('kernel.release') or _UNKNOWN}"),
        ("GPU models and configuration", ", ".join(map(_described, machine.gpus)) or "no GPU"),
        ("HIP runtime version", identity.first_value(machine, ("hip.version", "torch.hip"))),
        ("MIOpen runtime version", library_version(results)),
        ("ROCm version", machine.value("rocm.version")),
        ("", ""),
        ("CPU", machine.value("cpu.name")),
        ("", ""),
        ("Where torch came from", machine.value("torch.build")),
        ("Kernels in this torch for", machine.value("torch.targets")),
        *_variables(machine),
    ]
    return _lines(((label and f"{label}:", value) for label, value in rows), " ")


def rocminfo(results: Results) -> str:
    """Return the facts about the GPUs that ``rocminfo`` and the kernel driver reported."""
    machine = results.machine
    message = machine.value("rocminfo.message")
    rows: list[tuple[str, Any]] = [("rocminfo", message)] if message else []
    for gpu in machine.gpus[:_AGENTS]:
        rows += [
            ("", ""),
            ("Name", gpu.effective_isa.value),
            ("Native ISA", gpu.native_isa.value),
            ("Marketing Name", gpu.name.value),
            ("Chip ID", gpu.pci_id.value),
            ("Revision", gpu.revision.value),
            ("Compute Unit", gpu.cus.value),
            ("Wavefront Size", gpu.wave_size.value),
            ("VRAM", _bytes(gpu.vram_bytes.value)),
            ("PCIe atomics", gpu.pcie_atomics.value),
        ]
    return _lines(((f"{label}:" if label else "", value) for label, value in rows), "  ", 22)


def yolo_checks(results: Results) -> str:
    """Return the table of ``yolo checks``, with the rows for which rocmprobe has facts."""
    machine = results.machine
    gpu = ", ".join(map(_described, machine.gpus)) or None
    kernel = machine.value("kernel.release") or _UNKNOWN
    rows = (
        ("OS", f"Linux-{kernel}, {machine.value('os.name') or _UNKNOWN}"),
        ("Environment", machine.value("container.kind")),
        ("Python", machine.value("python.version")),
        ("RAM", _bytes(machine.value("memory.bytes"))),
        ("CPU", machine.value("cpu.name")),
        ("CPU count", machine.value("cpu.cores")),
        ("GPU", gpu),
        ("GPU count", len(machine.gpus)),
        ("CUDA", _cuda(machine)),
        ("HIP", identity.first_value(machine, ("hip.version", "torch.hip"))),
        ("MIOpen", library_version(results)),
        ("", ""),
        ("torch", machine.value("torch.version")),
        *_variables(machine),
    )
    return _lines(rows, "  ", 20)


def gpu_line(machine: Machine) -> str:
    """Return names and ISAs of all GPUs in one line."""
    return ", ".join(map(_described, machine.gpus)) or "none"


def _described(gpu: Gpu) -> str:
    native, effective = gpu.native_isa.value, gpu.effective_isa.value
    isa = f"{native} posing as {effective}" if identity.poses(native, effective) else text.show(native)
    return f"{identity.show_gpu_name(gpu)} ({isa})"


def _cuda(machine: Machine) -> Any:
    built_without = machine.value("torch.kind") in ("rocm", "cpu")
    return machine.value("torch.cuda") or ("None" if built_without else None)


def _bytes(value: Any) -> Optional[str]:
    amount = text.numeric(value)
    return None if amount is None else text.bytes_(amount)


def library_version(results: Results) -> Any:
    """Return the version of the vendor library, or "" if unknown."""
    elsewhere = {setting.name for setting in results.settings if setting.device}
    versions = {
        trial.library
        for trial in results.trials
        if trial.library and trial.device != "cpu" and trial.setting not in elsewhere
    }
    return results.machine.value("miopen.version") or ", ".join(sorted(versions))


def _variables(machine: Machine) -> Iterable[tuple[str, Any]]:
    return [(text.one_line(name, 60), fact.value) for name, fact in list(machine.variables.items())[:40]]


def _lines(rows: Iterable[tuple[str, Any]], gap: str, width: int = 0) -> str:
    """Return a code block with one line for each row. A row with an empty label makes an empty line."""
    shown = []
    for label, value in rows:
        known = _UNKNOWN if value in (None, "", [], ()) else text.one_line(text.show(value)[:2000], 200)
        shown.append(f"{label.ljust(width)}{gap}{known}" if label else "")
    return fence("\n".join(shown), limit=16_000)
