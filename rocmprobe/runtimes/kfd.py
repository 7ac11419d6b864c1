"""Parser for the topology files of KFD, the Linux driver for compute on AMD GPUs, in sysfs.

Each GPU is a node. A file has one "name value" per line, with decimal values
(linux drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Callable, Optional

NODES = "/sys/class/kfd/kfd/topology/nodes"
_LARGEST = 1 << 64
_MOST_DIGITS = 20


def gpu_nodes(names: Iterable[str], read: Callable[[str], Optional[str]]) -> Mapping[int, Mapping[str, int]]:
    """Return the properties of each GPU node, keyed by node number.

    ``names`` are the names in the folder ``NODES``. ``read`` returns the text of a file, given its path
    relative to ``NODES``, or None for an unreadable file.
    """
    nodes = {}
    for index in sorted(int(name) for name in names if name.isdecimal()):
        properties = parse_properties(read(f"{index}/properties"))
        # CPU nodes have no SIMDs.
        if properties.get("simd_count", 0) > 0:
            nodes[index] = properties
    return nodes


def parse_properties(text: Optional[str]) -> dict[str, int]:
    """Parse the text of a properties file. Skip invalid lines."""
    properties = {}
    for line in (text or "").splitlines():
        name, _, value = line.strip().partition(" ")
        if value.isdecimal() and len(value) <= _MOST_DIGITS and int(value) < _LARGEST:
            properties[name] = int(value)
    return properties


def native_isa(properties: Mapping[str, int]) -> Optional[str]:
    """Return the ISA of a node's chip, or None if the driver does not report it."""
    version = properties.get("gfx_target_version", 0)
    return isa_name(version) if version else None


def compute_units(properties: Mapping[str, int]) -> Optional[int]:
    """Return the number of compute units of a node, or None if the driver does not report it."""
    of_unit = properties.get("simd_per_cu", 0)
    return properties["simd_count"] // of_unit if of_unit else None


def pci_address(properties: Mapping[str, int]) -> str:
    """Return a node's PCI address, e.g. "0000:03:00.0"."""
    place = properties.get("location_id", 0)
    domain = properties.get("domain", 0)
    return f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def isa_name(gfx_target_version: int) -> str:
    """Return the ISA for KFD's ``gfx_target_version``, e.g. "gfx1010" for 100100 and "gfx90a" for 90010.

    The version is major * 10000 + minor * 100 + stepping. In the ISA, minor and stepping are hexadecimal.
    """
    major, rest = divmod(gfx_target_version, 10000)
    return f"gfx{major}{rest // 100:x}{rest % 100:x}"
