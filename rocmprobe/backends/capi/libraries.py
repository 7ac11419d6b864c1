"""Search for the files of HIP, rocBLAS and MIOpen.

The folders are searched in this order: LD_LIBRARY_PATH, ROCm installations, folders of the distribution,
the folder ``lib/`` of a torch wheel, and the ``lib/`` folders of the ROCm packages next to torch.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rocmprobe.runtimes.library_files import newest, pattern, search_path

LIBRARIES = ("libamdhip64", "librocblas", "libMIOpen")
ORIGINS = ("environment", "rocm", "distribution", "torch")
_FILE = pattern(*LIBRARIES)
_DISTRIBUTION = (
    "usr/lib/x86_64-linux-gnu", "usr/lib64/rocm/lib", "usr/lib64", "usr/lib", "usr/local/lib"
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A folder with ROCm's libraries.

    ``origin`` is one of ORIGINS, or "folder" if the user named the folder.
    """

    origin: str
    folder: str
    files: Mapping[str, str]

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in LIBRARIES if name not in self.files)


def places(
    environ: Mapping[str, str],
    root: Path = Path("/"),
    import_path: Optional[Sequence[str]] = None,
) -> list[Place]:
    """Return every place that has at least one of LIBRARIES, in search order.

    Torch's folder is searched in ``import_path``, by default ``sys.path``. Torch is not imported.
    """
    found = [_place("environment", [Path(name)]) for name in search_path(environ.get("LD_LIBRARY_PATH", ""))]
    installs = [Path(environ[name]) for name in ("ROCM_PATH", "ROCM_HOME") if environ.get(name)]
    installs += [root / "opt/rocm", *sorted((root / "opt").glob("rocm-*"), key=_version, reverse=True)]
    found += [_place("rocm", [install / "lib", install / "lib64"]) for install in installs]
    found += [_place("distribution", [root / folder]) for folder in _DISTRIBUTION]
    found += [_place("torch", folders) for folders in _torch_folders(import_path)]
    kept: list[Place] = []
    for place in found:
        real = {name: os.path.realpath(path) for name, path in place.files.items()}
        if real and all(
            real != {name: os.path.realpath(path) for name, path in other.files.items()} for other in kept
        ):
            kept.append(place)
    return kept


def place_in(folder: str) -> Place:
    """Return the place of the libraries in ``folder``, ``folder/lib`` or ``folder/lib64``."""
    at = Path(folder).absolute()
    return _place("folder", [at, at / "lib", at / "lib64"])


def choose(found: Iterable[Place], wanted: str = "") -> Optional[Place]:
    """Return the place with the fewest missing libraries, or None if there is no place.

    If ``wanted`` is given, choose only among places with this origin or folder.
    """
    fitting = [place for place in found if wanted in ("", place.origin, place.folder)]
    return min(fitting, key=lambda place: len(place.missing), default=None)


def _version(install: Path) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]{1,9}", install.name)]


def _place(origin: str, folders: Sequence[Path]) -> Place:
    files: dict[str, str] = {}
    for folder in folders:
        for library, name in newest(_names(folder), _FILE).items():
            files.setdefault(library, str(folder / name))
    return Place(origin, str(folders[0]), files)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []


def _torch_folders(import_path: Optional[Sequence[str]]) -> list[list[Path]]:
    """Return lists of folders that can contain ROCm's libraries: one list per folder of the package torch.

    Each list has ``lib/`` of torch and ``lib/`` of each ROCm package next to torch.
    """
    spec = importlib.machinery.PathFinder.find_spec(
        "torch", import_path if import_path is not None else sys.path
    )
    folders = (spec.submodule_search_locations or []) if spec else []
    found = []
    for name in folders:
        around = Path(name).parent
        shared = [around / beside / "lib" for beside in _names(around) if beside.startswith("_rocm_sdk_")]
        found.append([Path(name) / "lib", *shared])
    return found
