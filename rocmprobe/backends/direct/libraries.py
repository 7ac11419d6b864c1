"""Search for the files of HIP, rocBLAS and MIOpen."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from rocmprobe.runtimes.library_files import newest, pattern, search_path
from rocmprobe.text.versions import version_numbers

LIBRARIES = ("libamdhip64", "librocblas", "libMIOpen")
_FILE = pattern(*LIBRARIES)
_DISTRIBUTION = ("usr/lib/x86_64-linux-gnu", "usr/lib64/rocm/lib", "usr/lib64", "usr/lib", "usr/local/lib")


def find_libraries(
    environ: Mapping[str, str], root: Path = Path("/"), import_path: Optional[Sequence[str]] = None
) -> dict[str, str]:
    """Return the files of one ROCm installation, keyed by library. Missing libraries have no entry.

    Prefer the libraries that PyTorch bundles, because PyTorch loads them. Otherwise search LD_LIBRARY_PATH,
    ROCm installations and folders of the distribution. If no place has all libraries, return the files of the
    first place with most of them. Torch is searched in ``import_path``, by default ``sys.path``, and not
    imported.
    """
    installs = [Path(environ[name]) for name in ("ROCM_PATH", "ROCM_HOME") if environ.get(name)]
    installs += [
        root / "opt/rocm",
        *sorted(
            (root / "opt").glob("rocm-*"), key=lambda install: version_numbers(install.name), reverse=True
        ),
    ]
    places = [
        *_torch_folders(import_path),
        *([Path(name)] for name in search_path(environ.get("LD_LIBRARY_PATH", ""))),
        *([install / "lib", install / "lib64"] for install in installs),
        *([root / folder] for folder in _DISTRIBUTION),
    ]
    return max(map(_files, places), key=len)


def _files(folders: Sequence[Path]) -> dict[str, str]:
    files: dict[str, str] = {}
    for folder in folders:
        for library, name in newest(_names(folder), _FILE).items():
            files.setdefault(library, str(folder / name))
    return files


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
    places = []
    for name in folders:
        around = Path(name).parent
        shared = [around / beside / "lib" for beside in _names(around) if beside.startswith("_rocm_sdk_")]
        places.append([Path(name) / "lib", *shared])
    return places
