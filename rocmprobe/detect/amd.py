"""AMD GPUs: KFD nodes joined with their PCI devices, and PCI devices that KFD does not list."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Optional

from rocmprobe import gpus
from rocmprobe.detect import kfd, pci
from rocmprobe.detect.override import effective_isa
from rocmprobe.detect.tree import Tree
from rocmprobe.model import Fact, Gpu

_TABLE = "data/gpus.toml"


def read_gpus(
    tree: Tree, devices: Mapping[str, pci.Device], environ: Mapping[str, str]
) -> tuple[list[tuple[str, Gpu]], dict[str, Fact]]:
    """AMD GPUs with their PCI addresses, one for each device that the runtime shows, and facts on them.

    A partition of a card is a device of its own; ``amd.cards`` counts cards. ``kfd.unlisted`` holds
    the addresses of GPUs that the kernel's compute driver leaves out, so that ROCm cannot use them,
    and ``kfd.refused`` the nodes that could not be read.
    """
    every_node, refused = kfd.read_nodes(tree)
    nodes = [node for node in every_node if node.properties.get("vendor_id", kfd.AMD) == kfd.AMD]
    amd = {address: device for address, device in devices.items() if device.vendor == kfd.AMD}
    sharing = Counter(_slot(node.address) for node in nodes)
    found, listed = [], set()
    for node in nodes:
        device = amd.get(node.address) or amd.get(_slot(node.address) + ".0")
        if device is not None:
            listed.add(device.address)
        whole = sharing[_slot(node.address)] == 1
        found.append((node.address, _from_node(node, device, environ, whole)))
    unlisted = sorted(set(amd) - listed)
    found += [(address, _from_device(amd[address], environ)) for address in unlisted]
    cards = _cards([node.address for node in nodes]) + len(unlisted)
    facts = {"amd.cards": Fact(cards, f"{kfd.NODES} and {pci.DEVICES}")}
    if unlisted:
        facts["kfd.unlisted"] = Fact(unlisted, f"{pci.DEVICES}; {_why_unlisted(tree, refused)}")
    if refused:
        facts["kfd.refused"] = Fact(list(refused), kfd.NODES)
    return found, facts


def _why_unlisted(tree: Tree, refused: tuple[str, ...]) -> str:
    if refused:
        return refused[0]
    return f"{kfd.NODES} lists other nodes" if tree.names(kfd.NODES) else tree.why_not(kfd.NODES)


def _from_node(node: kfd.Node, device: Optional[pci.Device], environ: Mapping[str, str], whole: bool) -> Gpu:
    pci_id = node.pci_id or (device.device.value if device else None)
    revision = device.revision if device else Fact(None, f"no PCI device at {node.address}")
    native = Fact(node.native_isa, f"{node.source} gfx_target_version")
    if native.value is None:
        native = _isa_by_table(pci_id, f"{node.source} has no gfx_target_version")
    return Gpu(
        native_isa=native,
        effective_isa=effective_isa(native, node.index, environ),
        name=_name(pci_id, revision.value, device),
        pci_id=Fact(_hex(pci_id, 4), f"{node.source} device_id"),
        revision=_hex_fact(revision, 2),
        cus=Fact(node.cus, f"{node.source} simd_count / simd_per_cu"),
        vram_bytes=_vram(node, device, whole),
        vendor=Fact("amd", f"{node.source} vendor_id"),
        driver=Fact("amdgpu", f"{node.source}: KFD is part of amdgpu"),
    )


def _from_device(device: pci.Device, environ: Mapping[str, str]) -> Gpu:
    native = _isa_by_table(device.device.value, "KFD does not list this GPU")
    return Gpu(
        native_isa=native,
        effective_isa=effective_isa(native, None, environ),
        name=_name(device.device.value, device.revision.value, device),
        pci_id=_hex_fact(device.device, 4),
        revision=_hex_fact(device.revision, 2),
        cus=Fact(None, "KFD does not list this GPU"),
        vram_bytes=device.vram_bytes,
        vendor=Fact("amd", f"{device.folder}/vendor"),
        driver=device.driver,
    )


def _isa_by_table(pci_id: Optional[int], why: str) -> Fact:
    isa = gpus.gfx_of(pci_id)
    if isa is None:
        return Fact(None, f"{why}, and {_TABLE} has no PCI id {_shown(pci_id, 4)}")
    return Fact(isa, f"{_TABLE} by PCI id {_shown(pci_id, 4)}; {why}")


def _name(pci_id: Optional[int], revision: Optional[int], device: Optional[pci.Device]) -> Fact:
    product = gpus.marketing_name(pci_id, revision)
    if product:
        return Fact(product, f"{_TABLE} by PCI id {_shown(pci_id, 4)} revision {_shown(revision, 2)}")
    if device is not None and device.product.value:
        return device.product
    chip = gpus.chip(gpus.gfx_of(pci_id))
    if chip:
        return Fact(f"AMD {chip}", f"{_TABLE} by PCI id {_shown(pci_id, 4)}; revision {_shown(revision, 2)}")
    return Fact(None, f"{_TABLE} has no PCI id {_shown(pci_id, 4)}")


def _vram(node: kfd.Node, device: Optional[pci.Device], whole: bool) -> Fact:
    """Bytes of video memory; both witnesses where they disagree, as they do on an APU.

    amdgpu counts the carve-out, KFD what compute may allocate. A partition has its own share, which
    only KFD knows.
    """
    card = device.vram_bytes if device else Fact()
    if not whole or card.value is None:
        return Fact(node.vram_bytes, node.vram_source)
    if node.vram_bytes in (None, card.value):
        return card
    return dataclasses.replace(card, source=f"{card.source} ({node.vram_source}: {node.vram_bytes})")


def _cards(addresses: list[str]) -> int:
    """Cards among nodes: the partitions of one card differ in the function number alone."""
    most: dict[str, int] = {}
    for address, count in Counter(addresses).items():
        most[_slot(address)] = max(count, most.get(_slot(address), 0))
    return sum(most.values())


def _slot(address: str) -> str:
    return address.rpartition(".")[0]


def _hex(value: Optional[int], digits: int) -> Optional[str]:
    return None if value is None else f"0x{value:0{digits}x}"


def _shown(value: Optional[int], digits: int) -> str:
    return _hex(value, digits) or "unknown"


def _hex_fact(fact: Fact, digits: int) -> Fact:
    return dataclasses.replace(fact, value=_hex(fact.value, digits))
