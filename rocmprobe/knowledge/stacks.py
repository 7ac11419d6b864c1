"""Stacks of PyTorch and ROCm from ``data/stacks.toml``: supported chips, user reports and known failures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Optional

from msgspec.structs import force_setattr

from rocmprobe.knowledge import gpus
from rocmprobe.text.tables import Row, rows
from rocmprobe.text.versions import within

#: The version number of "tensorflow-rocm 2.5" is not a ROCm version.
_ROCM = re.compile(r"(?i)(?<!tensorflow-)rocm[ _-]?v?(\d{1,2}(?:\.\d+)+)")
KINDS = ("official", "amd-stable", "amd-nightly", "distribution", "community", "source")
SYSTEMS = ("linux", "wsl", "windows")


class DatedRow(Row, frozen=True, kw_only=True):
    """A row that can age.

    - ``date``: when the source was written
    - ``checked``: month in which the row was last compared with its source, "" for ``date``
    """

    source: str
    date: str
    checked: str = ""

    @property
    def verified(self) -> str:
        """Last month in which the row was known to be true, e.g. "2026-11"."""
        return max(self.date, self.checked)[:7]


class ChipRow(DatedRow, frozen=True, kw_only=True):
    """A row about the chips ``gfx``. The table can name a whole family instead of its targets."""

    gfx: tuple[str, ...]

    def __post_init__(self) -> None:
        force_setattr(self, "gfx", gpus.expand(self.gfx))


class Stack(DatedRow, frozen=True):
    """A build of PyTorch for ROCm, and how to install it: one [[stack]] in data/stacks.toml."""

    name: str
    title: str
    kind: str
    systems: tuple[str, ...]
    rocm: str
    torch: str
    python: tuple[str, ...]
    text: str
    distributions: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    index: str = ""
    index_option: str = "--index-url"
    packages: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class Tested(ChipRow, frozen=True):
    """Targets on which the publisher of stacks runs tests: one [[tested]] in data/stacks.toml."""

    stacks: tuple[str, ...]
    system: str


class Report(ChipRow, frozen=True, rename={"posing": "as"}):
    """A user's report on a stack and a chip: one [[report]] in data/stacks.toml.

    - ``posing``: target whose code the chip ran with an override, or ""
    - ``torch``: version of torch that shows that the stack is already installed, or "" if unknown
    - ``env``: environment variables without which the stack fails
    """

    stack: str
    system: str
    status: str
    text: str
    posing: str = ""
    torch: str = ""
    env: Mapping[str, str] = {}


class CodeLoan(ChipRow, frozen=True, rename={"posing": "as"}):
    """Chips that can run another chip's code with an override: one row ``[[lent]]`` in data/stacks.toml.

    ``posing`` is the target whose code the chips run.
    """

    posing: str
    text: str

    @property
    def override(self) -> str:
        """Value of HSA_OVERRIDE_GFX_VERSION."""
        return gpus.override_of(self.posing)


class Limit(ChipRow, frozen=True):
    """Something that does not work on a chip: one [[limit]] in data/stacks.toml.

    - ``env``: environment variables that avoid the problem
    - ``caches``: environment variables that must be set to new cache folders
    """

    kinds: tuple[str, ...]
    text: str
    env: Mapping[str, str] = {}
    caches: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()


class Broken(ChipRow, frozen=True):
    """Releases that do not work on the targets ``gfx``: one [[broken]] in data/stacks.toml.

    - ``effective``, ``system``: ISA and operating system with which the failure occurs, "" for any
    - ``..._since``, ``..._until``: first and last broken version
    - ``without_atomics``: True if the failure only occurs without PCIe atomics
    """

    cause: str
    title: str
    text: str
    name: str = ""
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
    """The software of a machine, and the native and effective ISA of its GPU. None means unknown.

    - ``rocm``: ROCm for which torch was built
    - ``atomics``: True if the card can use PCIe atomics
    - ``kernel``: version of the Linux kernel
    """

    gfx: Optional[str]
    effective: Optional[str] = None
    rocm: Optional[str] = None
    torch: Optional[str] = None
    atomics: Optional[bool] = None
    system: Optional[str] = None
    kernel: Optional[str] = None


@cache
def stacks() -> tuple[Stack, ...]:
    """Return every stack, in the order of data/stacks.toml."""
    return rows("stacks", "stack", Stack)


@cache
def publisher_tests() -> tuple[Tested, ...]:
    """Return the targets on which publishers test their stacks."""
    return rows("stacks", "tested", Tested)


@cache
def reports() -> tuple[Report, ...]:
    """Return every user report about a stack on a chip."""
    return rows("stacks", "report", Report)


@cache
def code_loans() -> tuple[CodeLoan, ...]:
    """Return every override that lets chips run the code of another chip."""
    return rows("stacks", "lent", CodeLoan)


@cache
def limits() -> tuple[Limit, ...]:
    """Return every known limit of a chip."""
    return rows("stacks", "limit", Limit)


def is_outdated(row: DatedRow) -> bool:
    """Return True if ``row`` was last checked more than a year before the newest row of the table."""
    rows: tuple[DatedRow, ...] = (
        *stacks(),
        *publisher_tests(),
        *reports(),
        *code_loans(),
        *limits(),
        *broken(),
    )
    return _months(row.verified) + 12 < max(_months(each.verified) for each in rows)


def _months(date: str) -> int:
    # A year alone counts as its January.
    year, _, month = date.partition("-")
    return 12 * int(year) + int(month or 1)


def new_caches(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that must be set to new cache folders if ``env`` is set."""
    # The old folders contain kernels that were compiled without ``env``.
    rows = (row for row in limits() if row.env and row.env.items() <= env.items())
    return tuple(dict.fromkeys(name for row in rows for name in row.caches))


@cache
def broken() -> tuple[Broken, ...]:
    """Return the releases that are known to fail on a chip."""
    return rows("stacks", "broken", Broken)


def known_to_break(machine: Installed) -> tuple[Broken, ...]:
    """Return the known failures that apply to this software and this GPU."""
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
    """Return True if a stack has code for the target ``gfx``."""
    target = gpus.target(gfx)
    if target is None or target.gfx in stack.lacks:
        return False
    if stack.holds:
        return target.gfx in stack.holds
    if stack.kind == "official":
        return bool(gpus.in_wheel(target.gfx, stack.torch.partition("+")[0], stack.rocm))
    return stack.kind.startswith("amd-") and target.amd_wheels


def system_of(name: object, kernel: object = None) -> str:
    """Return "linux", "wsl" or "windows", given the operating system's name and the kernel's release."""
    words = f"{name or ''} {kernel or ''}".lower()
    if "microsoft" in words or "wsl" in words:
        return "wsl"
    return "windows" if words.lstrip().startswith("windows") else "linux"


def distribution_of(name: object) -> Optional[str]:
    """Return the id of a Linux distribution, given its id or full name, or None if unknown."""
    words = re.findall(r"[a-z]+", str(name or "").lower())
    known = {name for stack in stacks() for name in stack.distributions} | {"ubuntu", "rhel", "opensuse"}
    return next((word for word in words if word in known), None)


def rocm_of(torch_version: object) -> Optional[str]:
    """Return the ROCm version in a text such as "2.0.1+rocm5.4.2" or "2.0, ROCm 5.4", or None."""
    match = _ROCM.search(str(torch_version))
    return match[1] if match else None
