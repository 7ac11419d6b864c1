"""AMD GPUs, from KFD (the kernel's compute driver) and the PCI bus, or from rocminfo without both."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Optional

from rocmprobe.detect.gpus import amdgpu, kfd, pci, rocminfo
from rocmprobe.detect.tree import Tree
from rocmprobe.knowledge import gpus, visible_devices
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model.results import Fact, Gpu
from rocmprobe.runtimes.kfd import NODES
from rocmprobe.text.versions import release

_TABLE = "data/gpus.toml"
_NOT_LISTED = "KFD does not list this GPU"
#: Partition modes of a card, keyed by the number of partitions. CPX is not in the table, because its number
#: of partitions is the number of the card's dies (XCC).
_MODES = {2: "DPX", 3: "TPX", 4: "QPX"}
_PATIENCE = 1.0


def read_gpus(
    tree: Tree, devices: Mapping[str, pci.PciDevice], environ: Mapping[str, str], hip: Optional[str] = None
) -> tuple[list[Gpu], dict[str, Fact]]:
    """Return the AMD GPUs, and facts about them.

    Each partition of a card is a separate GPU. If the kernel lists no GPU, as in WSL, rocminfo runs, and the
    facts of ``rocminfo.read_agents`` are returned, too.

    - ``amd.cards``: number of cards
    - ``kfd.unlisted``: addresses of GPUs that ROCm cannot use, because KFD does not list them
    - ``kfd.refused``: one error message for each unreadable KFD node
    """
    every_node, refused = kfd.read_nodes(tree)
    nodes = [node for node in every_node if node.properties.get("vendor_id", kfd.AMD) == kfd.AMD]
    amd = {address: device for address, device in devices.items() if device.vendor == kfd.AMD}
    states = _states(tree, amd)
    functions = [_card_address(node.address, amd) for node in nodes]
    sharing = Counter(functions)
    listed = []
    for node, function in zip(nodes, functions):
        state = states.get(function) or amdgpu.unknown(f"no PCI device at {node.address}")
        gpu = _from_node(tree, node, amd.get(function), environ, hip, state, sharing[function])
        listed.append(gpu)
    detected = visible_devices.with_numbers(listed, environ)
    unlisted = sorted(set(amd) - set(functions))
    detected += [_from_device(tree, amd[address], environ, hip, states[address]) for address in unlisted]
    cards = _count_cards(zip(functions, (node.address for node in nodes))) + len(unlisted)
    facts = {"amd.cards": Fact(cards, f"{NODES} and {pci.DEVICES}")}
    if unlisted:
        facts["kfd.unlisted"] = Fact(unlisted, f"{pci.DEVICES}; {_why_unlisted(tree, refused)}")
    if refused:
        facts["kfd.refused"] = Fact(list(refused), NODES)
    if not detected:
        detected, by_runtime = _from_runtime(tree, environ)
        facts.update(by_runtime)
    return detected, facts


def _states(tree: Tree, amd: Mapping[str, pci.PciDevice]) -> dict[str, dict[str, Fact]]:
    """Return the facts of ``amdgpu.read_state`` for each GPU, keyed by PCI address."""
    states: dict[str, dict[str, Fact]] = {}

    def read(address: str, folder: str) -> None:
        states[address] = amdgpu.read_state(tree, folder)

    # Each GPU has a thread, because reading from a hung GPU can block forever.
    threads = [
        threading.Thread(target=read, args=(address, device.folder), daemon=True)
        for address, device in amd.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {
        address: states.get(address) or amdgpu.unknown(f"{device.folder}: no answer in {_PATIENCE:g} s")
        for address, device in amd.items()
    }


def _why_unlisted(tree: Tree, refused: tuple[str, ...]) -> str:
    if refused:
        return refused[0]
    return f"{NODES} lists other nodes" if tree.names(NODES) else tree.why_not(NODES)


def _from_node(
    tree: Tree,
    node: kfd.Node,
    device: Optional[pci.PciDevice],
    environ: Mapping[str, str],
    hip: Optional[str],
    state: Mapping[str, Fact],
    parts: int,
) -> Gpu:
    pci_id = node.pci_id or (device.device.value if device else None)
    revision = device.revision if device else Fact(None, f"no PCI device at {node.address}")
    native = _native_isa(node, pci_id)
    return Gpu(
        native_isa=native,
        effective_isa=effective_isa(native, node.runtime_index, environ, hip),
        name=_name(tree, pci_id, revision.value, device),
        pci_id=_pci_id(node, device),
        revision=pci.hex_fact(revision, 2),
        cus=Fact(node.cus, f"{node.source} simd_count / simd_per_cu"),
        vram_bytes=_vram(node, device, parts == 1),
        vendor=Fact("amd", f"{node.source} vendor_id"),
        driver=Fact("amdgpu", f"{node.source}: KFD is part of amdgpu"),
        address=Fact(node.address, f"{node.source} domain and location_id"),
        simds=node.fact("simd_count"),
        wave_size=node.fact("wave_front_size"),
        apu=Fact(True, f"{node.source} cpu_cores_count") if node.with_cpu else _apu(pci_id),
        uuid=_uuid(node),
        pcie_atomics=node.pcie_atomics,
        **(_partition_state(state, node, parts) if parts > 1 else state),
    )


def _from_device(
    tree: Tree,
    device: pci.PciDevice,
    environ: Mapping[str, str],
    hip: Optional[str],
    state: Mapping[str, Fact],
) -> Gpu:
    native = _isa_by_table(device.device.value, _NOT_LISTED)
    target = gpus.target(native.value)
    return Gpu(
        native_isa=native,
        effective_isa=effective_isa(native, None, environ, hip),
        name=_name(tree, device.device.value, device.revision.value, device),
        pci_id=pci.hex_fact(device.device, 4),
        revision=pci.hex_fact(device.revision, 2),
        cus=Fact(None, _NOT_LISTED),
        vram_bytes=device.vram_bytes,
        vendor=Fact("amd", f"{device.folder}/vendor"),
        driver=device.driver,
        address=Fact(device.address, device.folder),
        simds=Fact(None, _NOT_LISTED),
        wave_size=Fact(target.wave, f"{_TABLE}, {target.gfx}") if target else Fact(None, _NOT_LISTED),
        apu=_apu(device.device.value),
        uuid=_uuid_by_amdgpu(tree, device.folder),
        order=Fact(None, _NOT_LISTED),
        index=Fact(None, _NOT_LISTED),
        pcie_atomics=Fact(None, _NOT_LISTED),
        **state,
    )


def _from_runtime(tree: Tree, environ: Mapping[str, str]) -> tuple[list[Gpu], dict[str, Fact]]:
    """Return the GPUs that rocminfo lists, and the facts of ``rocminfo.read_agents``."""
    # ``with_numbers`` applies the list of visible devices.
    shown = {name: value for name, value in environ.items() if name != visible_devices.ROCR}
    agents, facts = rocminfo.read_agents(tree, shown)
    source = facts["rocminfo.gpus"].source
    overridden = any(name.startswith(OVERRIDE) for name in environ)
    by_agent = [_from_agent(agent, source, overridden) for agent in agents]
    if by_agent:
        facts["amd.cards"] = Fact(len(by_agent), source)
    return visible_devices.with_numbers(by_agent, environ), facts


def _from_agent(agent: rocminfo.Agent, source: str, overridden: bool) -> Gpu:
    effective = Fact(agent.gfx, source)
    by_table = _isa_by_table(agent.chip_id, f"{source} shows the ISA after {OVERRIDE}")
    return Gpu(
        native_isa=by_table if overridden else effective,
        effective_isa=effective,
        name=Fact(agent.name, source),
        pci_id=pci.hex_fact(Fact(agent.chip_id, source), 4),
        cus=Fact(agent.cus, source),
        vram_bytes=Fact(agent.memory_bytes, source),
        vendor=Fact("amd", source),
        wave_size=Fact(agent.wave_size, source),
        apu=Fact(agent.apu, source),
    )


def _native_isa(node: kfd.Node, pci_id: Optional[int]) -> Fact:
    """Return the ISA from the Linux kernel, else from the table of PCI ids."""
    by_table = gpus.gfx_of(pci_id)
    if node.native_isa is None:
        return _isa_by_table(pci_id, f"{node.source} has no gfx_target_version")
    source = f"{node.source} gfx_target_version"
    if by_table not in (None, node.native_isa):
        source += f" ({_TABLE} has {by_table} for PCI id {_shown(pci_id, 4)})"
    return Fact(node.native_isa, source)


def _isa_by_table(pci_id: Optional[int], why: str) -> Fact:
    isa = gpus.gfx_of(pci_id)
    if isa is None:
        return Fact(None, f"{why}, and {_TABLE} has no PCI id {_shown(pci_id, 4)}")
    return Fact(isa, f"{_TABLE} by PCI id {_shown(pci_id, 4)}; {why}")


def _pci_id(node: kfd.Node, device: Optional[pci.PciDevice]) -> Fact:
    on_pci = device.device if device else Fact(None, f"{node.source} device_id")
    if node.pci_id is None:
        return pci.hex_fact(on_pci, 4)
    source = f"{node.source} device_id"
    if on_pci.value not in (None, node.pci_id):
        source += f" ({on_pci.source}: {_shown(on_pci.value, 4)})"
    return Fact(_shown(node.pci_id, 4), source)


def _uuid(node: kfd.Node) -> Fact:
    fact = node.fact("unique_id")
    if fact.value == 0:
        return Fact(None, f"{fact.source} 0: ROCm shows GPU-XX")
    return Fact(visible_devices.uuid_of(fact.value), fact.source) if fact.value else fact


def _uuid_by_amdgpu(tree: Tree, folder: str) -> Fact:
    """Return the UUID of a GPU from amdgpu's file ``unique_id`` (16 hexadecimal digits)."""
    fact = tree.fact(f"{folder}/unique_id")
    unique_id = _parsed_hex(fact.value or "")
    return Fact(visible_devices.uuid_of(unique_id), fact.source) if unique_id > 0 else Fact(None, fact.source)


