"""Installed ROCm releases and the versions of HIP and MIOpen that come with them or with torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Optional

from rocmprobe._toml import tomllib
from rocmprobe.detect.torch_build import TorchBuild
from rocmprobe.detect.tree import Tree
from rocmprobe.model import Fact

OPT = "/opt"
ROCM = "/opt/rocm"
_TABLE = "data/rocm_releases.toml"
_RELEASE = re.compile(r"[0-9]+\.[0-9]+")
#: Headers since ROCm 5.2, and before, when each component had a folder of its own.
_HIP_HEADERS = ("include/hip/hip_version.h", "hip/include/hip/hip_version.h")
_MIOPEN_HEADERS = ("include/miopen/version.h", "miopen/include/miopen/version.h")


def read_facts(tree: Tree, torch: TorchBuild) -> dict[str, Fact]:
    """``rocm.version``, ``rocm.installs`` (path -> version), ``hip.version``, ``miopen.version``."""
    installs = _installs(tree)
    rocm = _rocm_version(tree, installs)
    return {
        "rocm.version": rocm,
        "rocm.installs": Fact(installs, f"{OPT}/rocm*/.info/version"),
        "hip.version": _hip_version(tree, torch),
        "miopen.version": _miopen_version(tree, torch, rocm),
    }


def _installs(tree: Tree) -> dict[str, str]:
    """Version of every ROCm below /opt; a link to another of them is not an install of its own."""
    found: dict[str, str] = {}
    for name in tree.names(OPT):
        folder = f"{OPT}/{name}"
        version = tree.text(f"{folder}/.info/version") if name.startswith("rocm") else None
        if version:
            found.setdefault(tree.real(folder), version)
    return found


def _rocm_version(tree: Tree, installs: Mapping[str, str]) -> Fact:
    fact = tree.fact(f"{ROCM}/.info/version")
    if fact.value is not None:
        return fact
    if len(installs) == 1:
        folder, version = next(iter(installs.items()))
        return Fact(version, f"{folder}/.info/version; {ROCM} does not lead to it")
    if installs:
        return Fact(None, f"{fact.source}; there are {', '.join(installs)}")
    return fact


def _hip_version(tree: Tree, torch: TorchBuild) -> Fact:
    """The HIP that torch was built with, else the installed one."""
    if torch.value("torch.hip"):
        return torch.facts["torch.hip"]
    return _header_version(tree, _HIP_HEADERS, "HIP_VERSION")


def _miopen_version(tree: Tree, torch: TorchBuild, rocm: Fact) -> Fact:
    """The MIOpen that torch would load, as far as files tell.

    A wheel brings its own library, whose name holds no version, so the release it was built for must
    answer; the headers below /opt tell only of the MIOpen that lies beside them.
    """
    if torch.bundles_miopen:
        return _expected(_torch_release(torch), "of the torch wheel, which bundles MIOpen")
    header = _header_version(tree, _MIOPEN_HEADERS, "MIOPEN_VERSION")
    if header.value is not None:
        return header
    if rocm.value is not None:
        return _expected(rocm.value, f"in {ROCM}")
    return header


def _torch_release(torch: TorchBuild) -> Optional[str]:
    """The ROCm release in a wheel's version ("1.13.1+rocm5.2"), else HIP's, which mostly equals it."""
    match = re.search(r"\+rocm([0-9]+\.[0-9]+)", torch.value("torch.version") or "")
    return match.group(1) if match else torch.value("torch.hip")


def _expected(version: Optional[str], where: str) -> Fact:
    """MIOpen's version by ROCm release, from the table."""
    match = _RELEASE.match(version or "")
    if match is None:
        return Fact(None, f"the ROCm release {where} is unknown")
    release = match.group()
    value = _miopen_by_release().get(release)
    if value is None:
        return Fact(None, f"{_TABLE} has no ROCm {release}, the release {where}")
    return Fact(value, f"expected from ROCm {release} {where} ({_TABLE})")


@lru_cache(maxsize=1)
def _miopen_by_release() -> Mapping[str, str]:
    text = resources.files("rocmprobe").joinpath(_TABLE).read_text("utf-8")
    return {row["rocm"]: row["miopen"] for row in tomllib.loads(text)["release"]}


def _header_version(tree: Tree, headers: tuple[str, ...], macro: str) -> Fact:
    """MAJOR.MINOR.PATCH from the #define lines of a header below /opt/rocm."""
    for header in headers:
        text = tree.text(f"{ROCM}/{header}") or ""
        parts = [
            re.search(rf"^\s*#\s*define\s+{macro}_{part}\s+([0-9]+)", text, re.MULTILINE)
            for part in ("MAJOR", "MINOR", "PATCH")
        ]
        if all(parts):
            return Fact(".".join(match.group(1) for match in parts if match), f"{ROCM}/{header}")
    return Fact(None, f"{ROCM}/{headers[0]}: no {macro}_MAJOR")
