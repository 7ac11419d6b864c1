"""AMD GPU targets from ``data/gpus.toml``: names, families, PCI ids and missing instructions.

For an unknown target or device, functions return None or an empty result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional, Union

from rocmprobe.text.tables import Row, rows, table

PciId = Union[str, int]

#: The environment variable that makes the ROCm runtime treat every GPU as a GPU with another ISA. With a
#: number after the name, as in HSA_OVERRIDE_GFX_VERSION_1, the variable applies to one GPU.
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
#: Values that the ROCm thunk accepts (libhsakmt topology.c): sscanf with "%u.%u.%u", and no text after the
#: last number.
_OVERRIDE_VALUE = re.compile(r"\.".join([r"[ \t\n\v\f\r]*\+?([0-9]{1,9})"] * 3))
_OVERRIDE_LIMITS = (63, 255, 255)


class Target(Row, frozen=True):
    """One gfx target, such as "gfx1010"."""

    gfx: str
    family: str
    chip: str
    pci: tuple[str, ...]
    wave: int
    source: str
    features: tuple[str, ...] = ()
    workarounds: tuple[str, ...] = ()
    target_features: tuple[str, ...] = ()
    apu: Union[bool, tuple[str, ...]] = False
    rocm: str = ""
    rocm_source: str = ""
    wheels: str = ""
    wheel_torch: str = ""
    wheel_rocm: str = ""
    amd_wheels: bool = False
    names: Mapping[str, str] = {}


@dataclass(frozen=True)
class _Tables:
    targets: Mapping[str, Target]
    features: Mapping[str, str]
    workarounds: Mapping[str, str]


#: Next steps if no AMD GPU is found.
NOT_FOUND = (
    "check in this order: `lspci -nn | grep -i amd` lists the card; `ls -l /dev/kfd /dev/dri` lists the "
    "devices of the driver amdgpu; `id` shows the groups render and video; in WSL, `ls -l /dev/dxg` "
    "(docs/troubleshooting.md#no-gpu-in-torch)"
)


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    data = table("gpus")
    targets = {target.gfx: target for target in rows("gpus", "target", Target)}
    return _Tables(targets, data["features"], data["workarounds"])


@lru_cache(maxsize=1)
def _by_pci_id() -> Mapping[str, Target]:
    return {device: row for row in all_targets() for device in row.pci}


def _hex(value: object, digits: int) -> str:
    """Return a PCI number in hexadecimal with ``digits`` digits, e.g. "731f"."""
    if isinstance(value, int):
        return f"{value:0{digits}x}"
    try:
        return f"{int(str(value).rpartition(':')[2], 16):0{digits}x}"
    except ValueError:
        return ""


def target(gfx: object) -> Optional[Target]:
    """Return the target ``gfx``, or None if unknown. Ignore a feature suffix, as in "gfx1010:xnack-"."""
    return _tables().targets.get(gfx.partition(":")[0]) if isinstance(gfx, str) else None


def all_targets() -> tuple[Target, ...]:
    """Return every known target, in the order of the table."""
    return tuple(_tables().targets.values())


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Return the targets in ``names``, with the targets of a family in place of its name, e.g. "RDNA1"."""
    return tuple(
        gfx for name in names for gfx in ([row.gfx for row in all_targets() if row.family == name] or [name])
    )


def family(gfx: Optional[str]) -> Optional[str]:
    """Return the generation of a target, e.g. "RDNA1" or "Vega", or None if unknown."""
    row = target(gfx)
    return row.family if row else None


def chip(gfx: Optional[str]) -> Optional[str]:
    """Return the code name of a target's chip, e.g. "Navi 10", or None if unknown."""
    row = target(gfx)
    return row.chip if row else None


def gfx_of(pci_id: Optional[PciId]) -> Optional[str]:
    """Return the native ISA for an AMD PCI device id, e.g. "0x731f", or None if unknown."""
    row = _by_pci_id().get(_hex(pci_id, 4))
    return row.gfx if row else None


