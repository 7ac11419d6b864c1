"""Stacks of PyTorch and ROCm: which has code for a chip, who reports that it works, what is known to break.

The knowledge is ``data/stacks.toml``, which explains its fields; which versions of the wheels hold code for a
chip is in ``data/gpus.toml``. All of it is what others reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.settings import version_numbers, within
from rocmprobe.text.tables import table

_ROCM = re.compile(r"(?i)(?<!tensorflow-)rocm[ _-]?v?(\d{1,2}(?:\.\d+)+)")
KINDS = ("official", "amd-stable", "amd-nightly", "distribution", "community", "source")
SYSTEMS = ("linux", "wsl", "windows")
#: What is known of a stack on a chip, the best first, with the words for it.
STATUSES = {
    "works": "owners report that it works",
    "tested": "whoever publishes it runs tests on this chip",
    "listed": "the chip is in AMD's list of supported GPUs",
    "partly": "owners report that it runs, with limits",
    "untested": "published, tested by nobody: no report of it on this chip was found",
    "fails": "reported to fail",
}
_RANKS = {"works": 0, "tested": 0, "listed": 1, "partly": 2, "untested": 3, "fails": 9}
_LISTED = re.compile(r"(\d+(?:\.\d+)+) and newer")


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
    """A row of [[report]]: what owners of a chip say of a stack. ``posing`` is the target that the chip
    pretended to be, "" for none; ``torch`` the version that this is, "" for one that does not identify it."""

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
    """A row of [[lent]]: chips that run the code of another one, and the override that makes them."""

    gfx: tuple[str, ...]
    posing: str
    override: str
    text: str
    source: str
    date: str


@dataclass(frozen=True)
class Limit:
    """A row of [[limit]]: what does not work on a chip, and the variables that help."""

    gfx: tuple[str, ...]
    kinds: tuple[str, ...]
    text: str
    source: str
    date: str
    env: Mapping[str, str] = field(default_factory=dict)
    systems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Broken:
    """Releases that break the targets ``gfx``, first and last included ("": open). ``cause`` is of the
    vocabulary. ``effective`` is the ISA
    that they break under, ``system`` the system, "" for any; ``without_atomics``: only where PCIe atomics
    are missing."""

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
    """What a machine has: the silicon and the ISA that it pretends to be, the ROCm of its torch, its torch,
    whether PCIe atomics reach it, its system, and its Linux. None: not known."""

    gfx: Optional[str]
    effective: Optional[str] = None
    rocm: Optional[str] = None
    torch: Optional[str] = None
    atomics: Optional[bool] = None
    system: Optional[str] = None
    kernel: Optional[str] = None


@dataclass(frozen=True)
class Option:
    """A stack on a chip. ``lent`` is by which the chip runs another one's code, None where the stack has code
    for the chip itself. ``status`` is one of STATUSES."""

    stack: Stack
    gfx: str
    status: str
    lent: Optional[Lent] = None
    report: Optional[Report] = None
    limits: tuple[Limit, ...] = ()
    broken: tuple[Broken, ...] = ()

    @property
    def runs_as(self) -> str:
        """The target whose code runs."""
        return self.lent.posing if self.lent else self.gfx

    @property
    def title(self) -> str:
        """What it is, and the chip that it is for."""
        if self.lent:
            return f"{self.stack.title}: {self.gfx} as {self.lent.posing}"
        return f"{self.stack.title}: {self.gfx}"

    @property
    def evidence(self) -> str:
        """What is known of it, in sentences."""
        said = [row.text for row in self.broken] or [self.report.text if self.report else ""]
        return " ".join(filter(None, (f"{STATUSES[self.status].capitalize()}.", *said)))

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Each source with its date, that of the evidence first."""
        rows = (*self.broken, self.report, self.stack, self.lent, *self.limits)
        return tuple(dict.fromkeys((row.source, row.date) for row in rows if row))


def stacks() -> tuple[Stack, ...]:
    """Every row of [[stack]], in the order of the table."""
    return tuple(Stack(**_fields(row)) for row in table("stacks")["stack"])


def reports() -> tuple[Report, ...]:
    """Every row of [[report]]."""
    return tuple(Report(**_fields(row)) for row in table("stacks")["report"])


def lendings() -> tuple[Lent, ...]:
    """Every row of [[lent]]."""
    return tuple(Lent(**_fields(row)) for row in table("stacks")["lent"])


def limits() -> tuple[Limit, ...]:
    """Every row of [[limit]]."""
    return tuple(Limit(**_fields(row)) for row in table("stacks")["limit"])


def broken() -> tuple[Broken, ...]:
    """Every row of [[broken]]."""
    return tuple(Broken(**_fields(row)) for row in table("stacks")["broken"])


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    if "as" in values:
        values["posing"] = values.pop("as")
    return values


