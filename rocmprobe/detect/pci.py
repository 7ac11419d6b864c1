"""Display and compute devices on PCI, joined with what the DRM driver says about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from rocmprobe.detect.tree import Tree, number
from rocmprobe.model import Fact

DEVICES = "/sys/bus/pci/devices"
DRM = "/sys/class/drm"
#: PCI base classes of GPUs: display controllers, and processing accelerators (MI300).
_GPU_CLASSES = (0x03, 0x12)
_CARD = re.compile(r"card[0-9]+")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True)
class Device:
    """One PCI function; ``folder`` is the sysfs folder that was read. Facts without a value say why."""

    address: str
    folder: str
    vendor: int
    device: Fact
    revision: Fact
    vram_bytes: Fact
    driver: Fact
    product: Fact


def read_devices(tree: Tree) -> dict[str, Device]:
    """GPUs of every vendor by PCI address, from the bus and from DRM cards."""
    # A recorded tree often has only /sys/class/drm; on a live machine both lead to the same device.
    folders = [f"{DEVICES}/{name}" for name in tree.names(DEVICES)]
    folders += [f"{DRM}/{name}/device" for name in tree.names(DRM) if _CARD.fullmatch(name)]
    found: dict[str, Device] = {}
    for folder in folders:
        device = _device(tree, folder)
        if device is not None:
            found.setdefault(device.address, device)
    return found


def _device(tree: Tree, folder: str) -> Optional[Device]:
    # The class first: one small read leaves out nearly every PCI device of a machine.
    if _base_class(tree, folder) not in _GPU_CLASSES:
        return None
    event = _uevent(tree, folder)
    address = event.get("PCI_SLOT_NAME") or folder.rpartition("/")[2]
    event_vendor, _, event_device = event.get("PCI_ID", "").partition(":")
    vendor = number(tree.text(f"{folder}/vendor")) or number("0x" + event_vendor)
    if vendor is None or not _ADDRESS.fullmatch(address):
        return None
    return Device(
        address=address,
        folder=folder,
        vendor=vendor,
        device=_number_fact(tree, f"{folder}/device", f"{folder}/uevent PCI_ID", event_device),
        revision=_number_fact(tree, f"{folder}/revision"),
        vram_bytes=_number_fact(tree, f"{folder}/mem_info_vram_total"),
        driver=_driver(tree, folder, event),
        product=tree.fact(f"{folder}/product_name"),
    )


def _base_class(tree: Tree, folder: str) -> int:
    text = tree.text(f"{folder}/class") or "0x" + _uevent(tree, folder).get("PCI_CLASS", "")
    return (number(text) or 0) >> 16


def _uevent(tree: Tree, folder: str) -> dict[str, str]:
    lines = (line.partition("=") for line in (tree.text(f"{folder}/uevent") or "").splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _number_fact(tree: Tree, name: str, other: str = "", other_hex: str = "") -> Fact:
    """A number from a file, or from another place that holds it in hexadecimal."""
    fact = tree.fact(name)
    value = number(fact.value)
    if value is not None:
        return Fact(value, name)
    value = number("0x" + other_hex) if other_hex else None
    if value is not None:
        return Fact(value, other)
    return fact if fact.value is None else Fact(None, f"{name}: not a number")


def _driver(tree: Tree, folder: str, event: dict[str, str]) -> Fact:
    if event.get("DRIVER"):
        return Fact(event["DRIVER"], f"{folder}/uevent DRIVER")
    if tree.exists(f"{folder}/driver"):
        return Fact(tree.real(f"{folder}/driver").rpartition("/")[2], f"{folder}/driver")
    return Fact(None, f"{folder}/driver: no kernel driver is bound")
