"""GPU nodes that KFD, the kernel's compute driver, lists.

Format: see ``runtimes/kfd.py``.
Source of the flags in ``io_links``: linux drivers/gpu/drm/amd/amdkfd/kfd_crat.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.detect.tree import ReadError, Tree
from rocmprobe.model.results import Fact
from rocmprobe.runtimes.kfd import NODES, compute_units, gpu_nodes, native_isa, parse_properties, pci_address

AMD = 0x1002
#: Values of heap_type in mem_banks for memory on the GPU: visible to the CPU, and not visible to the CPU.
_LOCAL_HEAPS = (1, 2)
#: Bits of a link's flags. Old drivers, which do not report atomics, clear the first bit.
_LINK_ENABLED, _LINK_NO_ATOMICS_32, _LINK_NO_ATOMICS_64 = 1 << 0, 1 << 2, 1 << 3
_LINK_XGMI = 11


@dataclass(frozen=True)
class Node:
    """A GPU that KFD lists, or one partition of a GPU.

    - ``runtime_index``: number of the node in the ROCm runtime, which skips unreadable nodes
    - ``pcie_atomics``: True if the GPU can use atomic operations on the CPU's memory
    """

    index: int
    runtime_index: int
    properties: Mapping[str, int]
    vram_bytes: Optional[int]
    vram_source: str
    pcie_atomics: Fact

    @property
    def source(self) -> str:
        return f"{NODES}/{self.index}/properties"

    def fact(self, name: str) -> Fact:
        """Return the property ``name`` as a fact."""
        if name not in self.properties:
            return Fact(None, f"{self.source}: no {name}")
        return Fact(self.properties[name], f"{self.source} {name}")

    @property
    def native_isa(self) -> Optional[str]:
        return native_isa(self.properties)

    @property
    def cus(self) -> Optional[int]:
        """Number of compute units, or None if unknown."""
        return compute_units(self.properties)

    @property
    def with_cpu(self) -> bool:
        """True if the node also has CPU cores, as on the first APUs."""
        return self.properties.get("cpu_cores_count", 0) > 0

    @property
    def pci_id(self) -> Optional[int]:
        return self.properties.get("device_id") or None

    @property
    def address(self) -> str:
        return pci_address(self.properties)


def read_nodes(tree: Tree) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Return the GPU nodes, sorted by node number, and an error message for each unreadable node."""
    refused = []

    def read(name: str) -> Optional[str]:
        try:
            return tree.read(f"{NODES}/{name}")
        except ReadError as error:
            # A container cannot read the nodes of GPUs that were not passed to the container.
            refused.append((int(name.partition("/")[0]), f"{NODES}/{name}: {error}"))
            return None

    listed = gpu_nodes(tree.names(NODES), read)
    nodes = tuple(
        Node(
            index,
            index - sum(1 for other, _ in refused if other < index),
            properties,
            *_vram(tree, f"{NODES}/{index}", properties),
            _atomics(tree, index, listed),
        )
        for index, properties in listed.items()
    )
    return nodes, tuple(line for _, line in refused)


def _atomics(tree: Tree, index: int, gpu_nodes: Mapping[int, Mapping[str, int]]) -> Fact:
    """Return True, as a fact, if the node's link to a CPU supports PCIe atomics."""
    folder = f"{NODES}/{index}/io_links"
    for name in sorted(tree.names(folder), key=lambda name: (len(name), name)):
        source = f"{folder}/{name}/properties"
        link = parse_properties(tree.text(source))
        flags = link.get("flags", 0)
        if link.get("node_to", index) in gpu_nodes:
            continue
        if not flags & _LINK_ENABLED:
            return Fact(None, f"{source} flags {flags}: this kernel does not report atomics")
        # An XGMI link always supports atomics.
        carried = link.get("type") == _LINK_XGMI or not flags & (_LINK_NO_ATOMICS_32 | _LINK_NO_ATOMICS_64)
        return Fact(carried, f"{source} flags {flags}")
    return Fact(None, f"{folder}: no link to a processor")


def _vram(tree: Tree, node: str, properties: Mapping[str, int]) -> tuple[Optional[int], str]:
    """Return the size of the local memory in bytes, and the source of this value."""
    folder = f"{node}/mem_banks"
    banks = (parse_properties(tree.text(f"{folder}/{name}/properties")) for name in tree.names(folder))
    total = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _LOCAL_HEAPS)
    if total:
        return total, f"{folder}/*/properties size_in_bytes"
    # Since 2017, the driver reports the size only in mem_banks.
    if properties.get("local_mem_size"):
        return properties["local_mem_size"], f"{node}/properties local_mem_size"
    return None, f"{folder}: no memory bank of the GPU"