def _apu(pci_id: Optional[int]) -> Fact:
    known = gpus.is_apu(pci_id)
    which = "by" if known is not None else "has no"
    return Fact(known, f"{_TABLE} {which} PCI id {_shown(pci_id, 4)}")


def _name(
    tree: Tree, pci_id: Optional[int], revision: Optional[int], device: Optional[pci.PciDevice]
) -> Fact:
    here = f"{_TABLE} by PCI id {_shown(pci_id, 4)}"
    product = gpus.product(pci_id, revision)
    if product:
        return Fact(product, f"{here} revision {_shown(revision, 2)}")
    if pci_id is not None and revision is not None:
        in_libdrm = marketing_name(tree, pci_id, revision)
        if in_libdrm.value:
            return in_libdrm
    shared = gpus.marketing_name(pci_id, None)
    if shared:
        return Fact(shared, f"{here}, for every revision without its own name")
    if device is not None and device.product.value:
        return device.product
    chip = gpus.chip(gpus.gfx_of(pci_id))
    if chip:
        return Fact(f"AMD {chip}", f"{here}; revision {_shown(revision, 2)}")
    return Fact(None, f"{_TABLE} has no PCI id {_shown(pci_id, 4)}")


def _partition_state(state: Mapping[str, Fact], node: kfd.Node, parts: int) -> dict[str, Fact]:
    """Return ``state`` for one partition of a card with ``parts`` partitions.

    The value of each fact about the whole card becomes None.
    """
    own = dict(state)
    for name, sensor in amdgpu.SENSORS.items():
        if sensor.of_the_card and name in own and own[name].value is not None:
            own[name] = Fact(None, f"{own[name].source} counts the whole card")
    if own["partition"].value is None:
        dies = node.properties.get("num_xcc", 0)
        mode = "CPX" if dies == 1 else _MODES.get(parts) if dies else None
        own["partition"] = Fact(mode, f"{NODES}: {parts} nodes of this card, num_xcc {dies}")
    return own


