"""Facts of the operating system, the processor, the memory and the kernel drivers."""

from __future__ import annotations

import os
import re
import shlex
from typing import Optional

from rocmprobe.detect.tree import ReadError, Tree
from rocmprobe.model import Fact

KFD_DEVICE = "/dev/kfd"
_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
_CPUINFO = "/proc/cpuinfo"
_MEMINFO = "/proc/meminfo"


def read_facts(tree: Tree) -> dict[str, Fact]:
    """``os.name``, ``kernel.release``, ``cpu.*``, ``memory.bytes``, ``kfd.device``, driver versions."""
    return {
        "os.name": _os_name(tree),
        "kernel.release": tree.fact("/proc/sys/kernel/osrelease"),
        **_cpu(tree),
        "memory.bytes": _memory(tree),
        "kfd.device": _kfd_device(tree),
        "amdgpu.version": _module_version(tree, "amdgpu"),
        "nvidia.version": _module_version(tree, "nvidia"),
    }


def _os_name(tree: Tree) -> Fact:
    for name in _OS_RELEASE:
        match = re.search(r"^PRETTY_NAME=(.*)$", tree.text(name) or "", re.MULTILINE)
        if match:
            return Fact(_unquoted(match.group(1)), f"{name} PRETTY_NAME")
    return Fact(None, f"{_OS_RELEASE[0]}: no PRETTY_NAME")


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value.strip()


def _cpu(tree: Tree) -> dict[str, Fact]:
    """Name and number of cores; threads of one core count once where the kernel tells them apart."""
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


def _memory(tree: Tree) -> Fact:
    match = re.search(r"^MemTotal:\s*([0-9]{1,18}) kB", tree.text(_MEMINFO) or "", re.MULTILINE)
    return Fact(int(match.group(1)) * 1024 if match else None, f"{_MEMINFO} MemTotal")


def _kfd_device(tree: Tree) -> Fact:
    """Whether this process could open /dev/kfd. It is not opened: that would start the compute driver."""
    if not tree.exists(KFD_DEVICE):
        return Fact("absent", KFD_DEVICE)
    if os.access(tree.locate(KFD_DEVICE), os.R_OK | os.W_OK):
        return Fact("present", KFD_DEVICE)
    return Fact("no permission", f"{KFD_DEVICE}: no read and write access for this user")


def _module_version(tree: Tree, module: str) -> Fact:
    """The version a kernel module declares; drivers that come with the kernel declare none."""
    folder = f"/sys/module/{module}"
    version: Optional[str] = tree.text(f"{folder}/version")
    if version:
        return Fact(version, f"{folder}/version")
    if tree.exists(folder):
        return Fact(None, f"{folder}/version: none, the driver is the kernel's own")
    return Fact(None, f"{folder}: module not loaded")
