"""Versions of ROCm, HIP and MIOpen."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Optional

from rocmprobe.detect.stack import loader
from rocmprobe.detect.stack.libraries import Libraries
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import Tree
from rocmprobe.knowledge.stacks import rocm_of
from rocmprobe.model.results import Fact
from rocmprobe.process import children
from rocmprobe.text.tables import table

ROCM = "/opt/rocm"
#: Paths of the header since ROCm 5.2, and in older releases, which have a folder for each component.
_HIP_HEADERS = ("include/hip/hip_version.h", "hip/include/hip/hip_version.h")
_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
#: A file name such as "libamdhip64.so.6.2.41134", or "libamdhip64.so.5.2.21153-0" with a build number.
_HIP_FILE = re.compile(r"libamdhip64\.so\.([0-9]+\.[0-9]+)\.[0-9]+")
_TABLE = "data/rocm_releases.toml"
_RELEASE = re.compile(r"[0-9]+\.[0-9]+")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_MIOPEN_HEADERS = ("include/miopen/version.h", "miopen/include/miopen/version.h")
#: Program that prints the version that a MIOpen library reports. It runs in a separate process, because
#: loading the library loads all of ROCm and can crash. The program uses no GPU.
_PROGRAM = (
    "import ctypes, sys\n"
    "numbers = [ctypes.c_size_t() for _ in range(3)]\n"
    "status = ctypes.CDLL(sys.argv[1]).miopenGetVersion(*map(ctypes.byref, numbers))\n"
    "if status:\n"
    "    sys.exit(f'miopenGetVersion gave status {status}')\n"
    "print('.'.join(str(number.value) for number in numbers))\n"
)
#: Timeout in seconds. Loading MIOpen from a wheel can read hundreds of megabytes from the disk.
ASK_SECONDS = 5.0


def read_facts(tree: Tree, torch: TorchBuild, libraries: Libraries) -> dict[str, Fact]:
    """Return ``rocm.version``, ``rocm.installs`` (folder -> version) and ``hip.version``.

    ``rocm.installs`` has ROCm folders below /opt, and library folders of the distribution that contain
    libamdhip64.
    """
    installs = {**_below_opt(tree), **_of_distribution(tree)}
    rocm = _rocm_version(tree, installs)
    return {
        "rocm.version": rocm,
        "rocm.installs": Fact(
            installs, f"{loader.OPT}/rocm*/.info/version and libamdhip64.so.* of a distribution"
        ),
        "hip.version": _hip_version(tree, torch, libraries),
    }


def _below_opt(tree: Tree) -> dict[str, str]:
    """Return the versions of ROCm below /opt, keyed by folder."""
    versions: dict[str, str] = {}
    for folder in loader.rocm_folders(tree):
        version = tree.text(f"{folder}/.info/version")
        if version:
            versions.setdefault(tree.real(folder), version)
    return versions


def _of_distribution(tree: Tree) -> dict[str, str]:
    versions: dict[str, str] = {}
    for folder in dict.fromkeys(loader.real(tree, folder) for folder in _SYSTEM):
        path = loader.copies(tree, folder).get("libamdhip64")
        file = loader.real(tree, path) if path else ""
        match = _HIP_FILE.match(file.rpartition("/")[2])
        # Skip links into /opt, which AMD's packages create, because these installs are already listed.
        if match and file.startswith(f"{folder}/"):
            versions[folder] = match.group(1)
    return versions


def _rocm_version(tree: Tree, installs: Mapping[str, str]) -> Fact:
    fact = tree.fact(f"{ROCM}/.info/version")
    if fact.value is not None:
        return fact
    if len(installs) == 1:
        folder, version = next(iter(installs.items()))
        if not folder.startswith(loader.OPT):
            return Fact(version, f"{folder}/libamdhip64.so.{version}.*")
        return Fact(version, f"{folder}/.info/version; {ROCM} does not lead to it")
    if installs:
        return Fact(None, f"{fact.source}; there are {', '.join(installs)}")
    return fact


def _hip_version(tree: Tree, torch: TorchBuild, libraries: Libraries) -> Fact:
    if torch.value("torch.hip"):
        return torch.facts["torch.hip"]
    header = header_version(tree, _HIP_HEADERS, "HIP_VERSION")
    runtime = libraries.chosen.get("libamdhip64")
    match = _HIP_FILE.match(runtime.path.rpartition("/")[2]) if runtime else None
    if header.value is None and runtime and match:
        return Fact(match.group().partition(".so.")[2], f"file name of {runtime.path}")
    return header


def header_version(tree: Tree, headers: tuple[str, ...], macro: str) -> Fact:
    """Return MAJOR.MINOR.PATCH from the #define lines of a header below /opt/rocm."""
    for header in headers:
        text = tree.text(f"{ROCM}/{header}") or ""
        parts = [
            re.search(rf"^\s*#\s*define\s+{macro}_{part}\s+([0-9]+)", text, re.MULTILINE)
            for part in ("MAJOR", "MINOR", "PATCH")
        ]
        if all(parts):
            return Fact(".".join(match.group(1) for match in parts if match), f"{ROCM}/{header}")
    return Fact(None, f"{ROCM}/{headers[0]}: no {macro}_MAJOR")


