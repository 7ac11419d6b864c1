"""AMD GPU targets: names, families, PCI ids and what their instruction sets lack.

The knowledge is ``data/gpus.toml``; a target or device that is not in it is answered with None or
nothing, never with an error, since cards appear before tables do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, Optional, Union

from rocmprobe._toml import tomllib

PciId = Union[str, int]

#: What the ROCm thunk accepts: three decimal fields, nothing after the last (libhsakmt topology.c).
_OVERRIDE = re.compile(r"\s*([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")
_OVERRIDE_LIMITS = (63, 255, 255)


@dataclass(frozen=True)
class Target:
    """One gfx target, a row of ``data/gpus.toml`` (which explains the fields)."""

    gfx: str
    family: str
    chip: str
    pci: tuple[str, ...]
    source: str
    features: tuple[str, ...] = ()
    workarounds: tuple[str, ...] = ()
    wheels: str = ""
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Tables:
    targets: Mapping[str, Target]
    features: Mapping[str, str]
    workarounds: Mapping[str, str]


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    text = resources.files("rocmprobe").joinpath("data/gpus.toml").read_text("utf-8")
    data = tomllib.loads(text)
    targets = {}
    for row in data["target"]:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        targets[row["gfx"]] = Target(**fields)
    return _Tables(targets, data["features"], data["workarounds"])


@lru_cache(maxsize=1)
def _by_pci_id() -> Mapping[str, Target]:
    return {device: target for target in all_targets() for device in target.pci}


def _hex(value: Optional[PciId], digits: int) -> str:
    """A PCI number as the table writes it; "" for what is no number. Takes 29471, "0x731F", "1002:731f"."""
    if isinstance(value, int):
        return f"{value:0{digits}x}"
    try:
        return f"{int((value or '').rpartition(':')[2], 16):0{digits}x}"
    except ValueError:
        return ""


def _target(gfx: Optional[str]) -> Optional[Target]:
    """The row of a target; feature suffixes (``gfx1010:xnack-``) do not matter here."""
    return _tables().targets.get((gfx or "").partition(":")[0])


def all_targets() -> tuple[Target, ...]:
    """Every known target, in the order of the table."""
    return tuple(_tables().targets.values())


def family(gfx: Optional[str]) -> Optional[str]:
    """The generation of a target (``RDNA1``, ``Vega``, ``CDNA3``, ...), None if unknown."""
    target = _target(gfx)
    return target.family if target else None


def chip(gfx: Optional[str]) -> Optional[str]:
    """The code name of the silicon (``Navi 10``), None if unknown."""
    target = _target(gfx)
    return target.chip if target else None


def gfx_of(pci_id: Optional[PciId]) -> Optional[str]:
    """The native ISA of an AMD PCI device id (``0x731f``), None if unknown."""
    target = _by_pci_id().get(_hex(pci_id, 4))
    return target.gfx if target else None


def marketing_name(pci_id: Optional[PciId], revision: Optional[PciId]) -> Optional[str]:
    """The product under which a device id and revision are sold.

    One device id covers several products, so without a known revision there is a name only where
    all revisions share it.
    """
    device = _hex(pci_id, 4)
    target = _by_pci_id().get(device)
    if target is None:
        return None
    return target.names.get(f"{device}/{_hex(revision, 2)}") or target.names.get(device)


def missing_features(native: Optional[str], effective: Optional[str]) -> tuple[str, ...]:
    """Sentences on what code for ``effective`` may do that ``native`` silicon cannot take.

    Empty where the two are compatible, and where either is unknown.
    """
    silicon, code = _target(native), _target(effective)
    if silicon is None or code is None or silicon.gfx == code.gfx:
        return ()
    if silicon.gfx[:-2] != code.gfx[:-2]:
        return (
            f"code for {code.gfx} ({code.family}) is in another instruction encoding than "
            f"{silicon.gfx} ({silicon.family}) silicon decodes",
        )
    tables = _tables()
    lacking = [name for name in code.features if name not in silicon.features]
    unguarded = [name for name in silicon.workarounds if name not in code.workarounds]
    return (
        *(f"code for {code.gfx} may use {tables.features[name]}; {silicon.gfx} has none" for name in lacking),
        *(f"code for {code.gfx} leaves out {tables.workarounds[name]}" for name in unguarded),
    )


def in_official_wheels(gfx: Optional[str]) -> bool:
    """Whether any official PyTorch ROCm wheel has ever held code for this target."""
    target = _target(gfx)
    return bool(target and target.wheels)


def isa_name(gfx_target_version: int) -> str:
    """The target of KFD's ``gfx_target_version``: 100100 is gfx1010, 90010 is gfx90a.

    Two decimal digits each for minor and stepping, which the name has in hexadecimal.
    """
    return _name(gfx_target_version // 10000, gfx_target_version // 100 % 100, gfx_target_version % 100)


def isa_of_override(text: str) -> Optional[str]:
    """The target that a value of ``HSA_OVERRIDE_GFX_VERSION`` names, None for one that ROCm rejects."""
    match = _OVERRIDE.fullmatch(text)
    if match is None:
        return None
    numbers = [int(number) for number in match.groups()]
    if any(number > limit for number, limit in zip(numbers, _OVERRIDE_LIMITS)):
        return None
    return _name(*numbers)


def _name(major: int, minor: int, stepping: int) -> str:
    return f"gfx{major}{minor:x}{stepping:x}"
