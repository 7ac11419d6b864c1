"""Stacks of PyTorch and ROCm: the chips for which they have code, reports from users, and known failures.

The knowledge is in ``data/stacks.toml``, which explains its fields. ``data/gpus.toml`` says which versions of
the wheels have code for a chip. Both files contain what others reported.
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
    """A row of [[report]]: what users of a chip report about a stack.

    ``posing`` is the target whose code ran on the chip through an override, or "". ``torch`` is the installed
    version that identifies the stack, or "" if no version does.
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
    """A row of [[lent]]: chips that can run the code of another chip, and the override for it."""

    gfx: tuple[str, ...]
    posing: str
    override: str
    text: str
    source: str
    date: str


@dataclass(frozen=True)
class Limit:
    """A row of [[limit]]: what does not work on a chip, and the variables that help.

    ``caches`` are variables that must be set to a new folder for compiled code.
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
    """Releases that do not work on the targets ``gfx``.

    The limits of a range are included, and "" means no limit. ``cause`` is a name in ``data/causes.toml``.
    ``effective`` is the ISA, and ``system`` the operating system, under which the failure occurs ("" for
    any). If ``without_atomics``, the failure only occurs without PCIe atomics.
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
    """The installed software of a machine, and the native and effective ISA of its GPU. None means unknown.

    ``rocm`` is the ROCm for which torch was built. ``atomics`` is True if the card can use PCIe atomics.
    ``kernel`` is the version of the Linux kernel.
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
    """Return the variables for cache folders that must be new when ``env`` is set.

    The caches do not record ``env``, so old folders would return kernels that were compiled without it.
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
    """Return the rows that apply to ``machine``. A row that requires an unknown field does not apply."""
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
    """Return the index URL of AMD's wheels for a target. Stable wheels are preferred to nightly builds.

    If the target is unknown or has no wheels, return the stable index.
    """
    of_amd = [stack for stack in stacks() if stack.kind.startswith("amd-")]
    return next((stack for stack in of_amd if has_code(stack, gfx)), of_amd[0]).index


def system_of(name: object, kernel: object = None) -> str:
    """Return one of SYSTEMS, given the name of an operating system and the release of its kernel."""
    words = f"{name or ''} {kernel or ''}".lower()
    if "microsoft" in words or "wsl" in words:
        return "wsl"
    return "windows" if words.lstrip().startswith("windows") else "linux"


def distribution_of(name: object) -> Optional[str]:
    """Return the id of a distribution, given its id or its full name, or None if unknown."""
    words = re.findall(r"[a-z]+", str(name or "").lower())
    known = {each for stack in stacks() for each in stack.distributions} | {"ubuntu", "rhel", "opensuse"}
    return next((word for word in words if word in known), None)


def rocm_of(torch_version: object) -> Optional[str]:
    """Return the ROCm version in the text of a torch version, or None if there is none.

    The text can be "2.0.1+rocm5.4.2", from torch, or "2.0, ROCm 5.4", from a user. Return None for
    "tensorflow-rocm 2.5", because its version number is not a ROCm version.
    """
    found = _ROCM.search(str(torch_version))
    return found[1] if found else None
