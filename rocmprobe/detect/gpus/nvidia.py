"""NVIDIA GPUs, from the PCI bus and from the driver's files in /proc. Identifiers are not read."""

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


def read_gpus(tree: Tree, devices: Mapping[str, pci.PciDevice]) -> list[Gpu]:
    """Return the NVIDIA GPUs that PCI or the driver lists."""
    on_pci = {address: device for address, device in devices.items() if device.vendor == NVIDIA}
    with_driver = tree.names(PROC)
    return [
        _gpu(tree, address, on_pci.get(address), address in with_driver)
        for address in sorted({*on_pci, *with_driver})
    ]


def _gpu(tree: Tree, address: str, device: Optional[pci.PciDevice], with_driver: bool) -> Gpu:
    information = f"{PROC}/{address}/information"
    match = _MODEL.search(tree.text(information) or "")
    name = Fact(match.group(1) if match else None, f"{information} Model")
    unknown = Fact(None, f"no PCI device at {address}")
    return Gpu(
        native_isa=_NO_ISA,
        effective_isa=_NO_ISA,
        name=name,
        pci_id=pci.hex_fact(device.device if device else unknown, 4),
        revision=pci.hex_fact(device.revision if device else unknown, 2),
        cus=Fact(None, "not counted for NVIDIA GPUs"),
        vram_bytes=Fact(None, "not in sysfs for NVIDIA GPUs"),
        vendor=Fact("nvidia", f"{device.folder}/vendor" if device else PROC),
        driver=Fact("nvidia", PROC) if with_driver or device is None else device.driver,
        address=Fact(address, device.folder if device else PROC),
        **dict.fromkeys(("simds", "wave_size", "apu", "pcie_atomics"), _NOT_ASKED),
        **amdgpu.unknown(_NOT_ASKED.source),
    )