def read_miopen(
    tree: Tree, torch: TorchBuild, libraries: Libraries, rocm: Fact, environ: Mapping[str, str]
) -> dict[str, Fact]:
    """Return the version of the MIOpen library that torch or other programs load.

    - ``miopen.version_told``: the version that the library reports
    - ``miopen.version_expected``: the version that the torch wheel, MIOpen's header or the ROCm release
      implies
    - ``miopen.version``: the reported version, else the expected version

    ``rocm`` is the fact ``rocm.version``.
    """
    reported = _reported_version(tree, torch, libraries, environ)
    expected = _expected(tree, torch, rocm)
    return {
        "miopen.version": expected if reported.value is None else reported,
        "miopen.version_told": reported,
        "miopen.version_expected": expected,
    }


def _reported_version(
    tree: Tree, torch: TorchBuild, libraries: Libraries, environ: Mapping[str, str]
) -> Fact:
    library = libraries.chosen.get("libMIOpen")
    if library is None:
        return Fact(None, "no libMIOpen is installed")
    if not tree.own:
        return Fact(None, "not run: --root")
    source = f"miopenGetVersion of {torch.shown(library.path)}"
    ended = children.run([sys.executable, "-I", "-S", "-c", _PROGRAM, library.path], environ, ASK_SECONDS)
    match = _VERSION.fullmatch(ended.out.strip())
    if ended.failure is None and match:
        return Fact(match[0], source)
    why = [ended.failure or "no version in its output", ended.last_error]
    return Fact(None, f"{source}: {', '.join(filter(None, why))}")


def _expected(tree: Tree, torch: TorchBuild, rocm: Fact) -> Fact:
    """Return the MIOpen version that the torch wheel, MIOpen's header or the ROCm release implies."""
    # In a wheel, the library's file name has no version, so derive the version from the wheel's ROCm release.
    if "libMIOpen" in torch.bundled:
        return _of_release(_torch_release(torch), "of the torch wheel, which bundles MIOpen")
    header = header_version(tree, _MIOPEN_HEADERS, "MIOPEN_VERSION")
    if header.value is not None:
        return header
    if rocm.value is not None:
        return _of_release(rocm.value, f"in {ROCM}" if rocm.source.startswith(ROCM) else "installed")
    return header


def _torch_release(torch: TorchBuild) -> Optional[str]:
    """Return the ROCm release in a wheel's version (e.g. 5.2 of "1.13.1+rocm5.2"), else HIP's version."""
    return rocm_of(torch.value("torch.version")) or torch.value("torch.hip")


def _of_release(version: Optional[str], where: str) -> Fact:
    match = _RELEASE.match(version or "")
    if match is None:
        return Fact(None, f"the ROCm release {where} is unknown")
    rows = table("rocm_releases")["release"]
    miopen = next((row["miopen"] for row in rows if row["rocm"] == match[0]), None)
    if miopen is None:
        return Fact(None, f"{_TABLE} has no ROCm {match[0]}, the release {where}")
    return Fact(miopen, f"expected from ROCm {match[0]} {where} ({_TABLE})")
