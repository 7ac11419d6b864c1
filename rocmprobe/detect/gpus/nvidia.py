"""NVIDIA GPUs, from the driver's /proc files and from PCI. Identifiers (UUID, serial) are not read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from rocmprobe.detect.gpus import amdgpu, pci
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact, Gpu

NVIDIA = 0x10DE
PROC = "/proc/driver/nvidia/gpus"
_MODEL = re.compile(r"^Model:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
_NO_ISA = Fact(None, "not an AMD GPU")
_NOT_ASKED = Fact(None, "not read for NVIDIA GPUs")


def read_gpus(tree: Tree, devices: Mapping[str, pci.PciDevice]) -> list[tuple[str, Gpu]]:
    """NVIDIA GPUs with their PCI addresses."""
    on_pci = {address: device for address, device in devices.items() if device.vendor == NVIDIA}
    with_driver = tree.names(PROC)
    return [
        (address, _gpu(tree, address, on_pci.get(address), address in with_driver))
        for address in sorted({*on_pci, *with_driver})
    ]


def _gpu(tree: Tree, address: str, device: Optional[pci.PciDevice], with_driver: bool) -> Gpu:
    information = f"{PROC}/{address}/information"
    match = _MODEL.search(tree.text(information) or "")
    name = Fact(match.group(1) if match else None, f"{information} Model")
    unknown = Fact(None, f"no PCI device at {address}")
    pci_id = device.device if device else unknown
    revision = device.revision if device else unknown
    return Gpu(
        native_isa=_NO_ISA,
        effective_isa=_NO_ISA,
        name=name,
        pci_id=Fact(None if pci_id.value is None else f"0x{pci_id.value:04x}", pci_id.source),
        revision=Fact(None if revision.value is None else f"0x{revision.value:02x}", revision.source),
        cus=Fact(None, "not counted for NVIDIA GPUs"),
        vram_bytes=Fact(None, "not in sysfs for NVIDIA GPUs"),
        vendor=Fact("nvidia", f"{device.folder}/vendor" if device else PROC),
        driver=Fact("nvidia", PROC) if with_driver or device is None else device.driver,
        address=Fact(address, device.folder if device else PROC),
        **dict.fromkeys(("simds", "wave_size", "apu", "pcie_atomics"), _NOT_ASKED),
        **amdgpu.unknown(_NOT_ASKED.source),
    )