def _vram(node: kfd.Node, device: Optional[pci.PciDevice], whole: bool) -> Fact:
    """Return the bytes of video memory. If amdgpu and KFD disagree, ``source`` gives both values."""
    card = device.vram_bytes if device else Fact()
    # Only KFD knows the memory of one partition of a card.
    if not whole or card.value is None:
        return Fact(node.vram_bytes, node.vram_source)
    if node.vram_bytes in (None, card.value):
        return card
    # On an APU, amdgpu reports the reserved system memory. KFD reports the memory that compute can allocate.
    return dataclasses.replace(card, source=f"{card.source} ({node.vram_source}: {node.vram_bytes})")


def _card_address(address: str, devices: Mapping[str, pci.PciDevice]) -> str:
    """Return the PCI address of the card to which the partition at ``address`` belongs."""
    return address if address in devices else address.rpartition(".")[0] + ".0"


def _count_cards(nodes: Iterable[tuple[str, str]]) -> int:
    """Return the number of cards. Each node is a pair: the card's PCI address and the node's PCI address."""
    most: dict[str, int] = {}
    for (function, _), count in Counter(nodes).items():
        most[function] = max(count, most.get(function, 0))
    return sum(most.values())


def _shown(value: Optional[int], digits: int) -> str:
    return "unknown" if value is None else f"0x{value:0{digits}x}"


