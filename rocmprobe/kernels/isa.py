"""For which ISA a kernel is compiled, and as which it is loaded.

The runtime reports the effective ISA, which ``HSA_OVERRIDE_GFX_VERSION`` changes; the native one, that of the
silicon, is in KFD's topology (linux drivers/gpu/drm/amd/amdkfd/kfd_topology.c). Code for another ISA than the
native one may have instructions that the silicon lacks, or lack workarounds that it needs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rocmprobe.kernels.unavailable import KernelsUnavailable

KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"
#: Under the override code for these is loaded with the number of SHOWN_AS in its header.
_PATCHED = ("gfx1010", "gfx1011", "gfx1012", "gfx1013")
SHOWN_AS = "gfx1030"
_PROPERTIES_BYTES = 1 << 16


@dataclass(frozen=True)
class Target:
    """What a device needs.

    Attributes:
        native: the ISA of the silicon, "gfx1010", or "sm_90".
        effective: as the runtime shows it, "gfx1030", without features.
        compiled: what the compiler is asked for, "gfx1010:xnack-".
    """

    native: str
    effective: str
    compiled: str

    @property
    def patched(self) -> bool:
        """Whether the header of the code object has to name ``effective``."""
        return self.native != self.effective


def isa_name(gfx_target_version: int) -> str:
    """The ISA of KFD's ``gfx_target_version``: 100100 is gfx1010, 90010 is gfx90a.

    Two decimal digits each for minor and stepping, which the name has in hexadecimal.
    """
    major, rest = divmod(gfx_target_version, 10000)
    return f"gfx{major}{rest // 100:x}{rest % 100:x}"


def hip_target(shown: str, native: str) -> Target:
    """The target of an AMD GPU. ``shown`` is its gcnArchName, "gfx1030" or "gfx90a:sramecc+:xnack-".

    Raises:
        KernelsUnavailable: for a GPU that is shown as another, but RDNA1 (gfx101x) as gfx1030.
    """
    effective, _, features = shown.partition(":")
    if native == effective:
        if not features and native in _PATCHED:
            # An older runtime names no features; without this one the code is for either state of XNACK.
            shown = f"{native}:xnack-"
        return Target(native, effective, shown)
    if native in _PATCHED and effective == SHOWN_AS:
        return Target(native, effective, f"{native}:xnack-")
    raise KernelsUnavailable(
        f"this GPU is {native}, shown as {effective}: only gfx101x as {SHOWN_AS} is known to load"
    )


def cuda_target(arch: str) -> Target:
    """The target of an NVIDIA GPU, of its compute capability as "sm_90"."""
    return Target(arch, arch, arch)


def native_isa(pci_address: Optional[str], nodes: str = KFD_NODES) -> str:
    """The ISA of the silicon at a PCI address ("0000:03:00.0"), from KFD's topology.

    Where no GPU node has that address (None, or a driver that does not say), it is the one that all GPU nodes
    have; the functions of an address are partitions of one chip.

    Raises:
        KernelsUnavailable: where KFD has no GPU node, as in WSL, or where the nodes differ and none has the
            address.
    """
    found = _gpu_nodes(Path(nodes))
    if not found:
        raise KernelsUnavailable(
            f"the ISA of the silicon is not known: {nodes} has no GPU, as in WSL and without amdgpu"
        )
    place = _place(pci_address)
    isas = {isa for at, isa in found if at == place} or {isa for _, isa in found}
    if len(isas) > 1:
        raise KernelsUnavailable(
            f"the ISA of the silicon is not known: {nodes} has {', '.join(sorted(isas))}, and none is at "
            f"{pci_address or 'a known PCI address'}"
        )
    return isas.pop()


def _gpu_nodes(nodes: Path) -> list[tuple[tuple[int, int], str]]:
    """For each GPU node its place (domain, bus and device) and its ISA."""
    try:
        names = sorted(os.listdir(nodes))
    except OSError:
        return []
    found = []
    for name in names:
        properties = _properties(nodes / name / "properties")
        version = properties.get("gfx_target_version", 0)
        if properties.get("simd_count", 0) > 0 and version:
            place = properties.get("domain", 0), properties.get("location_id", 0) >> 3
            found.append((place, isa_name(version)))
    return found


def _properties(path: Path) -> dict[str, int]:
    try:
        with path.open("rb") as stream:
            text = stream.read(_PROPERTIES_BYTES).decode("ascii", "replace")
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        if value.isdecimal() and len(value) < 21:
            found[name] = int(value)
    return found


def _place(address: Optional[str]) -> Optional[tuple[int, int]]:
    try:
        domain, bus, device = (address or "").partition(".")[0].split(":")
        return int(domain, 16), int(bus, 16) << 5 | int(device, 16)
    except ValueError:
        return None
