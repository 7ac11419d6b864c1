"""Installed packages of ROCm, the driver and the firmware."""

from __future__ import annotations

import re
from typing import Optional

from rocmprobe.detect.tree import ReadError, Tree
from rocmprobe.model.results import Fact

DPKG = "/var/lib/dpkg/status"
PACMAN = "/var/lib/pacman/local"
#: Folders of rpm's database. The database is binary, so the names of packages are read from ``_RPM_NAMES``.
_RPM = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
_RPM_NAMES = ("/usr/share/licenses", "/usr/share/doc")
DKMS = "/var/lib/dkms/amdgpu"
#: Largest number of bytes that are read. On a desktop with many packages, dpkg's file has ten megabytes.
_LIMIT = 16 << 20
_MOST = 300
_OURS = (
    r"(?:lib|python3-)?(?:rocm|rocr|rocblas|rocsolver|rocsparse|rocfft|rocrand|rocalution|rocprim|rocthrust|rocwmma"
    r"|rocprof|roctracer|rocminfo|rccl|miopen|migraphx|composable-?kernel|hsakmt|hsa-|amd-?comgr|comgr|amdhip|amd-?smi"
    r"|hip(?:blas|cc|cub|dnn|fft|ify|rand|runtime|solver|sparse|tensor|-))[\w.+-]*"
    r"|hip|amdgpu[\w.+-]*|libdrm-amdgpu[\w.+-]*|linux-firmware[\w.+-]*|firmware-amd-graphics|xserver-xorg-video-amdgpu"
    r"|python3?-pytorch[\w.+-]*|python3-torch[\w.+-]*"
)
_NAME = re.compile(_OURS)
#: Start of a package's entry. A search is much faster if the pattern begins with "\n" instead of "^".
_STANZA = re.compile(rf"\nPackage: ({_OURS})(?=\n)")
_INSTALLED = re.compile(r"^Status: \S+ \S+ installed$", re.MULTILINE)
_VERSION = re.compile(r"^Version: (\S{1,200})$", re.MULTILINE)
_PACMAN_NAME = re.compile(r"(.+?)-([^-]+-[^-]+)")


def read_facts(tree: Tree) -> dict[str, Fact]:
    """Return the facts ``packages`` and ``amdgpu.dkms``.

    - ``packages``: name -> version, or None if the version is unknown
    - ``amdgpu.dkms``: versions of amdgpu that DKMS lists, built or not
    """
    versions = [name for name in tree.names(DKMS) if name[:1].isdigit()]
    dkms = Fact(versions, DKMS) if versions else Fact(None, tree.why_not(DKMS))
    return {"packages": _packages(tree), "amdgpu.dkms": dkms}


def _packages(tree: Tree) -> Fact:
    try:
        return Fact(_dpkg(tree.read(DPKG, limit=_LIMIT)), DPKG)
    except ReadError as error:
        why = f"{DPKG}: {error}"
    installed = tree.names(PACMAN)
    if installed:
        return Fact(_pacman(installed), PACMAN)
    if any(tree.names(folder) for folder in _RPM):
        return Fact(_rpm(tree), f"names alone, from {' and '.join(_RPM_NAMES)}")
    return Fact(None, f"{why}; {tree.why_not(PACMAN)}; no database of rpm")


def _dpkg(text: str) -> dict[str, Optional[str]]:
    """Parse dpkg's status file (format: deb-control(5))."""
    versions: dict[str, Optional[str]] = {}
    text = "\n" + text
    for match in _STANZA.finditer(text):
        end = text.find("\n\n", match.end())
        stanza = text[match.start() : end if end >= 0 else len(text)]
        version = _VERSION.search(stanza)
        if version and _INSTALLED.search(stanza) and len(versions) < _MOST:
            versions[match.group(1)] = version.group(1)
    return versions


def _pacman(folders: list[str]) -> dict[str, Optional[str]]:
    matches = (_PACMAN_NAME.fullmatch(folder) for folder in folders)
    versions = [
        (match.group(1), match.group(2)) for match in matches if match and _NAME.fullmatch(match.group(1))
    ]
    return dict(versions[:_MOST])


def _rpm(tree: Tree) -> dict[str, Optional[str]]:
    names = sorted({name for folder in _RPM_NAMES for name in tree.names(folder) if _NAME.fullmatch(name)})
    return dict.fromkeys(names[:_MOST])
