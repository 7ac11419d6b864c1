"""Parser for rocminfo output, which lists the agents (GPUs and CPUs) of the HSA runtime.

Format: rocminfo.cc of ROCm 1.x to 7.x. Output that users paste can lack headings or names, or have only
hexadecimal numbers. Values can be below their labels, or the whole output on one line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.detect.programs.tool_failures import Failure, cleaned, failure
from rocmprobe.knowledge.gpus import isa_name

#: A quote mark or a log prefix before a heading. The same number of characters is removed from every line.
_PREFIX = re.compile(r"^(.{0,200}?\S[^\S\n]+|>)(?=HSA (?:Agents|System Attributes)\s*$)", re.MULTILINE)
_AGENT = re.compile(r"^[\s*#-]*Agent\s+#?[0-9]+\s*(?:\(.*\)\s*)?[\s*:]*$")
#: Labels of fields, at which a line with several fields is split.
_LABELS = (
    "Marketing Name", "Vendor Name", "Name", "Uuid", "Feature", "Profile", "Float Round Mode", "Node",
    "Device Type", "Cache Info", "Chip ID", "ASIC Revision", "Max Clock Freq. (MHz)", "BDFID",
    "Internal Node ID", "Compute Unit", "SIMDs per CU", "Shader Engines", "Memory Properties", "Features",
    "Wavefront Size", "Pool Info", "Segment", "Size", "Allocatable", "Alloc Granule", "ISA Info",
)  # fmt: skip
_AGENT_LABELS = frozenset({"Uuid", "Marketing Name", "Vendor Name", "Device Type", "Chip ID", "BDFID"})
_LABEL = re.compile(
    r"(?<![\w.])(?:Agent\s+[0-9]+(?=\s+\*)|"
    rf"(?:{'|'.join(map(re.escape, _LABELS))})(?=:\s))"
)
_FEWEST_LABELS = 3
_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z0-9 .()/-]{0,60}?):+(.*)")
_WIDEST = 400
#: Largest number of characters of a line that is split into fields. rocminfo prints about 6 kB per GPU.
_LONGEST_LINE = 100_000
_ISA = re.compile(r"\bamdgcn-\S*?--(gfx\S+)|\bAMD:AMDGPU:[0-9:]+")
_CODE_OBJECT_ISA = re.compile(r"AMD:AMDGPU:([0-9]+):([0-9]+):([0-9]+)")
_GFX = re.compile(r"gfx[0-9a-f]+")
_SIZE = re.compile(r"([0-9]{1,18})(?:\(0x[0-9a-fA-F]+\))?\s*KB")


@dataclass(frozen=True)
class Agent:
    """A GPU or a CPU.

    - ``gfx``: ISA that the runtime uses after any override
    - ``chip_id``: PCI device id, which no override changes
    - ``memory_bytes``: size of the largest memory pool
    - ``bdf``: PCI address without domain, e.g. "03:00.0"
    - ``apu``: None if unknown (before ROCm 5.7)
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

    @property
    def not_learned(self) -> tuple[str, ...]:
        """Fields that rocminfo prints for every GPU but that are missing in this output."""
        wanted = {
            "ISA": self.gfx,
            "PCI id": self.chip_id,
            "compute units": self.cus,
            "memory": self.memory_bytes,
        }
        return tuple(name for name, value in wanted.items() if value is None)


@dataclass(frozen=True)
class RocmInfo:
    """The agents that rocminfo lists, or the reason why it lists no GPU."""

    agents: tuple[Agent, ...] = ()
    runtime_version: Optional[str] = None
    failure: Optional[Failure] = None

    @property
    def gpus(self) -> tuple[Agent, ...]:
        return tuple(agent for agent in self.agents if agent.kind == "GPU")


@dataclass
class _Draft:
    """An agent whose lines are still being parsed."""

    #: Values, keyed by label. Memory pools and ISAs are separate, because they repeat labels such as "Name".
    fields: dict[str, str] = field(default_factory=dict)
    pools: list[tuple[str, int]] = field(default_factory=list)
    isas: list[str] = field(default_factory=list)
    segment: str = ""
    in_isas: bool = False
    label: str = ""


