"""What rocminfo prints: the agents that the HSA runtime offers, GPUs and processors.

Format: rocminfo.cc of ROCm 1.x to 7.x; older releases print fewer fields, and people paste parts of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.detect.programs.tool_failures import Failure, failure, plain

#: A heading near the top. What stands before it is a quote mark or the prefix of a log, of one width.
_PREFIX = re.compile(r"^(.{0,200}?\S[^\S\n]+|>)(?=HSA (?:Agents|System Attributes)\s*$)", re.MULTILINE)
_AGENT = re.compile(r"^\s*Agent\s+[0-9]+\s*(?:\(.*\)\s*)?$")
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z0-9 .()/-]{0,60}?):+(.*)")
_WIDEST = 400
_ISA = re.compile(r"\bamdgcn-\S*?--(gfx\S+)|\bAMD:AMDGPU:[0-9:]+")
_CODE_OBJECT_ISA = re.compile(r"AMD:AMDGPU:([0-9]+):([0-9]+):([0-9]+)")
_GFX = re.compile(r"gfx[0-9a-f]+")
_SIZE = re.compile(r"([0-9]{1,18})(?:\(0x[0-9a-fA-F]+\))?\s*KB")
_VERSION = re.compile(r"ROCk module version (\S+) is loaded")
_END = "*** Done ***"


@dataclass(frozen=True)
class Agent:
    """One agent. ``gfx`` is the effective ISA, as the runtime has it after any override, and ``isas`` are
    the names that it accepts code for, with their features ("gfx1010:xnack-").

    ``chip_id`` is the PCI device id, which no override changes. ``memory_bytes`` is the largest pool of
    the device's own memory; ``bdf`` has no domain ("03:00.0"). ``apu`` is None before ROCm 5.7, which did
    not say. Fields that were not printed are None.
    """

    kind: Optional[str] = None
    gfx: Optional[str] = None
    name: Optional[str] = None
    chip_id: Optional[str] = None
    cus: Optional[int] = None
    simds_per_cu: Optional[int] = None
    wave_size: Optional[int] = None
    memory_bytes: Optional[int] = None
    isas: tuple[str, ...] = ()
    apu: Optional[bool] = None
    bdf: Optional[str] = None
    node: Optional[int] = None


@dataclass(frozen=True)
class RocmInfo:
    """``module_loaded`` is None where the text does not tell; ``complete`` says that the end is there."""

    agents: tuple[Agent, ...] = ()
    module_loaded: Optional[bool] = None
    module_version: Optional[str] = None
    runtime_version: Optional[str] = None
    complete: bool = False
    failure: Optional[Failure] = None

    @property
    def gpus(self) -> tuple[Agent, ...]:
        return tuple(agent for agent in self.agents if agent.kind == "GPU")


@dataclass
class _Draft:
    """An agent in the making: its own fields, then those of its pools and ISAs, which repeat names."""

    fields: dict[str, str] = field(default_factory=dict)
    pools: list[tuple[str, int]] = field(default_factory=list)
    isas: list[str] = field(default_factory=list)
    segment: str = ""
    in_isas: bool = False


def parse(text: str) -> RocmInfo:
    """Read what rocminfo printed (both streams, colours and all). Never raises; see ``failure`` for why
    there are no agents."""
    text = plain(text)
    header: dict[str, str] = {}
    drafts: list[_Draft] = []
    for line in _lines(text):
        if _AGENT.match(line):
            drafts.append(_Draft())
            continue
        match = _FIELD.match(line)
        if match and drafts:
            _take(drafts[-1], match.group(1), match.group(2).strip())
        elif match:
            header.setdefault(match.group(1), match.group(2).strip())
    agents = tuple(_agent(draft) for draft in drafts)
    version = _VERSION.search(text)
    return RocmInfo(
        agents=agents,
        module_loaded=_module_loaded(text),
        module_version=version.group(1) if version else None,
        runtime_version=header.get("Runtime Version", "").partition(" ")[0] or None,
        complete=_END in text,
        failure=_failure(text, agents),
    )


def _failure(text: str, agents: tuple[Agent, ...]) -> Optional[Failure]:
    # A kernel with amdgpu built in has no module, which rocminfo complains of before it lists the GPU.
    if any(agent.kind == "GPU" for agent in agents):
        return None
    if found := failure(text):
        return found
    return (
        Failure("no-gpu-agents", "the runtime starts, but offers no GPU: hidden, or not supported")
        if agents
        else None
    )


def _module_loaded(text: str) -> Optional[bool]:
    if "ROCk module is NOT" in text:
        return False
    return True if re.search(r"ROCk module (?:version \S+ )?is loaded", text) else None


def _lines(text: str) -> list[str]:
    prefix = _PREFIX.search(text)
    width = len(prefix.group(1)) if prefix else 0
    return [line[width : width + _WIDEST] for line in text.splitlines()]


def _take(draft: _Draft, name: str, value: str) -> None:
    if name == "ISA Info":
        draft.in_isas = True
    elif draft.in_isas:
        if name == "Name":
            draft.isas.append(value)
    elif name == "Segment":
        draft.segment = value
    elif name == "Size":
        size = _SIZE.match(value)
        if size:
            draft.pools.append((draft.segment, int(size.group(1)) * 1024))
    else:
        draft.fields.setdefault(name, value)


def _agent(draft: _Draft) -> Agent:
    fields = draft.fields
    name = fields.get("Name", "")
    kind = fields.get("Device Type") or ("GPU" if _GFX.fullmatch(name) else None)
    isas = tuple(dict.fromkeys(isa for isa in map(_isa, draft.isas) if isa))
    memory = [size for segment, size in draft.pools if segment.startswith("GLOBAL")]
    properties = fields.get("Memory Properties")
    location = _number(fields.get("BDFID"))
    return Agent(
        kind=kind,
        gfx=_gfx(name, isas) if kind == "GPU" else None,
        name=fields.get("Marketing Name") or (None if kind == "GPU" else name or None),
        chip_id=_chip_id(fields.get("Chip ID")),
        cus=_number(fields.get("Compute Unit")),
        simds_per_cu=_number(fields.get("SIMDs per CU")),
        wave_size=_number(fields.get("Wavefront Size")),
        memory_bytes=max(memory, default=None),
        isas=isas,
        apu=None if properties is None else "APU" in properties,
        bdf=None if location is None else f"{location >> 8:02x}:{location >> 3 & 31:02x}.{location & 7}",
        node=_number(fields.get("Node")),
    )


def _gfx(name: str, isas: tuple[str, ...]) -> Optional[str]:
    for text in (name, *isas):
        match = _GFX.match(text)
        if match:
            return match.group()
    return None


def _isa(name: str) -> Optional[str]:
    """ "gfx1010:xnack-" of "amdgcn-amd-amdhsa--gfx1010:xnack-"; ROCm 1.x has "AMD:AMDGPU:8:0:3"."""
    old = _CODE_OBJECT_ISA.match(name)
    if old:
        major, minor, stepping = (int(part) for part in old.groups())
        return f"gfx{major}{minor:x}{stepping:x}"
    match = _ISA.search(name)
    return match.group(1) if match else None


def _chip_id(text: Optional[str]) -> Optional[str]:
    value = _number(text)
    return f"0x{value:04x}" if value else None


def _number(text: Optional[str]) -> Optional[int]:
    """The decimal of "36" or "29471(0x731f)"."""
    match = re.match(r"[0-9]{1,18}", text or "")
    return int(match.group()) if match else None
