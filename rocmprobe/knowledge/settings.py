"""Settings from ``data/settings.toml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from rocmprobe.knowledge import variables
from rocmprobe.model.results import BadInput, Setting
from rocmprobe.text.suggestions import did_you_mean
from rocmprobe.text.tables import invalid_row, table
from rocmprobe.text.versions import release, within

#: (module, attribute) in ``torch.backends``, keyed by the name of a flag in settings.
FLAGS = {
    "cudnn.benchmark": ("cudnn", "benchmark"),
    "cudnn.deterministic": ("cudnn", "deterministic"),
    "miopen.immediate": ("miopen", "immediate"),
}
#: Names of the vendor libraries as their vendors spell them, by backend.
LIBRARIES = {"onednn": "oneDNN", "cudnn": "cuDNN", "miopen": "MIOpen"}
#: Fields of a table row that say where the setting applies. ``Setting`` does not have these fields.
_OF_THE_ROW = ("backends", "set")


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
    changes = ("env", "torch", "search", "dtype", "channels_last", "derived")
    return "native-with-settings" if any(row.get(name) for name in changes) else "native"


def _setting(row: dict[str, Any], torch: Optional[str]) -> Setting:
    fields = {key: value for key, value in row.items() if key not in _OF_THE_ROW}
    flags = {**search_flags(row.get("search", ""), torch), **row.get("torch", {})}
    try:
        return Setting(**{**fields, "verdict": _verdict(row), "torch": flags})
    except TypeError as error:
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

    ``wanted`` is "default", "all", or names of settings separated by commas. The setting ``default`` is
    always included. Raise BadInput for an unknown name.
    """
    rows = [row for row in _rows() if backend in row["backends"]]
    if wanted == "default":
        return tuple(_setting(row, torch) for row in rows if row["set"] == "default")
    if wanted == "all":
        return tuple(_setting(row, torch) for row in rows)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    known = [row["name"] for row in rows]
    for name in names:
        if name not in known:
            near = did_you_mean(name, known) or f"; it has {', '.join(known)}"
            raise BadInput(f"--settings: {backend} has no setting {name!r}{near}")
    return tuple(_setting(row, torch) for row in rows if row["name"] in {"default", *names})


def all_settings() -> Sequence[tuple[Setting, tuple[str, ...], str]]:
    """Return (setting, backends, set) for every setting, with the flags of the newest PyTorch.

    The set is "default" or "all". A setting of the set "all" is selected only by ``--settings all`` or by its
    name.
    """
    return [(_setting(row, None), tuple(row["backends"]), row["set"]) for row in _rows()]


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
