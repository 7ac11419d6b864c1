"""Facts of the operating system, the processor, the memory and the kernel drivers."""

from __future__ import annotations

import re
import shlex
from typing import Optional

from rocmprobe.detect.tree import ReadError, Tree
from rocmprobe.model.results import Fact

_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
_CPUINFO = "/proc/cpuinfo"
_MEMINFO = "/proc/meminfo"
_CMDLINE = "/proc/cmdline"
_PARAMETER = re.compile(
    r"(?:amdgpu|amdkfd|radeon|drm|video|vfio-pci|pci|pcie_aspm|pcie_ports)[.=]|nomodeset$|(?:amd_|intel_)?iommu[.=]"
    r"|(?:modprobe\.|module_)blacklist=|initcall_blacklist=|noapic$|efifb[:=]"
)


def read_facts(tree: Tree) -> dict[str, Fact]:
    """``os.*``, ``kernel.release`` and ``kernel.parameters`` (those of graphics and PCI alone), ``cpu.name``
    and ``cpu.cores``, ``memory.*`` in bytes, driver versions; ``amdgpu.origin`` is "dkms" or "kernel"."""
    return {
        **_os(tree),
        "kernel.release": tree.fact("/proc/sys/kernel/osrelease"),
        "kernel.parameters": _parameters(tree),
        **_cpu(tree),
        **_memory(tree),
        "amdgpu.version": _module_version(tree, "amdgpu"),
        "amdgpu.origin": _amdgpu_origin(tree),
        "nvidia.version": _module_version(tree, "nvidia"),
    }


def _os(tree: Tree) -> dict[str, Fact]:
    """Format: os-release(5). ``os.id`` is for programs ("ubuntu"), ``os.name`` for people."""
    fields = {"os.name": "PRETTY_NAME", "os.id": "ID", "os.version": "VERSION_ID"}
    name = next((name for name in _OS_RELEASE if tree.text(name)), _OS_RELEASE[0])
    text = tree.text(name) or ""
    found = {}
    for fact, key in fields.items():
        match = re.search(rf"^{key}=(.*)$", text, re.MULTILINE)
        found[fact] = (
            Fact(_unquoted(match.group(1)), f"{name} {key}") if match else Fact(None, f"{name}: no {key}")
        )
    return found


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value.strip()


def _cpu(tree: Tree) -> dict[str, Fact]:
    """Name and number of cores; threads of one core count once where the kernel reports the cores."""
    try:
        text = tree.read(_CPUINFO)
    except ReadError as error:
        missing = Fact(None, f"{_CPUINFO}: {error}")
        return {"cpu.name": missing, "cpu.cores": missing}
    threads = [_cpuinfo_fields(block) for block in re.split(r"\n\s*\n", text)]
    threads = [fields for fields in threads if "processor" in fields]
    model = next((fields["model name"] for fields in threads if fields.get("model name")), None)
    cores = {(fields.get("physical id"), fields.get("core id", fields["processor"])) for fields in threads}
    return {
        "cpu.name": Fact(model, f"{_CPUINFO} model name"),
        "cpu.cores": Fact(len(cores) or None, f"{_CPUINFO} physical id and core id"),
    }


def _cpuinfo_fields(block: str) -> dict[str, str]:
    parts = (line.partition(":") for line in block.splitlines())
    return {name.strip(): value.strip() for name, _, value in parts}


def _memory(tree: Tree) -> dict[str, Fact]:
    fields = {
        "memory.bytes": "MemTotal",
        "memory.available_bytes": "MemAvailable",
        "memory.swap_bytes": "SwapTotal",
    }
    text = tree.text(_MEMINFO) or ""
    found = {}
    for fact, key in fields.items():
        match = re.search(rf"^{key}:\s*([0-9]{{1,18}}) kB", text, re.MULTILINE)
        found[fact] = Fact(int(match.group(1)) * 1024 if match else None, f"{_MEMINFO} {key}")
    return found


def _parameters(tree: Tree) -> Fact:
    """Others may hold identifiers of disks and hosts, so only those that concern a GPU are kept."""
    fact = tree.fact(_CMDLINE)
    if fact.value is None:
        return fact
    return Fact([word[:200] for word in fact.value.split() if _PARAMETER.match(word)], _CMDLINE)


def _module_version(tree: Tree, module: str) -> Fact:
    """The version a kernel module declares; drivers that come with the kernel declare none."""
    folder = f"/sys/module/{module}"
    version: Optional[str] = tree.text(f"{folder}/version")
    if version:
        return Fact(version, f"{folder}/version")
    if tree.exists(folder):
        return Fact(None, f"{folder}/version: none, the driver is the kernel's own")
    return Fact(None, f"{folder}: module not loaded")


def _amdgpu_origin(tree: Tree) -> Fact:
    """Only the driver that AMD ships as source, built by DKMS, declares a version."""
    version = _module_version(tree, "amdgpu")
    if version.value:
        return Fact("dkms", version.source)
    return Fact("kernel" if tree.exists("/sys/module/amdgpu") else None, version.source)
