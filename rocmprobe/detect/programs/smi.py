"""Parser for the output of rocm-smi and amd-smi.

Formats: rocm_smi.py of ROCm 3.8 to 7.2 and amd-smi 24 to 27. Field names differ between releases, and units
are part of the text. Serial numbers, unique ids and UUIDs are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from rocmprobe.detect.programs.tool_failures import Failure, cleaned, failure

#: Texts that both tools print for a value that they could not read.
_NOTHING = ("", "N/A", "n/a", "None", "UNKNOWN", "unknown")
_MIB = 1 << 20
_UNITS = {"B": 1, "KB": 1 << 10, "MB": _MIB, "GB": 1 << 30}
_CARD = re.compile(r"card([0-9]+)")
_LINE = re.compile(r"\s*GPU\[([0-9]{1,4})\]\s*:\s*([^:]+?):+(.*)")
#: A row of rocm-smi's first table: index, node and id (if printed), and the first temperature. Release 6.0
#: prints another id in brackets, which is not used because it is the id of the board.
_CONCISE = re.compile(
    r"\s*([0-9]{1,4})\s+(?:[0-9]+\s+)?(?:(0x[0-9a-f]{4})\b.*?|\[[^\]]*\]\s+|[0-9a-f]{4}\s+)?"
    r"(?:([0-9]{1,3}(?:\.[0-9]+)?)[°?]*[cC]\b|N/A\b)"
)
_CONCISE_HEADING = re.compile(r"\s*(?:GPU|Device)\s.*\bTemp\b.*\bSCLK\b")
_JUNCTION = "(junction)"
#: A row of amd-smi's first table, and the next row, which has the used memory.
_BOX = re.compile(
    r"\|\s*([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s([^|]*)"
    r"\|\s*(?:[0-9]+ %|N/A)\s+(?:([0-9]{1,3}) °C|N/A)"
)
_BOX_BELOW = re.compile(r"\|\s*([0-9]{1,4})\s.*?([0-9]{1,9})/([0-9]{1,9}) MB")
_WIDEST = 400
_AMD_SMI_LINE = re.compile(r"^( *)([A-Z][A-Z0-9_ ]*):[ \t]*(.*?)[ \t]*$")
#: Start of a JSON object or of a list of objects. A bracket alone can also be the start of a shell prompt.
_JSON_START = re.compile(r"^[ \t]*(\{|\[\s*\{)", re.MULTILINE)
_DRIVER = re.compile(r"\bamdgpu version: ([0-9][\w.-]*)|\bDriver version:\s*([0-9][\w.-]*)")


@dataclass(frozen=True)
class SmiGpu:
    """A GPU that rocm-smi or amd-smi lists. ``index`` is the tool's number for the GPU.

    Temperatures are in degrees Celsius, keyed by sensor: "edge", "junction", "memory" or "unnamed".
    """

    index: int
    name: Optional[str] = None
    gfx: Optional[str] = None
    pci_id: Optional[str] = None
    revision: Optional[str] = None
    address: Optional[str] = None
    cus: Optional[int] = None
    vram_bytes: Optional[int] = None
    vram_used_bytes: Optional[int] = None
    temperatures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Smi:
    """The parsed output of rocm-smi or amd-smi. ``driver`` is the version of amdgpu, else of the kernel."""

    gpus: tuple[SmiGpu, ...] = ()
    driver: Optional[str] = None
    failure: Optional[Failure] = None


def parse_rocm_smi(text: str) -> Smi:
    """Parse the output of rocm-smi as JSON, lines or tables. Never raise an exception."""
    text = cleaned(text)
    cards: dict[int, dict[str, Any]] = {}
    driver = None
    for data in _json_values(text):
        for name, values in _items(data):
            card = _CARD.fullmatch(name)
            if card and isinstance(values, Mapping):
                cards.setdefault(int(card.group(1)), {}).update(_keys(values))
            elif name == "system":
                driver = _text(_keys(values).get("driver version"))
    for line in _lines(text):
        field_of = _LINE.match(line)
        if field_of:
            index, key, value = field_of.groups()
            cards.setdefault(int(index), {}).setdefault(key.strip().lower(), value.strip())
    gpus = [_rocm_smi_gpu(index, card) for index, card in sorted(cards.items())]
    return _smi(text, tuple(gpus) or _concise(text), driver)


def parse_amd_smi(text: str) -> Smi:
    """Parse the output of ``amd-smi`` or of its commands ``static``, ``metric`` and ``list``.

    Never raise an exception.
    """
    text = cleaned(text)
    blocks: dict[int, dict[str, Any]] = {}
    listed = [gpu for data in _json_values(text) for gpu in _amd_smi_list(data)]
    for block in listed or _amd_smi_blocks(text):
        index = _number(block.get("gpu"))
        if index is not None:
            blocks.setdefault(index, {}).update(block)
    gpus = [_amd_smi_gpu(index, block) for index, block in sorted(blocks.items())]
    drivers = [_text(_at(block, "driver", "version")) for block in blocks.values()]
    return _smi(text, tuple(gpus) or _boxes(text), next((name for name in drivers if name), None))


def _smi(text: str, gpus: tuple[SmiGpu, ...], driver: Optional[str]) -> Smi:
    named = _DRIVER.search(text)
    return Smi(
        gpus=gpus,
        driver=driver or (named.group(1) or named.group(2) if named else None),
        failure=None if gpus else failure(text),
    )


def _rocm_smi_gpu(index: int, card: Mapping[str, Any]) -> SmiGpu:
    sensors = {"edge": ("edge",), "junction": ("junction",), "memory": ("memory", "mem")}
    found = {
        name: _decimal(_first(card, *(f"temperature (sensor {word}) (c)" for word in words)))
        for name, words in sensors.items()
    }
    names = [_text(card.get(key)) for key in ("device name", "card series", "card model")]
    return SmiGpu(
        index=index,
        # The tool prints an id if it does not know the name.
        name=next((name for name in names if name and not name.startswith("0x")), None),
        gfx=_gfx(_text(card.get("gfx version"))),
        pci_id=_hex(_first(card, "device id", "gpu id"), 4),
        revision=_hex(card.get("device rev"), 2),
        address=_address(card.get("pci bus")),
        vram_bytes=_number(_first(card, "vram total memory (b)")),
        vram_used_bytes=_number(_first(card, "vram total used memory (b)")),
        temperatures={name: value for name, value in found.items() if value is not None},
    )


def _amd_smi_gpu(index: int, block: Mapping[str, Any]) -> SmiGpu:
    heat = {"edge": "edge", "junction": "hotspot", "memory": "mem"}
    found = {name: _decimal(_at(block, "temperature", key)) for name, key in heat.items()}
    return SmiGpu(
        index=index,
        name=_text(_at(block, "asic", "market_name")) or _text(_at(block, "board", "product_name")),
        gfx=_gfx(_text(_at(block, "asic", "target_graphics_version"))),
        pci_id=_hex(_at(block, "asic", "device_id"), 4),
        revision=_hex(_at(block, "asic", "rev_id"), 2),
        address=_address(block.get("bdf") or _at(block, "bus", "bdf")),
        cus=_number(_at(block, "asic", "num_compute_units")),
        vram_bytes=_bytes(_at(block, "vram", "size") or _at(block, "mem_usage", "total_vram")),
        vram_used_bytes=_bytes(_at(block, "mem_usage", "used_vram")),
        temperatures={name: value for name, value in found.items() if value is not None},
    )


def _concise(text: str) -> tuple[SmiGpu, ...]:
    found: dict[int, SmiGpu] = {}
    sensor = None
    for line in _lines(text):
        if _CONCISE_HEADING.match(line):
            # Older releases show only the edge temperature, without the name of the sensor.
            sensor = "edge"
        # The name of the sensor can be on the line below the heading.
        if sensor and _JUNCTION in line.lower():
            sensor = "junction"
        row = _CONCISE.match(line) if sensor else None
        if row and sensor:
            index, pci_id, celsius = row.groups()
            found[int(index)] = SmiGpu(
                int(index), pci_id=pci_id, temperatures={sensor: float(celsius)} if celsius else {}
            )
    return tuple(found.values())


def _boxes(text: str) -> tuple[SmiGpu, ...]:
    found: dict[int, SmiGpu] = {}
    lines = _lines(text)
    for upper, lower in zip(lines, lines[1:]):
        first, second = _BOX.match(upper), _BOX_BELOW.match(lower)
        if first and second:
            address, name, celsius = first.groups()
            index, used, total = (int(part) for part in second.groups())
            found[index] = SmiGpu(
                index=index,
                name=name.strip() or None,
                address=address,
                vram_bytes=total * _MIB,
                vram_used_bytes=used * _MIB,
                temperatures={"unnamed": float(celsius)} if celsius else {},
            )
    return tuple(found.values())


def _lines(text: str) -> list[str]:
    return [line[:_WIDEST] for line in text.splitlines()]


def _amd_smi_list(data: Any) -> list[dict[str, Any]]:
    if isinstance(data, Mapping):
        data = data.get("gpu_data", [data])
    return [_keys(gpu) for gpu in data if isinstance(gpu, Mapping)] if isinstance(data, list) else []


def _amd_smi_blocks(text: str) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    above: list[tuple[int, dict[str, Any]]] = []
    for line in text.splitlines():
        match = _AMD_SMI_LINE.match(line)
        if match is None:
            continue
        depth, key, value = len(match.group(1)), match.group(2).lower(), match.group(3)
        if key == "gpu" and depth == 0:
            blocks.append({key: value})
            above = [(0, blocks[-1])]
            continue
        while len(above) > 1 and above[-1][0] >= depth:
            above.pop()
        if above:
            inner: dict[str, Any] = {}
            above[-1][1].setdefault(key, value or inner)
            above.append((depth, inner))
    return blocks


def _json_values(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    end = 0
    for match in _JSON_START.finditer(text):
        if match.start(1) < end:
            continue
        try:
            value, end = decoder.raw_decode(text, match.start(1))
        except (ValueError, RecursionError):
            return
        yield value


def _items(data: Any) -> list[tuple[str, Any]]:
    return list(data.items()) if isinstance(data, Mapping) else []


def _keys(data: Any) -> dict[str, Any]:
    return {str(key).strip().rstrip(":").lower(): value for key, value in _items(data)}


def _first(card: Mapping[str, Any], *keys: str) -> Any:
    return next((card[key] for key in keys if _text(card.get(key))), None)


def _at(data: Any, *path: str) -> Any:
    for step in path:
        data = data.get(step) if isinstance(data, Mapping) else None
    return data


def _text(value: Any) -> Optional[str]:
    text = "" if value is None or isinstance(value, (Mapping, list)) else str(value).strip()
    return None if text in _NOTHING else text


def _amount(value: Any) -> tuple[Optional[float], str]:
    unit = str(_at(value, "unit") or "")
    text = _text(value["value"] if isinstance(value, Mapping) and "value" in value else value) or ""
    match = re.match(r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z%]*)", text)
    return (float(match.group(1)), unit or match.group(2)) if match else (None, unit)


def _decimal(value: Any) -> Optional[float]:
    return _amount(value)[0]


def _number(value: Any) -> Optional[int]:
    match = re.fullmatch(r"[0-9]{1,18}", _text(value) or "")
    return int(match.group()) if match else None


def _bytes(value: Any) -> Optional[int]:
    amount, unit = _amount(value)
    return int(amount * _UNITS[unit]) if amount is not None and unit in _UNITS else None


def _hex(value: Any, digits: int) -> Optional[str]:
    match = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{1,8})", _text(value) or "")
    return f"0x{int(match.group(1), 16):0{digits}x}" if match else None


def _address(value: Any) -> Optional[str]:
    match = re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", (_text(value) or "").lower())
    return match.group() if match else None


def _gfx(text: Optional[str]) -> Optional[str]:
    """Return the ISA in ``text``, e.g. "gfx1102"."""
    # For RDNA3, rocm-smi of ROCm 6.1 and 6.2 inserts a zero: gfx11002 for gfx1102.
    match = re.fullmatch(r"gfx([0-9]{2}[0-9])0([0-9])|(gfx[0-9a-f]{3,4})", text or "")
    if match is None:
        return None
    return match.group(3) or f"gfx{match.group(1)}{match.group(2)}"
