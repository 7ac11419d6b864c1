"""Libraries of the GPU runtime that this process has loaded, and the runtime's kernel compiler.

This module never loads a second copy of a runtime. Two copies would share no devices, streams or memory.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from rocmprobe.runtimes.calls import LoadFailed, load
from rocmprobe.runtimes.library_files import pattern

HIP, HIPRTC = "libamdhip64", "libhiprtc"
_MAPS = "/proc/self/maps"
_DELETED = " (deleted)"


class NotLoaded(Exception):
    """This process has not loaded a library, or has loaded several copies."""


def mapped(libraries: Iterable[str], maps: str = _MAPS) -> dict[str, list[str]]:
    """Return the loaded files of each library (e.g. "libamdhip64"), keyed by library, in address order.

    ``maps`` is a file in the format of /proc/PID/maps. Return {} if the file does not exist.
    """
    try:
        text = Path(maps).read_text("utf-8", "replace")
    except OSError:
        return {}
    wanted = pattern(*libraries)
    paths: dict[str, list[str]] = {}
    for line in text.split("\n"):
        fields = line.split(maxsplit=5)
        if len(fields) < 6:
            continue
        path = fields[5]
        if path.endswith(_DELETED):
            path = path[: -len(_DELETED)]
        match = wanted.fullmatch(path.rpartition("/")[2])
        if match and path not in paths.setdefault(match[1], []):
            paths[match[1]].append(path)
    return paths


def hip(maps: str = _MAPS) -> str:
    """Return the loaded file of the HIP runtime. Raises NotLoaded if there is no file, or more than one."""
    files = mapped((HIP,), maps).get(HIP, [])
    if len(files) > 1:
        raise NotLoaded(f"this process has {len(files)} copies of {HIP}: {', '.join(files)}")
    if not files:
        raise NotLoaded(f"this process has not loaded {HIP}")
    return files[0]


def hiprtc(maps: str = _MAPS) -> str:
    """Return the file with the ``hiprtc`` functions for the loaded HIP runtime.

    The file is the first of these that exists:

    - the loaded libhiprtc
    - the libhiprtc of the same major version in the runtime's folder
    - the HIP runtime, which contains the functions in ROCm 6 and older

    Raises NotLoaded if this process has not loaded exactly one HIP runtime.
    """
    # libhiprtc may not be loaded yet, because torch loads it on first use. The file is in ``torch/lib``
    # (since ROCm 5.4) or in ``_rocm_sdk_core/lib``.
    runtime = hip(maps)
    files = mapped((HIPRTC,), maps).get(HIPRTC, [])
    return files[0] if files else _beside(Path(runtime), HIPRTC) or runtime


def require_resident(path: str) -> None:
    """Raise NotLoaded if the file ``path`` is not loaded, or was replaced after loading.

    On Windows, always raise NotLoaded.
    """
    if not hasattr(os, "RTLD_NOLOAD"):
        raise NotLoaded(f"on {sys.platform}, rocmprobe cannot check whether {path} is loaded")
    try:
        load(path, os.RTLD_NOLOAD)
    except LoadFailed as failure:
        raise NotLoaded(f"{path} was replaced after it was loaded: {failure}") from None


def _beside(runtime: Path, library: str) -> Optional[str]:
    major = _version(runtime)[:1]
    wanted = pattern(library)
    try:
        paths = [path for path in runtime.parent.iterdir() if wanted.fullmatch(path.name)]
    except OSError:
        return None
    versions = {path: _version(path) for path in paths}
    # Also accept names without a version, because the names of libraries in wheels have no version.
    fitting = [path for path in paths if not major or versions[path][:1] in ([], major)]
    return str(max(fitting, key=lambda path: (versions[path], path.name))) if fitting else None


def _version(path: Path) -> list[int]:
    name = os.path.basename(os.path.realpath(path))
    return [int(number) for number in re.findall(r"[0-9]{1,9}", name.partition(".so")[2])]
