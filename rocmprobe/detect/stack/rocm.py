"""Installed ROCm releases and the version of HIP that comes with them or with torch."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocmprobe.detect.stack import loader
from rocmprobe.detect.stack.libraries import OPT, Libraries
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact

ROCM = "/opt/rocm"
#: Headers since ROCm 5.2, and before, when each component had a folder of its own.
_HIP_HEADERS = ("include/hip/hip_version.h", "hip/include/hip/hip_version.h")
#: Where distributions put libraries.
_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
#: "libamdhip64.so.6.2.41134", and "libamdhip64.so.5.2.21153-0" where the name includes the build.
_HIP_FILE = re.compile(r"libamdhip64\.so\.([0-9]+\.[0-9]+)\.[0-9]+")


def read_facts(tree: Tree, torch: TorchBuild, libraries: Libraries) -> dict[str, Fact]:
    """``rocm.version``, ``rocm.installs`` (folder -> version) and ``hip.version``.

    An install is a ROCm below /opt, or a HIP runtime among the libraries of a distribution, whose
    MAJOR.MINOR is that of ROCm.
    """
    installs = {**_below_opt(tree), **_of_distribution(tree)}
    rocm = _rocm_version(tree, installs)
    return {
        "rocm.version": rocm,
        "rocm.installs": Fact(installs, f"{OPT}/rocm*/.info/version and libamdhip64.so.* of a distribution"),
        "hip.version": _hip_version(tree, torch, libraries),
    }


def _below_opt(tree: Tree) -> dict[str, str]:
    """Version of every ROCm below /opt; a link to another of them is not an install of its own."""
    found: dict[str, str] = {}
    for name in tree.names(OPT):
        folder = f"{OPT}/{name}"
        version = tree.text(f"{folder}/.info/version") if name.startswith("rocm") else None
        if version:
            found.setdefault(tree.real(folder), version)
    return found


def _of_distribution(tree: Tree) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in dict.fromkeys(loader.real(tree, folder) for folder in _SYSTEM):
        path = loader.copies(tree, folder).get("libamdhip64")
        file = loader.real(tree, path) if path else ""
        match = _HIP_FILE.match(file.rpartition("/")[2])
        # A link out of here, as the packages of AMD set some, belongs to an install below /opt.
        if match and file.startswith(f"{folder}/"):
            found[folder] = match.group(1)
    return found


def _rocm_version(tree: Tree, installs: Mapping[str, str]) -> Fact:
    fact = tree.fact(f"{ROCM}/.info/version")
    if fact.value is not None:
        return fact
    if len(installs) == 1:
        folder, version = next(iter(installs.items()))
        if not folder.startswith(OPT):
            return Fact(version, f"{folder}/libamdhip64.so.{version}.*")
        return Fact(version, f"{folder}/.info/version; {ROCM} does not lead to it")
    if installs:
        return Fact(None, f"{fact.source}; there are {', '.join(installs)}")
    return fact


def _hip_version(tree: Tree, torch: TorchBuild, libraries: Libraries) -> Fact:
    """The HIP that torch was built with, else the installed one."""
    if torch.value("torch.hip"):
        return torch.facts["torch.hip"]
    header = header_version(tree, _HIP_HEADERS, "HIP_VERSION")
    runtime = libraries.chosen.get("libamdhip64")
    match = _HIP_FILE.match(runtime.path.rpartition("/")[2]) if runtime else None
    if header.value is None and runtime and match:
        return Fact(match.group().partition(".so.")[2], f"file name of {runtime.path}")
    return header


def header_version(tree: Tree, headers: tuple[str, ...], macro: str) -> Fact:
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
