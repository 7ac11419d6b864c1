"""Settings described in words, for ``rocmprobe list settings`` and for ``docs/catalogue.md``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocmprobe.knowledge.layers import OPTIONS
from rocmprobe.knowledge.settings import LIBRARIES, all_settings, searches, title
from rocmprobe.model.results import Setting
from rocmprobe.text.plain_text import assignments
from rocmprobe.torch_flags import statement

#: Descriptions of the search methods with which PyTorch requests a solver from MIOpen.
_WAYS = {
    "find": "PyTorch calls MIOpen's Find",
    "immediate": "PyTorch calls MIOpen's immediate mode",
    "exhaustive": "PyTorch calls MIOpen's Find, exhaustively",
}


@dataclass(frozen=True)
class Row:
    """A setting described in words."""

    name: str
    title: str
    libraries: str
    chosen: str
    sets: tuple[str, ...]
    where: str
    why: str
    cost: str


def rows() -> list[Row]:
    """Return every setting, in the order of ``data/settings.toml``."""
    return [
        Row(
            setting.name,
            title(setting.name),
            ", ".join(LIBRARIES[name] for name in backends),
            chosen,
            _sets(setting),
            _where(setting, backends),
            setting.reason,
            setting.cost or "none",
        )
        for setting, backends, chosen in all_settings()
    ]


def _sets(setting: Setting) -> tuple[str, ...]:
    own = {} if setting.search else setting.torch
    words = (
        *((True, f"PyTorch's kernels for {OPTIONS[option]}") for option in setting.pytorch_layers),
        (setting.derived, "variables that the run determines"),
        (setting.inherit_environment, "the user's own environment, databases and caches"),
        (bool(setting.search), _WAYS.get(setting.search, "")),
        (setting.channels_last, "2-d problems in channels-last"),
        (setting.dtype is not None, f"problems in {setting.dtype}"),
        (not setting.vendor_library, "vendor library off"),
        (setting.bypass, "bypass installed"),
        (setting.device is not None, f"device {setting.device}"),
        (setting.one_device, "other GPUs hidden"),
    )
    found = assignments(setting.env)
    found += [f"unset {name}" for name in setting.unset]
    found += [statement(name, value) for name, value in own.items()]
    return tuple(found + [word for holds, word in words if holds]) or ("nothing",)


def _where(setting: Setting, backends: Sequence[str]) -> str:
    library = LIBRARIES[backends[0]]
    found = [
        _range(library, setting.since, setting.until),
        _range("torch", setting.torch_since, setting.torch_until),
        f"native ISA {setting.isa}" if setting.isa else "",
    ]
    return "; ".join(filter(None, found)) or "every version"


def _range(product: str, since: str, until: str) -> str:
    if since and until:
        return f"{product} {since} to {until}"
    if since:
        return f"{product} {since} and newer"
    return f"{product} {until} and older" if until else ""


def search_rows() -> list[tuple[str, str, str]]:
    """Return (description, torch versions, flags) for each method of choosing a solver in MIOpen."""
    return [
        (
            _WAYS[way.name],
            _range("torch", way.torch_since, way.torch_until),
            ", ".join(statement(name, value) for name, value in way.torch.items()),
        )
        for way in searches()
    ]


def cure_rows() -> list[tuple[str, str]]:
    """Return (rung, names of the settings that can cure a failure of this rung, smallest change first)."""
    rungs: dict[str, list[str]] = {}
    for setting, _, _ in all_settings():
        for rung in setting.cures:
            rungs.setdefault(rung, []).append(setting.name)
    order = all_settings()[-1][0].cures
    return [(rung, ", ".join(rungs[rung])) for rung in order]
