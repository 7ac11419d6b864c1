"""GPUs on the PCI bus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from rocmprobe.detect.tree import Tree, number
from rocmprobe.model.results import Fact

DEVICES = "/sys/bus/pci/devices"
DRM = "/sys/class/drm"
#: PCI base classes of GPUs: display controllers, and processing accelerators (MI300).
_GPU_CLASSES = (0x03, 0x12)
_BRIDGE_CLASS = 0x0604
_CARD = re.compile(r"card[0-9]+")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"([0-9.]+ GT/s)(?: PCIe)?")


@dataclass(frozen=True)
class PciDevice:
    """A GPU on the PCI bus. ``folder`` is the GPU's folder in sysfs."""

    address: str
    folder: str
    vendor: int
    device: Fact
    revision: Fact
    vram_bytes: Fact
    driver: Fact
    product: Fact


def read_devices(tree: Tree) -> dict[str, PciDevice]:
    """Return the GPUs of all vendors, keyed by PCI address."""
    # A recorded tree often has only /sys/class/drm. On a real machine, both paths lead to the same devices.
    folders = [f"{DEVICES}/{name}" for name in tree.names(DEVICES)]
    folders += [f"{DRM}/{name}/device" for name in tree.names(DRM) if _CARD.fullmatch(name)]
    devices: dict[str, PciDevice] = {}
    for folder in folders:
        device = _device(tree, folder)
        if device is not None:
            devices.setdefault(device.address, device)
    return devices


def read_link(tree: Tree, folder: str) -> Fact:
    """Return the present PCIe link of a card, e.g. "8.0 GT/s x8 (best 16.0 GT/s x16)".

    If the card has its own PCIe switch, return the link between slot and switch. Reading wakes a suspended
    GPU.
    """
    card = _connector(tree, folder)
    link = _link(tree, card)
    if card != folder and link.value is not None:
        inside = _link(tree, folder).value or "unknown"
        link = Fact(link.value, f"{link.source} (the card's own PCIe switch; at the GPU behind it: {inside})")
    return link


def _connector(tree: Tree, folder: str) -> str:
    """Return the sysfs folder of the card's outermost PCIe port."""
    try:
        here = tree.real(folder)
    except OSError:
        return folder
    vendor, outermost = tree.text(f"{folder}/vendor"), folder
    above = here.rpartition("/")[0]
    while vendor and tree.text(f"{above}/vendor") == vendor and _class(tree, above) == _BRIDGE_CLASS:
        outermost, above = above, above.rpartition("/")[0]
    return outermost


def _link(tree: Tree, folder: str) -> Fact:
    source = f"{folder}/current_link_speed and current_link_width"
    present, best = _speed_and_width(tree, folder, "current"), _speed_and_width(tree, folder, "max")
    if present is None:
        return Fact(None, f"{source}: no link")
    return Fact(f"{present} (best {best})" if best else present, source)


def _speed_and_width(tree: Tree, folder: str, which: str) -> Optional[str]:
    speed = _SPEED.fullmatch(tree.text(f"{folder}/{which}_link_speed") or "")
    width = number_fact(tree, f"{folder}/{which}_link_width").value
    return f"{speed.group(1)} x{width}" if speed and width else None


def _device(tree: Tree, folder: str) -> Optional[PciDevice]:
    # Read the class first, because this one small file excludes nearly all PCI devices of a machine.
    if _class(tree, folder) >> 8 not in _GPU_CLASSES:
        return None
    event = _uevent(tree, folder)
    address = event.get("PCI_SLOT_NAME") or folder.rpartition("/")[2]
    event_vendor, _, event_device = event.get("PCI_ID", "").partition(":")
    vendor = number(tree.text(f"{folder}/vendor")) or number("0x" + event_vendor)
    if vendor is None or not _ADDRESS.fullmatch(address):
        return None
    device = number_fact(tree, f"{folder}/device")
    if device.value is None and number("0x" + event_device) is not None:
        device = Fact(number("0x" + event_device), f"{folder}/uevent PCI_ID")
    return PciDevice(
        address=address,
        folder=folder,
        vendor=vendor,
        device=device,
        revision=number_fact(tree, f"{folder}/revision"),
        vram_bytes=number_fact(tree, f"{folder}/mem_info_vram_total"),
        driver=_driver(tree, folder, event),
        product=tree.fact(f"{folder}/product_name"),
    )


def _class(tree: Tree, folder: str) -> int:
    """Return a device's PCI class and subclass as one number, e.g. 0x0300 for a VGA controller."""
    text = tree.text(f"{folder}/class") or "0x" + _uevent(tree, folder).get("PCI_CLASS", "")
    return (number(text) or 0) >> 8


def _uevent(tree: Tree, folder: str) -> dict[str, str]:
    lines = (line.partition("=") for line in (tree.text(f"{folder}/uevent") or "").splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def address_order(address: str) -> tuple[int, str]:
    """Return a sort key for PCI addresses."""
    return len(address), address


def hex_fact(fact: Fact, digits: int) -> Fact:
    """Return ``fact`` with its number in hexadecimal, e.g. "0x731f"."""
    return fact if fact.value is None else Fact(f"0x{fact.value:0{digits}x}", fact.source)


def number_fact(tree: Tree, name: str) -> Fact:
    """Return the number in the sysfs file ``name`` as a fact."""
    fact = tree.fact(name)
    value = number(fact.value)
    if value is not None:
        return Fact(value, name)
    return fact if fact.value is None else Fact(None, f"{name}: not a number")


def _driver(tree: Tree, folder: str, event: dict[str, str]) -> Fact:
    if event.get("DRIVER"):
        return Fact(event["DRIVER"], f"{folder}/uevent DRIVER")
    if tree.exists(f"{folder}/driver"):
        return Fact(tree.real(f"{folder}/driver").rpartition("/")[2], f"{folder}/driver")
    return Fact(None, f"{folder}/driver: no kernel driver is bound")
