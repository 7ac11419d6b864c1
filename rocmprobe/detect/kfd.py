"""GPU nodes of the KFD topology: what the kernel's compute driver says about each GPU.

Format: linux drivers/gpu/drm/amd/amdkfd/kfd_topology.c, one "name value" a line, values decimal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe import gpus
from rocmprobe.detect.tree import ReadError, Tree, number

NODES = "/sys/class/kfd/kfd/topology/nodes"
AMD = 0x1002
#: mem_banks heap_type of memory on the GPU: frame buffer that the CPU can see, and that it cannot.
_LOCAL_HEAPS = (1, 2)


@dataclass(frozen=True)
class Node:
    """One GPU (or one partition of it) as KFD lists it; ``vram_bytes`` is its own share, in bytes."""

    index: int
    properties: Mapping[str, int]
    vram_bytes: Optional[int]
    vram_source: str

    @property
    def source(self) -> str:
        return f"{NODES}/{self.index}/properties"

    @property
    def native_isa(self) -> Optional[str]:
        version = self.properties.get("gfx_target_version", 0)
        return gpus.isa_name(version) if version else None

    @property
    def cus(self) -> Optional[int]:
        """Compute units; None where the driver gives no SIMD counts."""
        per_cu = self.properties.get("simd_per_cu", 0)
        return self.properties["simd_count"] // per_cu if per_cu else None

    @property
    def pci_id(self) -> Optional[int]:
        return self.properties.get("device_id") or None

    @property
    def address(self) -> str:
        """PCI address; in partition mode the function number counts the partitions of one card."""
        place = self.properties.get("location_id", 0)
        domain = self.properties.get("domain", 0)
        return f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def read_nodes(tree: Tree) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Every GPU node, by node number, and a line on each node that could not be read.

    Nodes without SIMDs are CPUs. The kernel refuses a node to a container that was not given the GPU.
    """
    found, refused = [], []
    for name in tree.names(NODES):
        index = number(name)
        if index is None:
            continue
        try:
            properties = _properties(tree.read(f"{NODES}/{name}/properties"))
        except ReadError as error:
            refused.append(f"{NODES}/{name}/properties: {error}")
            continue
        if properties.get("simd_count", 0) > 0:
            found.append(Node(index, properties, *_vram(tree, f"{NODES}/{name}", properties)))
    return tuple(sorted(found, key=lambda node: node.index)), tuple(refused)


def _properties(text: Optional[str]) -> dict[str, int]:
    found = {}
    for line in (text or "").splitlines():
        name, _, value = line.strip().partition(" ")
        parsed = number(value)
        if parsed is not None:
            found[name] = parsed
    return found


def _vram(tree: Tree, node: str, properties: Mapping[str, int]) -> tuple[Optional[int], str]:
    """Bytes of local memory and where that was read; drivers since 2017 fill only the memory banks."""
    folder = f"{node}/mem_banks"
    banks = [_properties(tree.text(f"{folder}/{name}/properties")) for name in tree.names(folder)]
    total = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _LOCAL_HEAPS)
    if total:
        return total, f"{folder}/*/properties size_in_bytes"
    if properties.get("local_mem_size"):
        return properties["local_mem_size"], f"{node}/properties local_mem_size"
    return None, f"{folder}: no memory bank of the GPU"
