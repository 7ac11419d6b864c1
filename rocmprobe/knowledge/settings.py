"""Settings from ``data/settings.toml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Optional

from rocmprobe.knowledge import variables
from rocmprobe.model.results import VERDICTS, BadInput, Setting
from rocmprobe.model.results_file import from_json
from rocmprobe.text.plain_text import joined
from rocmprobe.text.suggestions import did_you_mean
from rocmprobe.text.tables import invalid_row, table
from rocmprobe.text.versions import release, within

#: Names of the vendor libraries as their vendors spell them, by backend.
LIBRARIES = {"onednn": "oneDNN", "cudnn": "cuDNN", "miopen": "MIOpen"}
#: The setting with a clean environment, which changes nothing else, and the setting with the user's own.
DEFAULT, AS_FOUND = "default", "as-found"
#: Fields of a table row that ``Setting`` does not have.
_OF_THE_ROW = ("backends", "set", "title")
#: Maximum number of settings that a sentence names.
_NAMED = 3


@dataclass(frozen=True)
class Versions:
    """Versions of the vendor library, of PyTorch and of PyTorch's ROCm."""

    library: str
    library_version: Optional[str] = None
    torch: Optional[str] = None
    rocm: Optional[str] = None


@dataclass(frozen=True)
class Search:
    """A method by which PyTorch gets a solver from MIOpen.

    - ``name``: "find" (measure solvers), "exhaustive" (tune and measure all) or "immediate" (measure none)
    - ``torch``: flags of ``torch.backends`` that select this method
    - ``torch_since``, ``torch_until``: PyTorch versions for which the flags are valid, "" for no upper limit
    """

    name: str
    torch_since: str
    torch: Mapping[str, Any]
    source: str
    torch_until: str = ""


def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table("settings")["setting"]
    return rows


def _verdict(row: dict[str, Any]) -> str:
    if row.get("device") == "cpu":
        return "cpu"
    if row.get("bypass"):
        return "bypass"
    if not row.get("vendor_library", True):
        return "vendor-off"
    changes = ("env", "unset", "torch", "search", "dtype", "channels_last", "derived", "one_device")
    return "native-with-settings" if any(row.get(name) for name in changes) else "native"


def _setting(row: dict[str, Any], torch: Optional[str]) -> Setting:
    fields = {key: value for key, value in row.items() if key not in _OF_THE_ROW}
    flags = {**search_flags(row.get("search", ""), torch), **row.get("torch", {})}
    unknown = [name for name in fields if name not in Setting.__dataclass_fields__]
    try:
        if unknown:
            raise BadInput(f"Object contains unknown field `{unknown[0]}`")
        return from_json(Setting, {**fields, "verdict": _verdict(row), "torch": flags})
    except BadInput as error:
        raise invalid_row("settings", "setting", row, error) from error


def search_flags(search: str, torch: Optional[str]) -> dict[str, Any]:
    """Return the flags of ``torch.backends`` that select a search method of MIOpen, e.g. "find".

    ``torch`` is PyTorch's version, or None for the newest. Return {} if there are no flags.
    """
    for each in reversed(searches()):
        if each.name == search and (torch is None or within(torch, each.torch_since, each.torch_until)):
            return dict(each.torch)
    return {}


def searches() -> Sequence[Search]:
    """Return the search methods of MIOpen for each range of PyTorch versions, older versions first."""
    return [Search(**row) for row in table("settings")["search"]]


def settings_for(backend: str, wanted: str = "default", torch: Optional[str] = None) -> tuple[Setting, ...]:
    """Return the settings of ``backend``.

    ``wanted`` is "default", "all", or names of settings separated by commas. A name such as
    "no-sdma+no-gemm" combines settings. The setting ``default`` is always included. Raise BadInput for an
    unknown name, or for settings that cannot be combined.
    """
    rows = [row for row in _rows() if backend in row["backends"]]
    if wanted == "default":
        return tuple(_setting(row, torch) for row in rows if row["set"] == "default")
    if wanted == "all":
        return tuple(_setting(row, torch) for row in rows if row["set"] != "cure")
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    known = {row["name"]: _setting(row, torch) for row in rows}
    for member in (member for name in names for member in name.split("+")):
        if member not in known:
            near = did_you_mean(member, known) or f"; it has {', '.join(known)}"
            raise BadInput(f"--settings: {backend} has no setting {member!r}{near}")
    chosen = [setting for name, setting in known.items() if name in {DEFAULT, *names}]
    combined = (named(known, name) for name in dict.fromkeys(names) if name not in known)
    return (*chosen, *(replace(setting, by_name=False) for setting in combined))


def with_cures(backend: str, wanted: str, torch: Optional[str] = None) -> tuple[Setting, ...]:
    """Return the settings of a run: those of ``settings_for``, and those that the ladder can need.

    These are the cures of failing rungs, the smallest change first, and ``as-found``, because the ladder is
    climbed in the user's own environment first. The suites run no case under them, unless a request names
    them. If the user named settings, no cures are tried.
    """
    chosen = settings_for(backend, wanted, torch)
    if wanted not in ("default", "all"):
        return chosen
    names = {setting.name for setting in chosen}
    return tuple(
        _setting(row, torch) if row["name"] in names else replace(_setting(row, torch), by_name=True)
        for row in _rows()
        if backend in row["backends"] and (row["name"] in {*names, AS_FOUND} or row.get("cures"))
    )


