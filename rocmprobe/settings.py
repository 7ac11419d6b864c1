"""Settings from ``data/settings.toml``: which exist for a backend, and how users name them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

from rocmprobe._toml import tomllib
from rocmprobe.model import BadInput, Setting


@lru_cache(maxsize=1)
def _rows() -> tuple[dict[str, Any], ...]:
    text = resources.files("rocmprobe").joinpath("data/settings.toml").read_text("utf-8")
    return tuple(tomllib.loads(text)["setting"])


def _verdict(row: dict[str, Any]) -> str:
    """What choosing this setting is called in a recommendation."""
    if row.get("device") == "cpu":
        return "cpu"
    if row.get("bypass"):
        return "bypass"
    if not row.get("vendor_library", True):
        return "vendor-off"
    if row.get("env") or row.get("torch") or row.get("interface"):
        return "native-with-settings"
    return "native"


def _setting(row: dict[str, Any]) -> Setting:
    fields = {key: value for key, value in row.items() if key not in ("backends", "set")}
    return Setting(verdict=_verdict(row), **fields)


def drivers_of(setting: Setting) -> tuple[str, ...]:
    """The drivers under which a setting means something: to ``capi`` variables and MIOpen's interfaces do,
    to ``torch`` all but Find 2.0, which PyTorch does not use."""
    if setting.interface == "find-2.0":
        return ("capi",)
    flags = setting.torch and not setting.interface
    if setting.bypass or not setting.vendor_library or setting.device or flags:
        return ("torch",)
    return ("torch", "capi")


def settings_for(
    backend: str, wanted: str = "default", drivers: Sequence[str] = ("torch", "capi")
) -> tuple[Setting, ...]:
    """The settings of ``backend`` that one of ``drivers`` can have: the set "default" or "all", or names
    separated by commas.

    Raises BadInput for a name that the backend does not have. The setting ``default`` is always
    among them: every gate of the ladder stands on it.
    """
    rows = [
        row
        for row in _rows()
        if backend in row["backends"] and not set(drivers).isdisjoint(drivers_of(_setting(row)))
    ]
    if wanted == "default":
        return tuple(_setting(row) for row in rows if row["set"] == "default")
    if wanted == "all":
        return tuple(_setting(row) for row in rows)
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    known = [row["name"] for row in rows]
    for name in names:
        if name not in known:
            by = f" by the driver {drivers[0]}" if len(drivers) == 1 and drivers[0] != "torch" else ""
            raise BadInput(f"--settings: {backend}{by} has no setting {name!r}; it has {', '.join(known)}")
    return tuple(_setting(row) for row in rows if row["name"] in {"default", *names})


def all_settings() -> Sequence[tuple[Setting, tuple[str, ...], str]]:
    """Every setting with its backends and the set it belongs to, for ``rocmprobe list settings``."""
    return [(_setting(row), tuple(row["backends"]), row["set"]) for row in _rows()]
