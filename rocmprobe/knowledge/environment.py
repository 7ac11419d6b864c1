"""The environment of a program under a setting, as a function of its owner's environment.

Trials, ``rocmprobe exec``, ``env``, ``check`` and the scripts of ``repro`` use this function. So a program
runs with the values that the run tested.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocmprobe.knowledge.variables import PREFIXES, find
from rocmprobe.model.results import Setting

#: Names of the folders of databases and caches, keyed by the environment variable for their path.
OWN_FOLDERS = {
    "MIOPEN_USER_DB_PATH": "miopen-db",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen-cache",
    "AMD_COMGR_CACHE_DIR": "comgr-cache",
    "TRITON_CACHE_DIR": "triton-cache",
    "TORCHINDUCTOR_CACHE_DIR": "inductor-cache",
}


def environment(setting: Setting, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program under ``setting``. ``base`` is the owner's environment."""
    gone = removed(setting, base)
    return {**{name: value for name, value in base.items() if name not in gone}, **setting.env}


def removed(setting: Setting, base: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the variables in ``base`` that a program under ``setting`` does not have.

    These are the variables in ``setting.unset``, and the variables of ROCm and PyTorch that the catalogue
    does not keep. Under a setting with the owner's environment, only the former are removed.
    """
    return tuple(
        name
        for name in base
        if name not in setting.env
        and (name in setting.unset or not (setting.inherit_environment or _remains(name)))
    )


def _remains(name: str) -> bool:
    row = find(name)
    if row is None:
        return not name.startswith(PREFIXES)
    unread = row.of in ("process", "nobody") or row.read == "build"
    return row.keep or unread or name in OWN_FOLDERS


def inherited(base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in ``base`` that a worker inherits."""
    rows = {name: find(name) for name in base}
    return {name: base[name] for name, row in rows.items() if row is not None and row.keep}
