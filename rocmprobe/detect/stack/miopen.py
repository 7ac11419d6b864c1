"""The version of the MIOpen that torch, or a program without torch, would load: expected and reported."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Optional

from rocmprobe.detect.stack.libraries import Libraries
from rocmprobe.detect.stack.rocm import ROCM, header_version
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import Tree
from rocmprobe.knowledge.stacks import rocm_of
from rocmprobe.model.results import Fact
from rocmprobe.process import children
from rocmprobe.text.tables import table

_TABLE = "data/rocm_releases.toml"
_RELEASE = re.compile(r"[0-9]+\.[0-9]+")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
#: Headers since ROCm 5.2, and before, when each component had a folder of its own.
_HEADERS = ("include/miopen/version.h", "miopen/include/miopen/version.h")
#: Prints the version that a MIOpen library reports of itself. In a process of its own: loading the library
#: brings in the whole of ROCm, which may crash. No GPU is touched.
_PROGRAM = (
    "import ctypes, sys\n"
    "numbers = [ctypes.c_size_t() for _ in range(3)]\n"
    "status = ctypes.CDLL(sys.argv[1]).miopenGetVersion(*map(ctypes.byref, numbers))\n"
    "if status:\n"
    "    sys.exit(f'miopenGetVersion gave status {status}')\n"
    "print('.'.join(str(number.value) for number in numbers))\n"
)
#: Loading a wheel's MIOpen from a cold disk reads hundreds of megabytes.
ASK_SECONDS = 5.0


def read_facts(
    tree: Tree, torch: TorchBuild, libraries: Libraries, rocm: Fact, environ: Mapping[str, str]
) -> dict[str, Fact]:
    """``miopen.version_told`` by the library itself, ``miopen.version_expected`` from what is around it,
    and ``miopen.version``, the better of the two. ``rocm`` is the installed release."""
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
        return Fact(match.group(), source)
    last = (ended.err.strip().splitlines() or [""])[-1]
    why = ended.failure or "no version in its output"
    return Fact(None, f"{source}: {why}" + (f", {last}" if last else ""))


def _expected(tree: Tree, torch: TorchBuild, rocm: Fact) -> Fact:
    """The MIOpen that torch would load, by the files.

    A wheel brings its own library, whose name holds no version, so the release it was built for must
    answer; the headers below /opt describe only the MIOpen beside them.
    """
    if "libMIOpen" in torch.bundled:
        return _of_release(_torch_release(torch), "of the torch wheel, which bundles MIOpen")
    header = header_version(tree, _HEADERS, "MIOPEN_VERSION")
    if header.value is not None:
        return header
    if rocm.value is not None:
        return _of_release(rocm.value, f"in {ROCM}" if rocm.source.startswith(ROCM) else "installed")
    return header


def _torch_release(torch: TorchBuild) -> Optional[str]:
    """The ROCm release in a wheel's version ("1.13.1+rocm5.2"), else HIP's, which mostly equals it."""
    return rocm_of(torch.value("torch.version")) or torch.value("torch.hip")


def _of_release(version: Optional[str], where: str) -> Fact:
    """MIOpen's version by ROCm release, from the table."""
    match = _RELEASE.match(version or "")
    if match is None:
        return Fact(None, f"the ROCm release {where} is unknown")
    row = release_row(match.group())
    if row is None:
        return Fact(None, f"{_TABLE} has no ROCm {match.group()}, the release {where}")
    return Fact(row["miopen"], f"expected from ROCm {match.group()} {where} ({_TABLE})")


def release_row(release: str) -> Optional[Mapping[str, Any]]:
    """The row of the table for a ROCm MAJOR.MINOR, None for one that it lacks."""
    return _releases().get(release)


@lru_cache(maxsize=1)
def _releases() -> Mapping[str, Mapping[str, Any]]:
    return {row["rocm"]: row for row in table("rocm_releases")["release"]}