def is_apu(pci_id: Optional[PciId]) -> Optional[bool]:
    """Return True if the GPU with this PCI device id is part of a processor, or None if unknown."""
    device = _hex(pci_id, 4)
    row = _by_pci_id().get(device)
    if row is None:
        return None
    return row.apu if isinstance(row.apu, bool) else device in row.apu


def product(pci_id: Optional[PciId], revision: Optional[PciId]) -> Optional[str]:
    """Return the product name for exactly this device id and revision, or None if unknown."""
    device = _hex(pci_id, 4)
    row = _by_pci_id().get(device)
    return row.names.get(f"{device}/{_hex(revision, 2)}") if row else None


def marketing_name(pci_id: Optional[PciId], revision: Optional[PciId]) -> Optional[str]:
    """Return the product name for this device id and revision, or None if unknown.

    If the revision is unknown, return the name for the device id alone.
    """
    device = _hex(pci_id, 4)
    row = _by_pci_id().get(device)
    return product(pci_id, revision) or (row.names.get(device) if row else None)


def missing_features(native: Optional[str], effective: Optional[str]) -> tuple[str, ...]:
    """Return one sentence for each reason why code for ``effective`` can fail on ``native``."""
    silicon, code = target(native), target(effective)
    if silicon is None or code is None or silicon.gfx == code.gfx:
        return ()
    if silicon.gfx[:-2] != code.gfx[:-2]:
        return (
            f"code for {code.gfx} ({code.family}) has a different instruction encoding from "
            f"{silicon.gfx} ({silicon.family})",
        )
    tables = _tables()
    lacking = [name for name in code.features if name not in silicon.features]
    unguarded = [name for name in silicon.workarounds if name not in code.workarounds]
    return (
        *(f"code for {code.gfx} may use {tables.features[name]}; {silicon.gfx} has none" for name in lacking),
        *(f"code for {code.gfx} leaves out {tables.workarounds[name]}" for name in unguarded),
    )


def in_wheel(gfx: Optional[str], torch: Optional[str], rocm: Optional[str]) -> Optional[bool]:
    """Return True if PyTorch's wheel of these versions has code for a target, or None if unknown."""
    # Import late, because this import takes longer than the import of this module.
    from packaging.specifiers import SpecifierSet

    row = target(gfx)
    if row is None:
        return None
    if not row.wheels:
        return False
    compatible = [
        SpecifierSet(allowed).contains(version, prereleases=True)
        for allowed, version in ((row.wheel_torch, torch), (row.wheel_rocm, rocm))
        if allowed and version
    ]
    return all(compatible) if compatible else None


def target_order(gfx: str) -> tuple[int, str]:
    """Return a sort key that sorts gfx90a before gfx1030."""
    # Later chips have longer names.
    return len(gfx.partition(":")[0]), gfx


def isa_of_override(text: str) -> Optional[str]:
    """Return the target for a value of ``HSA_OVERRIDE_GFX_VERSION``, or None if ROCm rejects the value."""
    match = _OVERRIDE_VALUE.fullmatch(text)
    if match is None:
        return None
    numbers = [int(number) for number in match.groups()]
    if any(number > limit for number, limit in zip(numbers, _OVERRIDE_LIMITS)):
        return None
    return isa_name(*numbers)


def override_of(gfx: str) -> str:
    """Return the value of ``HSA_OVERRIDE_GFX_VERSION`` for a target, e.g. "9.0.10" for gfx90a."""
    return f"{gfx[3:-2]}.{int(gfx[-2], 16)}.{int(gfx[-1], 16)}"


def isa_name(major: int, minor: int, stepping: int) -> str:
    """Return the name of the target with this version number, e.g. gfx90a for 9, 0, 10."""
    return f"gfx{major}{minor:x}{stepping:x}"
