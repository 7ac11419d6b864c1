"""Stacks of PyTorch and ROCm: which has code for a chip, who reports that it works, and what is known to
break.

The knowledge is in ``data/stacks.toml``, which explains its fields. ``data/gpus.toml`` says which versions of
the wheels hold code for a chip. Both contain what others reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.settings import within
from rocmprobe.text.tables import table

_ROCM = re.compile(r"(?i)(?<!tensorflow-)rocm[ _-]?v?(\d{1,2}(?:\.\d+)+)")
KINDS = ("official", "amd-stable", "amd-nightly", "distribution", "community", "source")
SYSTEMS = ("linux", "wsl", "windows")


@dataclass(frozen=True)
class Stack:
    """A row of [[stack]]: what can be installed, and how."""

    name: str
    title: str
    kind: str
    systems: tuple[str, ...]
    rocm: str
    torch: str
    python: tuple[str, ...]
    text: str
    source: str
    date: str
    distributions: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    tested: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    index: str = ""
    index_option: str = "--index-url"
    packages: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A row of [[report]]: what owners of a chip report about a stack.

    ``posing`` is the target that the chip pretended to be, or "". ``torch`` is the installed version that
    identifies the stack, or "" if no version does.
    """

    stack: str
    gfx: tuple[str, ...]
    system: str
    status: str
    text: str
    source: str
    date: str
    posing: str = ""
    torch: str = ""


@dataclass(frozen=True)
class Lent:
    """A row of [[lent]]: chips that run another chip's code, and the override that makes them run it."""

    gfx: tuple[str, ...]
    posing: str
    override: str
    text: str
    source: str
    date: str


@dataclass(frozen=True)
class Limit:
    """A row of [[limit]]: what does not work on a chip, and the variables that help.

    ``caches`` are variables that must name a new folder of compiled code.
    """

    gfx: tuple[str, ...]
    kinds: tuple[str, ...]
    text: str
    source: str
    date: str
    env: Mapping[str, str] = field(default_factory=dict)
    caches: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Broken:
    """Releases that break the targets ``gfx``, first and last included ("": open).

    ``cause`` is in the vocabulary. ``effective`` is the ISA under which the targets break, and ``system`` the
    system, "" for any. ``without_atomics`` is True if they only break without PCIe atomics.
    """

    gfx: tuple[str, ...]
    cause: str
    title: str
    text: str
    source: str
    date: str
    effective: str = ""
    rocm_since: str = ""
    rocm_until: str = ""
    torch_since: str = ""
    torch_until: str = ""
    kernel_since: str = ""
    kernel_until: str = ""
    without_atomics: bool = False
    system: str = ""


@dataclass(frozen=True)
class Installed:
    """The installed software of a machine, with its silicon and its effective ISA. None means unknown.

    ``rocm`` is the ROCm of its torch. ``atomics`` is True if PCIe atomics reach the card. ``kernel`` is its
    Linux.
    """

    gfx: Optional[str]
    effective: Optional[str] = None
    rocm: Optional[str] = None
    torch: Optional[str] = None
    atomics: Optional[bool] = None
    system: Optional[str] = None
    kernel: Optional[str] = None


def stacks() -> tuple[Stack, ...]:
    """Return every row of [[stack]], in the order of the table."""
    return tuple(Stack(**_fields(row)) for row in table("stacks")["stack"])


def reports() -> tuple[Report, ...]:
    """Return every row of [[report]]."""
    return tuple(Report(**_fields(row)) for row in table("stacks")["report"])


def lendings() -> tuple[Lent, ...]:
    """Return every row of [[lent]]."""
    return tuple(Lent(**_fields(row)) for row in table("stacks")["lent"])


def limits() -> tuple[Limit, ...]:
    """Return every row of [[limit]]."""
    return tuple(Limit(**_fields(row)) for row in table("stacks")["limit"])


def new_caches(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables of cache folders that must be new when ``env`` is set.

    The caches do not store ``env`` with their kernels, so they would keep kernels that were made without it.
    """
    rows = (row for row in limits() if row.env and row.env.items() <= env.items())
    return tuple(dict.fromkeys(name for row in rows for name in row.caches))


def broken() -> tuple[Broken, ...]:
    """Return every row of [[broken]]."""
    return tuple(Broken(**_fields(row)) for row in table("stacks")["broken"])


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    if "as" in values:
        values["posing"] = values.pop("as")
    return values


def known_to_break(machine: Installed) -> tuple[Broken, ...]:
    """Return the rows that apply to ``machine``. An unknown field matches no row that requires it."""
    return tuple(row for row in broken() if machine.gfx in row.gfx and _applies(row, machine))


def _applies(row: Broken, machine: Installed) -> bool:
    if row.effective and row.effective != machine.effective:
        return False
    if row.system and row.system != machine.system:
        return False
    if row.without_atomics and machine.atomics is not False:
        return False
    return all(
        not (since or until) or (version is not None and within(version, since, until))
        for version, since, until in (
            (machine.rocm, row.rocm_since, row.rocm_until),
            (machine.torch, row.torch_since, row.torch_until),
            (machine.kernel, row.kernel_since, row.kernel_until),
        )
    )


def has_code(stack: Stack, gfx: Optional[str]) -> bool:
    """Return True if a stack has code for a target."""
    target = gpus.target(gfx)
    if target is None or target.gfx in stack.lacks:
        return False
    if stack.holds:
        return target.gfx in stack.holds
    if stack.kind == "official":
        return bool(gpus.in_wheel(target.gfx, stack.torch.partition("+")[0], stack.rocm))
    return stack.kind.startswith("amd-") and target.amd_wheels


def amd_index(gfx: Optional[str]) -> str:
    """Return the index of AMD's wheels for a target: stable wheels before nightlies.

    Return the stable index if the target is unknown or has no wheels.
    """
    of_amd = [stack for stack in stacks() if stack.kind.startswith("amd-")]
    return next((stack for stack in of_amd if has_code(stack, gfx)), of_amd[0]).index


def system_of(name: object, kernel: object = None) -> str:
    """Return one of SYSTEMS for the name of an operating system and the release of its kernel."""
    words = f"{name or ''} {kernel or ''}".lower()
    if "microsoft" in words or "wsl" in words:
        return "wsl"
    return "windows" if words.lstrip().startswith("windows") else "linux"


def distribution_of(name: object) -> Optional[str]:
    """Return the id of a distribution from its id or its full name, or None if unknown."""
    words = re.findall(r"[a-z]+", str(name or "").lower())
    known = {each for stack in stacks() for each in stack.distributions} | {"ubuntu", "rhel", "opensuse"}
    return next((word for word in words if word in known), None)


def rocm_of(torch_version: object) -> Optional[str]:
    """Return the ROCm that a torch was built for, or None if the text does not name it.

    torch writes "2.0.1+rocm5.4.2" and people write "2.0, ROCm 5.4". Return None for "tensorflow-rocm 2.5", a
    name with its own version.
    """
    found = _ROCM.search(str(torch_version))
    return found[1] if found else None
