"""Marketing names from libdrm's table of AMD GPUs, where the machine has one."""

from __future__ import annotations

from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact

#: The distribution's copy, that of AMD's driver packages, and that of ROCm since 7.14.
TABLES = (
    "/usr/share/libdrm/amdgpu.ids",
    "/opt/amdgpu/share/libdrm/amdgpu.ids",
    "/opt/rocm/lib/rocm_sysdeps/share/libdrm/amdgpu.ids",
)


def marketing_name(tree: Tree, pci_id: int, revision: int) -> Fact:
    """The product with this PCI device id and revision.

    Format: libdrm data/amdgpu.ids, lines of "device,<tab>revision,<tab>product", both numbers hexadecimal.
    """
    for path in TABLES:
        for line in (tree.text(path) or "").splitlines():
            device, _, rest = line.partition(",")
            stepping, _, product = rest.partition(",")
            if (_hex(device), _hex(stepping)) == (pci_id, revision) and product.strip():
                return Fact(product.strip(), path)
    return Fact(None, f"{', '.join(TABLES)}: no such device")


def _hex(text: str) -> int:
    try:
        return int(text.strip(), 16)
    except ValueError:
        return -1
