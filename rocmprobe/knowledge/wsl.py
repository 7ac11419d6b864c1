"""ROCm in WSL: the GPUs and ROCm versions that AMD's library librocdxg supports (data/wsl.toml)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Optional

from rocmprobe.knowledge.gpus import isa_name, target_order
from rocmprobe.text.tables import Row, rows, table
from rocmprobe.text.versions import release

_NUMBER = r"[ \t]*(0[xX][0-9a-fA-F]{1,8}|\d{1,9})"
_LINE = re.compile(",".join([_NUMBER] * 4))
#: Largest number of dids.conf entries that librocdxg reads (kMaxExtraGfxipEntries).
_MOST = 256


class Bridge(Row, frozen=True):
    """Versions of ROCm that load librocdxg.

    - ``first_rocm``: oldest version that loads librocdxg
    - ``without_variable``: oldest version that loads librocdxg without ``variable``
    - ``variable``: environment variable that versions before ``without_variable`` need, set to 1
    """

    first_rocm: str
    without_variable: str
    variable: str
    source: str


class Family(Row, frozen=True):
    """A family of chips, and reports on whether it works in WSL.

    ``works`` is "no", "listed" (in librocdxg's own list) or "by dids.conf" (after the user adds an entry to
    that file).
    """

    name: str
    works: str
    text: str
    source: str


@lru_cache(maxsize=1)
def bridge() -> Bridge:
    return Bridge(**table("wsl")["bridge"])


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    return rows("wsl", "family", Family)


@lru_cache(maxsize=1)
def listed() -> dict[str, str]:
    """Return the targets in librocdxg's own list, keyed by PCI device id (e.g. "0x747e")."""
    return {pci: row["gfx"] for row in table("wsl")["listed"] for pci in row["pci"]}


def entries(text: str) -> dict[str, str]:
    """Return the targets in ``text``, the content of a dids.conf, keyed by PCI device id.

    A line has four decimal or hexadecimal numbers. Other lines are ignored. Source of the format: librocdxg
    shared/src/utils.cpp, ParseGfxipLine and LoadUserDidsFromFile.
    """
    targets: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or len(targets) == _MOST:
            continue
        device, major, minor, stepping = (
            int(digits, 16 if digits[:2] in ("0x", "0X") else 10) for digits in match.groups()
        )
        if device <= 0xFFFF and 0 < major <= 255 and minor <= 255 and stepping <= 255:
            targets.setdefault(f"0x{device:04x}", isa_name(major, minor, stepping))
    return targets


def takes(added: Iterable[str]) -> list[str]:
    """Return librocdxg's own targets and the targets ``added`` (e.g. in dids.conf), sorted."""
    return sorted({*listed().values(), *added}, key=target_order)


def too_old(rocm: Optional[str]) -> bool:
    """Return True if this version of ROCm is known not to load librocdxg."""
    return _before(rocm, bridge().first_rocm)


def needs_variable(rocm: Optional[str]) -> bool:
    """Return True if ``rocm`` is None, or loads librocdxg only with ``bridge().variable`` set."""
    return rocm is None or _before(rocm, bridge().without_variable)


def _before(rocm: Optional[str], other: str) -> bool:
    number, limit = release(rocm), release(other)
    return number is not None and limit is not None and number < limit