def known_to_break(machine: Installed) -> tuple[Broken, ...]:
    """The rows that ``machine`` is among. What is not known of it matches no row that requires it."""
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
    """Whether a stack has code for a target."""
    target = gpus.target(gfx)
    if target is None or target.gfx in stack.lacks:
        return False
    if stack.kind == "official":
        return bool(gpus.in_wheel(target.gfx, stack.torch.partition("+")[0], stack.rocm))
    if stack.kind.startswith("amd-"):
        return target.amd_wheels
    return target.gfx in stack.holds


def options(
    gfx: Optional[str],
    system: str = "linux",
    distribution: Optional[str] = None,
    atomics: Optional[bool] = None,
) -> tuple[Option, ...]:
    """The stacks that there are for a chip on a system, the best first, those known to break it last.

    Before others come those that need no build and no distribution that may be another one;
    then by what is known of them, and code for the
    chip before an override, fixed versions before nightlies, newer rows before older. ``distribution`` is its
    id in /etc/os-release; None leaves none out.
    """
    target = gpus.target(gfx)
    if target is None:
        return ()
    found = (
        _option(stack, target.gfx, lent, system, atomics)
        for stack in stacks()
        if system in stack.systems
        and (distribution is None or not stack.distributions or distribution in stack.distributions)
        for lent in _ways(stack, target.gfx, system)
    )
    newest = sorted(found, key=lambda each: (each.report or each.stack).date, reverse=True)
    return tuple(sorted(newest, key=lambda each: _order(each, distribution)))


def _ways(stack: Stack, gfx: str, system: str) -> Iterator[Optional[Lent]]:
    """How a chip runs what a stack has: as itself (None), or else as a chip that lends its code."""
    if has_code(stack, gfx):
        yield None
    elif system == "linux":
        yield from (row for row in lendings() if gfx in row.gfx and has_code(stack, row.posing))


def _option(stack: Stack, gfx: str, lent: Optional[Lent], system: str, atomics: Optional[bool]) -> Option:
    posing = lent.posing if lent else ""
    report = next(
        (
            row
            for row in reports()
            if (row.stack, row.system, row.posing) == (stack.name, system, posing) and gfx in row.gfx
        ),
        None,
    )
    breaks = known_to_break(
        Installed(gfx, posing or gfx, stack.rocm or None, stack.torch or None, atomics, system)
    )
    if breaks:
        status = "fails"
    elif report:
        status = report.status
    elif not lent and gfx in stack.tested.get(system, ()):
        status = "tested"
    else:
        status = "listed" if not lent and _listed(stack, gfx) else "untested"
    here = tuple(
        row
        for row in limits()
        if gfx in row.gfx and stack.kind in row.kinds and (not row.systems or system in row.systems)
    )
    return Option(stack, gfx, status, lent, report, here, breaks)


def _listed(stack: Stack, gfx: str) -> bool:
    """Whether AMD supports the chip in the ROCm of a wheel."""
    target = gpus.target(gfx)
    since = _LISTED.match(target.rocm) if target else None
    if since is None or stack.kind not in ("official", "amd-stable"):
        return False
    return version_numbers(stack.rocm) >= version_numbers(since[1])


def _order(option: Option, distribution: Optional[str]) -> tuple[bool, bool, int, bool, bool]:
    kind = option.stack.kind
    built = kind in ("community", "source") or not (option.stack.packages or option.stack.commands)
    elsewhere = bool(option.stack.distributions) and distribution is None
    return (
        option.status == "fails",
        built or elsewhere,
        _RANKS[option.status],
        option.lent is not None,
        kind == "amd-nightly",
    )


def system_of(name: object, kernel: object = None) -> str:
    """One of SYSTEMS, by the name of an operating system and the release of its kernel."""
    words = f"{name or ''} {kernel or ''}".lower()
    if "microsoft" in words or "wsl" in words:
        return "wsl"
    return "windows" if words.lstrip().startswith("windows") else "linux"


def distribution_of(name: object) -> Optional[str]:
    """The id of a distribution by its id or its full name, None where that is not known."""
    words = re.findall(r"[a-z]+", str(name or "").lower())
    known = {each for stack in stacks() for each in stack.distributions} | {"ubuntu", "rhel", "opensuse"}
    return next((word for word in words if word in known), None)


def rocm_of(torch_version: object) -> Optional[str]:
    """The ROCm that a torch was built for, as torch says it ("2.0.1+rocm5.4.2") or as people do ("2.0, ROCm
    5.4"). None where nothing is said, and for "tensorflow-rocm 2.5", which is a name and its own version."""
    found = _ROCM.search(str(torch_version))
    return found[1] if found else None