def named(rows: Mapping[str, Setting], name: str) -> Setting:
    """Return the setting ``name`` of ``rows``, or the settings of a name such as "no-sdma+no-gemm", composed.

    Raise KeyError for an unknown name, and BadInput if the settings cannot be combined.
    """
    return rows[name] if name in rows else compose([rows[member] for member in name.split("+")])


def compose(members: Sequence[Setting]) -> Setting:
    """Return one setting with the changes of all ``members``.

    The setting ``default`` changes nothing, so it is not in the name. Raise BadInput if two members exclude
    each other, or if a run must first choose the variables of a member.
    """
    parts = [member for member in members if member.name != DEFAULT]
    if len(parts) < 2:
        return parts[0] if parts else members[0]
    for part in parts:
        if part.dtype or (part.derived and not part.env):
            raise BadInput(f"the setting {part.name} cannot be combined with other settings")
        for other in parts:
            if other.name in part.excludes or _disagree(part, other):
                raise BadInput(f"the settings {part.name} and {other.name} exclude each other")
    return replace(
        parts[0],
        name="+".join(part.name for part in parts),
        members=tuple(part.name for part in parts),
        reason="; ".join(part.reason for part in parts),
        verdict=max((part.verdict for part in parts), key=VERDICTS.index),
        env={name: value for part in parts for name, value in part.env.items()},
        unset=tuple(dict.fromkeys(name for part in parts for name in part.unset)),
        torch={flag: value for part in parts for flag, value in part.torch.items()},
        vendor_library=all(part.vendor_library for part in parts),
        bypass=any(part.bypass for part in parts),
        inherit_environment=any(part.inherit_environment for part in parts),
        device=next((part.device for part in parts if part.device), None),
        cost="; ".join(dict.fromkeys(part.cost for part in parts if part.cost)),
        source="; ".join(dict.fromkeys(part.source for part in parts)),
        # The members were tested for these before they were combined.
        since="", until="", torch_since="", torch_until="", isa="",
        search=next((part.search for part in reversed(parts) if part.search), ""),
        channels_last=any(part.channels_last for part in parts),
        pytorch_layers=tuple(dict.fromkeys(layer for part in parts for layer in part.pytorch_layers)),
        by_name=True,
        slow=any(part.slow for part in parts),
        cures=(),
        excludes=tuple(dict.fromkeys(name for part in parts for name in part.excludes)),
        one_device=any(part.one_device for part in parts),
    )  # fmt: skip


def _disagree(one: Setting, other: Setting) -> bool:
    """Return True if the settings give one variable or flag two values, or one unsets what the other sets."""
    differ = any(
        mine[name] != theirs[name]
        for mine, theirs in ((one.env, other.env), (one.torch, other.torch))
        for name in mine.keys() & theirs.keys()
    )
    return differ or not one.env.keys().isdisjoint(other.unset)


def all_settings() -> Sequence[tuple[Setting, tuple[str, ...], str]]:
    """Return (setting, backends, set) for every setting, with the flags of the newest PyTorch.

    The set is "default", "all" or "cure". A setting of the set "all" is selected only by ``--settings all``
    or by its name. A setting of the set "cure" is selected by its name, or if a rung that it can cure fails.
    """
    return [(_setting(row, None), tuple(row["backends"]), row["set"]) for row in _rows()]


@cache
def _titles() -> dict[str, str]:
    return {row["name"]: row["title"] for row in _rows()}


def title(name: str) -> str:
    """Return the title of the setting ``name`` in reports, e.g. "GEMM switched off" for "no-gemm".

    A name such as "no-sdma+no-gemm" gives the titles of its members. A name that is not in the table is its
    own title.
    """
    titles = _titles()
    if name in titles:
        return titles[name]
    return " and ".join(titles.get(member, member) for member in name.split("+"))


def first_titles(names: Sequence[str]) -> str:
    """Return the titles of at most ``_NAMED`` settings, e.g. "GEMM switched off, the CPU and 2 more"."""
    return joined([title(name) for name in names], _NAMED)


def reason_without_effect(setting: Setting, versions: Versions) -> Optional[str]:
    """Return the reason why ``setting`` has no effect with ``versions``, or None if it can have an effect."""
    for product, version, since, until in (
        (versions.library, versions.library_version, setting.since, setting.until),
        ("torch", versions.torch, setting.torch_since, setting.torch_until),
    ):
        if version and since and not within(version, since, ""):
            return f"{product} {version} does not know this; {since} is the first that does"
        if version and until and not within(version, "", until):
            return f"{product} {version} does not know this any more; {until} was the last that did"
    if setting.search and versions.torch and not search_flags(setting.search, versions.torch):
        return f"torch {versions.torch} has no flags for this use of MIOpen ({setting.search})"
    return _refused_variables(setting, versions)


def _refused_variables(setting: Setting, versions: Versions) -> Optional[str]:
    torch, rocm = release(versions.torch), release(versions.rocm)
    labels = {name: variables.label(name, value, rocm, torch) for name, value in setting.env.items()}
    for name, label in labels.items():
        if label.verdict == variables.REJECTED:
            return f"{name}={setting.env[name]}: {label.why}"
    unread = [label for label in labels.values() if label.verdict == variables.NOT_HERE]
    if not unread or len(unread) < len(labels) or setting.channels_last or setting.bypass:
        return None
    return f"{', '.join(labels)}: {unread[0].why}"