#: Tables of product names from the distribution, from AMD's driver packages, and from ROCm since 7.14.
LIBDRM_TABLES = (
    "/usr/share/libdrm/amdgpu.ids",
    "/opt/amdgpu/share/libdrm/amdgpu.ids",
    "/opt/rocm/lib/rocm_sysdeps/share/libdrm/amdgpu.ids",
)


def marketing_name(tree: Tree, pci_id: int, revision: int) -> Fact:
    """Return the product name of a PCI device id and revision.

    Format (libdrm data/amdgpu.ids): "device,<tab>revision,<tab>product", numbers in hexadecimal.
    """
    for path in LIBDRM_TABLES:
        for line in (tree.text(path) or "").splitlines():
            device, _, rest = line.partition(",")
            stepping, _, product = rest.partition(",")
            if (_parsed_hex(device), _parsed_hex(stepping)) == (pci_id, revision) and product.strip():
                return Fact(product.strip(), path)
    return Fact(None, f"{', '.join(LIBDRM_TABLES)}: no such device")


def _parsed_hex(text: str) -> int:
    try:
        return int(text.strip(), 16)
    except ValueError:
        return -1


def effective_isa(
    native: Fact, node: Optional[int], environ: Mapping[str, str], hip: Optional[str] = None
) -> Fact:
    """Return the ISA that the ROCm runtime uses for a GPU after any override.

    ``node`` is the GPU's node number in the runtime, where CPUs are nodes too. ``hip`` is the runtime's
    version.

    HSA_OVERRIDE_GFX_VERSION sets the ISA of every GPU. HSA_OVERRIDE_GFX_VERSION_N sets the ISA of node N and
    takes precedence. ROCm up to 6.2 ignores HSA_OVERRIDE_GFX_VERSION_N. If the variable's value is malformed,
    the value of the returned fact is None. Source: ROCm thunk, libhsakmt topology.c.
    """
    per_node = f"{OVERRIDE}_{node}"
    runtime = release(hip)
    old = runtime is not None and runtime <= (6, 2)
    name = per_node if node is not None and per_node in environ and not old else OVERRIDE
    if name not in environ:
        return Fact(native.value, f"{native.source}; no {OVERRIDE}")
    value = environ[name]
    isa = gpus.isa_of_override(value)
    if isa is None:
        return Fact(None, f"{name}={value!r} is not MAJOR.MINOR.STEPPING: the ROCm runtime refuses to start")
    unsure = name == per_node and runtime is None
    note = " (ROCm 6.2 and older ignore the form with a node number)" if unsure else ""
    return Fact(isa, f"{name}={value}{note}")
