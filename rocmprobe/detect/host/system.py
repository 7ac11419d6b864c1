"""Reader for facts about the operating system, CPU, memory and kernel drivers."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from pathlib import PurePosixPath
from typing import Optional

from rocmprobe.detect.tree import NOT_LOOKED_UP, ReadError, Tree, number
from rocmprobe.model.results import Fact

_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
_CPUINFO = "/proc/cpuinfo"
_MEMINFO = "/proc/meminfo"
_CMDLINE = "/proc/cmdline"
_CGROUP = "/proc/self/cgroup"
_CGROUPS = "/sys/fs/cgroup"
_AMDGPU = "/sys/module/amdgpu"
#: The option of ``ulimit`` and the name in the module ``resource``, keyed by the name of the fact.
_ULIMITS = {
    "address_space_bytes": ("v", "RLIMIT_AS"), "files": ("n", "RLIMIT_NOFILE"),
    "processes": ("u", "RLIMIT_NPROC"),
}  # fmt: skip
#: Smallest number that means "no limit" in control groups version 1.
_UNLIMITED = 1 << 62
_PARAMETER = re.compile(
    r"(?:amdgpu|amdkfd|radeon|drm|video|vfio-pci|pci|pcie_aspm|pcie_ports)[.=]|nomodeset$|(?:amd_|intel_)?iommu[.=]"
    r"|(?:modprobe\.|module_)blacklist=|initcall_blacklist=|noapic$|efifb[:=]"
)


def read_facts(tree: Tree) -> dict[str, Fact]:
    """Return ``os.*``, ``kernel.*``, ``cpu.*``, ``memory.*`` (in bytes) and ``amdgpu.*``.

    ``kernel.parameters`` has only parameters for graphics and PCI. ``amdgpu.origin`` is "dkms" or "kernel".
    """
    return {
        **_os(tree),
        "kernel.release": tree.fact("/proc/sys/kernel/osrelease"),
        "kernel.parameters": _parameters(tree),
        **_cpu(tree),
        **_memory(tree),
        "amdgpu.version": _amdgpu_version(tree),
        "amdgpu.origin": _amdgpu_origin(tree),
    }


def _os(tree: Tree) -> dict[str, Fact]:
    fields = {"os.name": "PRETTY_NAME", "os.id": "ID", "os.version": "VERSION_ID"}
    name = next((name for name in _OS_RELEASE if tree.text(name)), _OS_RELEASE[0])
    text = tree.text(name) or ""
    facts = {}
    for fact, key in fields.items():
        match = re.search(rf"^{key}=(.*)$", text, re.MULTILINE)
        facts[fact] = (
            Fact(_unquoted(match.group(1)), f"{name} {key}") if match else Fact(None, f"{name}: no {key}")
        )
    return facts


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value.strip()


def _cpu(tree: Tree) -> dict[str, Fact]:
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
    facts = {}
    for fact, key in fields.items():
        match = re.search(rf"^{key}:\s*([0-9]{{1,18}}) kB", text, re.MULTILINE)
        facts[fact] = Fact(int(match.group(1)) * 1024 if match else None, f"{_MEMINFO} {key}")
    return facts


def _parameters(tree: Tree) -> Fact:
    """Return the kernel's boot parameters for graphics and PCI."""
    fact = tree.fact(_CMDLINE)
    if fact.value is None:
        return fact
    # Other parameters can contain identifiers of disks and hosts.
    return Fact([word[:200] for word in fact.value.split() if _PARAMETER.match(word)], _CMDLINE)


def _amdgpu_version(tree: Tree) -> Fact:
    """Return the version that the kernel module amdgpu declares."""
    if version := tree.text(f"{_AMDGPU}/version"):
        return Fact(version, f"{_AMDGPU}/version")
    if tree.exists(_AMDGPU):
        return Fact(None, f"{_AMDGPU}/version: missing, so the driver is part of the kernel")
    return Fact(None, f"{_AMDGPU}: module not loaded")


def _amdgpu_origin(tree: Tree) -> Fact:
    """Return "dkms" for AMD's separate driver, or "kernel" for the driver that is part of Linux."""
    # Only AMD's separate driver, built by DKMS, declares a version.
    version = _amdgpu_version(tree)
    if version.value:
        return Fact("dkms", version.source)
    return Fact("kernel" if tree.exists(_AMDGPU) else None, version.source)


