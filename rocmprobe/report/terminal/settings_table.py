"""The settings as tables: for ``rocmprobe list settings``, and in Markdown for ``docs/catalogue.md``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocmprobe.knowledge.settings import LIBRARIES, all_settings, searches
from rocmprobe.model.results import Setting

#: Markers around the generated part of the document.
HEADER = ("setting", "library", "set", "what it sets", "where it means something", "why", "cost")
#: Ways in which a solver is requested from MIOpen.
_WAYS = {
    "find": "PyTorch asks MIOpen's Find",
    "immediate": "PyTorch asks MIOpen's immediate mode",
    "exhaustive": "PyTorch asks MIOpen's Find, exhaustively",
    "find-2.0": "the driver capi asks MIOpen's Find 2.0",
}
_COSTS = (("fwd", "forward"), ("fwd_bwd", "forward + backward"), ("first_call", "first call"))


@dataclass(frozen=True)
class Row:
    """One setting in words; ``sets`` has one thing that is set in each."""

    name: str
    libraries: str
    chosen: str
    sets: tuple[str, ...]
    where: str
    why: str
    cost: str


def rows() -> list[Row]:
    """Every setting, in the order of ``data/settings.toml``."""
    return [
        Row(
            setting.name,
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
        (setting.by_layer, "the layers that the run finds to fail, by PyTorch"),
        (setting.derived, "the variables that the run finds out"),
        (setting.inherit_environment, "the user's own environment, databases and caches"),
        (bool(setting.search), _WAYS.get(setting.search, "")),
        (setting.channels_last, "2-d problems in channels-last"),
        (setting.dtype is not None, f"problems in {setting.dtype}"),
        (not setting.vendor_library, "vendor library off"),
        (setting.bypass, "bypass installed"),
        (setting.device is not None, f"device {setting.device}"),
    )
    found = [f"{name}={value}" for name, value in setting.env.items()]
    found += [f"torch.backends.{name} = {value}" for name, value in own.items()]
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


def generated(costs: Mapping[str, Any]) -> str:
    """The tables of the document; ``costs`` is ``benchmarks/results/settings_cost.json``."""
    settings = [
        (
            *(row.name, row.libraries, row.chosen, "<br>".join(map(_code, row.sets))),
            *(row.where, row.why, row.cost),
        )
        for row in rows()
    ]
    measured = [
        (name, *(_ratio(times[key]) for key, _ in _COSTS)) for name, times in costs["settings"].items()
    ]
    load = " to ".join(map(str, costs["load_average"]))
    return "\n".join(
        [
            *markdown_table(HEADER, settings),
            "",
            "What makes PyTorch ask in this or that way, by its own version:",
            "",
            *markdown_table(("way", "versions", "flags"), [(*row[:2], _code(row[2])) for row in way_rows()]),
            "",
            f"Measured with one thread of {costs['cpu']} and torch {costs['torch']}: the best time over that",
            f"of `default`, over {len(costs['problems'])} problems and {costs['rounds']} rounds in which the",
            "settings took turns; in brackets what comes of either half of the rounds. Other programs ran",
            f"beside it: {costs['cpus']} processors, load average {load}.",
            "",
            *markdown_table(("setting", *(words for _, words in _COSTS)), measured),
        ]
    )


def way_rows() -> list[tuple[str, str, str]]:
    """Each way in which PyTorch requests a solver from MIOpen: its words, versions of PyTorch, flags."""
    return [
        (
            _WAYS[way.name],
            _range("torch", way.torch_since, way.torch_until),
            ", ".join(f"torch.backends.{name} = {value}" for name, value in way.torch.items()),
        )
        for way in searches()
    ]


def _code(text: str) -> str:
    return f"`{text}`" if "=" in text else text


def _ratio(cost: Mapping[str, Any]) -> str:
    return f"{cost['ratio']} ({' and '.join(map(str, cost['halves']))})"


def markdown_table(header: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table whose cells are Markdown already."""
    lines = [header, ["---"] * len(header), *body]
    return ["| " + " | ".join(line) + " |" for line in lines]
