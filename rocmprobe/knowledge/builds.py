"""Builds of PyTorch and ROCm for a chip: which hold code for it, and which are known to break it.

The knowledge is ``data/builds.toml``, which explains its fields; what official wheels hold is a column of
``data/gpus.toml``. All of it is what others reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Optional

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.settings import within
from rocmprobe.text.tables import table

_ROCM = re.compile(r"(?i)(?<!tensorflow-)rocm[ _-]?v?(\d{1,2}(?:\.\d+)+)")
KINDS = ("wheel", "distribution", "community", "source")


@dataclass(frozen=True)
class Build:
    """A build that holds code for the targets ``gfx``, or runs on them. ``torch`` is the version of torch
    that it is, "" for one that this does not identify."""

    gfx: tuple[str, ...]
    kind: str
    title: str
    text: str
    source: str
    date: str
    torch: str = ""


@dataclass(frozen=True)
class Broken:
    """Releases that break the targets ``gfx``, first and last included ("": open). ``effective`` is the ISA
    that they break under, "" for any; ``without_atomics``: only where PCIe atomics are missing."""

    gfx: tuple[str, ...]
    title: str
    text: str
    source: str
    date: str
    effective: str = ""
    rocm_since: str = ""
    rocm_until: str = ""
    torch_since: str = ""
    torch_until: str = ""
    without_atomics: bool = False


@dataclass(frozen=True)
class Installed:
    """What a machine has: the silicon and the ISA that it pretends to be, the ROCm of its torch, its torch,
    and whether PCIe atomics reach it. None: not known."""

    gfx: Optional[str]
    effective: Optional[str] = None
    rocm: Optional[str] = None
    torch: Optional[str] = None
    atomics: Optional[bool] = None


def builds() -> tuple[Build, ...]:
    """Every row of [[build]], in the order of the table."""
    return tuple(Build(**{**row, "gfx": tuple(row["gfx"])}) for row in table("builds")["build"])


def broken() -> tuple[Broken, ...]:
    """Every row of [[broken]], in the order of the table."""
    return tuple(Broken(**{**row, "gfx": tuple(row["gfx"])}) for row in table("builds")["broken"])


def known_to_break(machine: Installed) -> tuple[Broken, ...]:
    """The rows that ``machine`` is among. What is not known of it matches no row that requires it."""
    return tuple(row for row in broken() if machine.gfx in row.gfx and _applies(row, machine))


def _applies(row: Broken, machine: Installed) -> bool:
    if row.effective and row.effective != machine.effective:
        return False
    if row.without_atomics and machine.atomics is not False:
        return False
    return all(
        not (since or until) or (version is not None and within(version, since, until))
        for version, since, until in (
            (machine.rocm, row.rocm_since, row.rocm_until),
            (machine.torch, row.torch_since, row.torch_until),
        )
    )


def with_code_for(gfx: Optional[str]) -> Iterator[Build]:
    """The builds to look for on a chip: official wheels, then what others made, then AMD's own index."""
    target = gpus.target(gfx)
    if target is None:
        return
    if target.wheels:
        yield _official(target)
    yield from (build for build in builds() if target.gfx in build.gfx)
    if target.amd_wheels:
        yield _filled("amd_index", target)


def _official(target: gpus.Target) -> Build:
    """Official wheels, and which of them are known to break the chip although they hold code for it."""
    build = _filled("official", target)
    breaks = [row.title for row in broken() if target.gfx in row.gfx and row.effective in ("", target.gfx)]
    return replace(build, text=f"{build.text} But: {'; '.join(breaks)}.") if breaks else build


def _filled(kind: str, target: gpus.Target) -> Build:
    row = table("builds")[kind]
    title, text = (row[key].format(gfx=target.gfx, wheels=target.wheels) for key in ("title", "text"))
    return Build((target.gfx,), "wheel", title, text, row["source"], row["date"])


def rocm_of(torch_version: object) -> Optional[str]:
    """The ROCm that a torch was built for, as torch says it ("2.0.1+rocm5.4.2") or as people do ("2.0, ROCm
    5.4"). None where nothing is said, and for "tensorflow-rocm 2.5", which is a name and its own version."""
    found = _ROCM.search(str(torch_version))
    return found[1] if found else None