def read_limits(tree: Tree) -> dict[str, Fact]:
    """Return the limits of this process.

    - ``cpu.allowed``: number of CPU threads on which the process can run
    - ``cpu.quota``: number of CPU threads that the control group allows, possibly a fraction
    - ``memory.limit_bytes``: memory limit of the control group
    - ``limits.address_space_bytes``, ``limits.files``, ``limits.processes``: limits of ``ulimit``

    If there is no limit, the fact has no value.
    """
    allowed = Fact(None, NOT_LOOKED_UP)
    if tree.own:
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        allowed = Fact(count, "sched_getaffinity")
    # Facts must not name the path of the control group, because the path can contain the name of a user.
    memory: list[tuple[int, str]] = []
    quota: list[tuple[float, str]] = []
    for folder in _folders(tree):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = number(tree.text(f"{folder}/{name}"))
            if limit is not None and limit < _UNLIMITED:
                memory.append((limit, f"{name} of the control group"))
        for name, cpus in (
            ("cpu.max", _cpu_max(tree, folder)),
            ("cpu.cfs_quota_us", _cfs_quota(tree, folder)),
        ):
            if cpus is not None:
                quota.append((cpus, f"{name} of the control group"))
    nothing = Fact(None, f"{_CGROUPS}: no limit")
    return {
        "cpu.allowed": allowed,
        "memory.limit_bytes": Fact(*min(memory)) if memory else nothing,
        "cpu.quota": Fact(*min(quota)) if quota else nothing,
        **{f"limits.{name}": _ulimit(tree, option, limit) for name, (option, limit) in _ULIMITS.items()},
    }


def _ulimit(tree: Tree, option: str, name: str) -> Fact:
    if not tree.own:
        return Fact(None, NOT_LOOKED_UP)
    # Imported late, because Windows has no such module.
    import resource

    limit, _ = resource.getrlimit(getattr(resource, name))
    return Fact(None if limit == resource.RLIM_INFINITY else limit, f"ulimit -{option}")


def _folders(tree: Tree) -> list[str]:
    """Return the folders of this process's control groups and of all parent groups.

    Format: cgroups(7), "hierarchy:controllers:path".
    """
    folders = []
    for line in (tree.text(_CGROUP) or "0::/").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            if controller in ("", "memory", "cpu"):
                group = PurePosixPath(_CGROUPS, controller, path.lstrip("/"))
                own = PurePosixPath(_CGROUPS, controller)
                # In a container, the path can be a path of the host, so include the top folder.
                folders += [str(place) for place in (group, *group.parents) if own in (place, *place.parents)]
    return list(dict.fromkeys(folders))


def _cpu_max(tree: Tree, folder: str) -> Optional[float]:
    quota, _, period = (tree.text(f"{folder}/cpu.max") or "").partition(" ")
    return _ratio(quota, period)


def _cfs_quota(tree: Tree, folder: str) -> Optional[float]:
    return _ratio(tree.text(f"{folder}/cpu.cfs_quota_us"), tree.text(f"{folder}/cpu.cfs_period_us"))


def _ratio(quota: Optional[str], period: Optional[str]) -> Optional[float]:
    time, length = number(quota), number(period)
    return round(time / length, 2) if time and length else None


def is_windows(tree: Tree) -> bool:
    """Return True if ``tree`` is this machine and this machine runs Windows."""
    return tree.own and sys.platform == "win32"


def read_windows() -> dict[str, Fact]:
    """Return facts about Windows and the CPU. ``amd.cards`` and ``kfd.device`` have no value."""
    release = platform.release()
    not_here = Fact(None, "rocmprobe does not look up GPUs on Windows, which has no KFD driver")
    return {
        "os.name": Fact(f"Windows {release}".strip(), "Python's platform"),
        "os.id": Fact("windows", "Python's sys.platform"),
        "os.version": Fact(release or None, "Python's platform.release"),
        "kernel.release": Fact(platform.version() or None, "Python's platform.version"),
        "cpu.name": Fact(platform.processor() or None, "Python's platform.processor"),
        "cpu.threads": Fact(os.cpu_count(), "Python's os.cpu_count"),
        "amd.cards": not_here,
        "kfd.device": not_here,
    }
