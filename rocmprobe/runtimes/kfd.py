"""GPU nodes in the topology that KFD, the kernel's compute driver, writes to sysfs.

Format: linux drivers/gpu/drm/amd/amdkfd/kfd_topology.c, one "name value" per line, values decimal. The
callers open the files, because detection also reads files of a recorded machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Callable, Optional

NODES = "/sys/class/kfd/kfd/topology/nodes"
_LARGEST = 1 << 64
_MOST_DIGITS = 20


def gpu_nodes(names: Iterable[str], read: Callable[[str], Optional[str]]) -> Mapping[int, Mapping[str, int]]:
    """Return the properties of each GPU node, by node number.

    ``names`` are the names of the entries in the folder ``NODES``. ``read`` returns the text of a file, named
    relative to that folder, or None if the file is unreadable. Nodes without SIMDs are CPUs.
    """
    found = {}
    for index in sorted(int(name) for name in names if name.isdecimal()):
        properties = parse_properties(read(f"{index}/properties"))
        if properties.get("simd_count", 0) > 0:
            found[index] = properties
    return found


def parse_properties(text: Optional[str]) -> dict[str, int]:
    """Return the properties in a file's text. Skip every line that is not a name and a number."""
    found = {}
    for line in (text or "").splitlines():
        name, _, value = line.strip().partition(" ")
        if value.isdecimal() and len(value) <= _MOST_DIGITS and int(value) < _LARGEST:
            found[name] = int(value)
    return found


def native_isa(properties: Mapping[str, int]) -> Optional[str]:
    """Return the ISA of a node's silicon, or None if the driver does not report it."""
    version = properties.get("gfx_target_version", 0)
    return isa_name(version) if version else None


def pci_address(properties: Mapping[str, int]) -> str:
    """Return a node's PCI address. In partition mode the function number counts the partitions of a card."""
    place = properties.get("location_id", 0)
    domain = properties.get("domain", 0)
    return f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def isa_name(gfx_target_version: int) -> str:
    """Return the ISA for KFD's ``gfx_target_version``. Examples: 100100 is gfx1010, 90010 is gfx90a.

    Minor and stepping have two decimal digits each, which the name shows in hexadecimal.
    """
    major, rest = divmod(gfx_target_version, 10000)
    return f"gfx{major}{rest // 100:x}{rest % 100:x}"