def parse(text: str) -> RocmInfo:
    """Parse stdout and stderr of rocminfo, with or without colour codes. Never raise an exception.

    If no GPU is listed, ``failure`` is the reason, or None if the reason is unknown.
    """
    text = cleaned(text)
    header: dict[str, str] = {}
    drafts: list[_Draft] = []
    for line in _lines(text):
        if _AGENT.match(line):
            drafts.append(_Draft())
            continue
        match = _FIELD.match(line)
        name, value = (match.group(1), match.group(2).strip()) if match else ("", line.strip())
        if name in _AGENT_LABELS:
            _append_if_new(drafts, name)
        if drafts and (name or drafts[-1].label):
            _take(drafts[-1], name or drafts[-1].label, value)
            drafts[-1].label = "" if value else name
        elif name:
            header.setdefault(name, value)
    agents = tuple(_agent(draft) for draft in drafts)
    return RocmInfo(
        agents=agents,
        runtime_version=header.get("Runtime Version", "").partition(" ")[0] or None,
        failure=_failure(text, agents),
    )


def _failure(text: str, agents: tuple[Agent, ...]) -> Optional[Failure]:
    # If amdgpu is built into the kernel, rocminfo reports a missing module but lists the GPU.
    if any(agent.kind == "GPU" for agent in agents):
        return None
    if found := failure(text):
        return found
    return (
        Failure("no-gpu-agents", "the runtime starts, but offers no GPU: hidden, or not supported")
        if agents
        else None
    )


def _lines(text: str) -> list[str]:
    prefix = _PREFIX.search(text)
    width = len(prefix.group(1)) if prefix else 0
    return [part[:_WIDEST] for line in text.splitlines() for part in _parted(line[width:])]


def _parted(line: str) -> list[str]:
    starts = [match.start() for match in _LABEL.finditer(line[:_LONGEST_LINE])]
    if len(starts) < _FEWEST_LABELS:
        return [line]
    edges = [*starts, min(len(line), _LONGEST_LINE)]
    return [line[start:end].rstrip("* \t") for start, end in zip(edges, edges[1:])]


def _append_if_new(drafts: list[_Draft], name: str) -> None:
    """Append a new agent if ``drafts`` is empty or the field ``name`` belongs to the next agent.

    The field belongs to the next agent if the last agent already has this field, or if the last agent's list
    of ISAs has begun.
    """
    # Pasted text can lack the headings of agents.
    if not drafts:
        drafts.append(_Draft())
    draft = drafts[-1]
    if not (draft.in_isas or name in draft.fields):
        return
    fresh = _Draft()
    # The previous line was the new agent's name, but it was parsed as an ISA.
    if draft.isas and _isa(draft.isas[-1]) is None:
        fresh.fields["Name"] = draft.isas.pop()
    drafts.append(fresh)


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
    elif not draft.fields.get(name):
        # The value can be on the next line.
        draft.fields[name] = value


def _agent(draft: _Draft) -> Agent:
    fields = draft.fields
    name = fields.get("Name", "")
    isas = tuple(dict.fromkeys(isa for isa in map(_isa, draft.isas) if isa))
    named = _GFX.fullmatch(name) or fields.get("Uuid", "").startswith("GPU-")
    kind = fields.get("Device Type") or ("GPU" if named or isas else None)
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
    """Return the ISA in ``name``, e.g. "gfx1010:xnack-" for "amdgcn-amd-amdhsa--gfx1010:xnack-"."""
    # ROCm 1.x prints the version of the ISA, e.g. "AMD:AMDGPU:8:0:3".
    old = _CODE_OBJECT_ISA.match(name)
    if old:
        return isa_name(*(int(part) for part in old.groups()))
    match = _ISA.search(name)
    return match.group(1) if match else None


def _chip_id(text: Optional[str]) -> Optional[str]:
    value = _number(text)
    return f"0x{value:04x}" if value else None


def _number(text: Optional[str]) -> Optional[int]:
    match = re.match(r"0[xX][0-9a-fA-F]{1,15}|[0-9]{1,18}", text or "")
    return int(match.group(), 16 if match.group()[:2] in ("0x", "0X") else 10) if match else None
