"""The kernels' source, compiled by g++ and run on the CPU: whether the sums are right needs no GPU. The
addresses are those of ordinary memory."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocmprobe.kernels.launches import Launch

_SHIM = Path(__file__).with_name("cpu.cpp")
_BUILT: dict[str, ctypes.CDLL] = {}
_FOLDER = tempfile.TemporaryDirectory(prefix="kernels-on-cpu-")


def built(source: str, *options: str) -> ctypes.CDLL:
    """The source as a library of this process; skips the test where there is no C++ compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ here")
    key = hashlib.sha256("\0".join((source, *options)).encode()).hexdigest()
    if key not in _BUILT:
        file, target = Path(_FOLDER.name, f"{key}.cpp"), Path(_FOLDER.name, f"{key}.so")
        file.write_text(source, "utf-8")
        command = [
            compiler, "-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-DON_CPU", *options,
            str(file), str(_SHIM), "-o", str(target),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        _BUILT[key] = ctypes.CDLL(str(target))
    return _BUILT[key]


def run(library: ctypes.CDLL, launches: list[Launch], addresses: Mapping[str, int], seed: int = 1) -> None:
    """Run the launches, one after another."""
    for launch in launches:
        arguments = launch.filled(addresses)
        grid = (ctypes.c_int * 3)(*launch.grid)
        kernel = ctypes.cast(getattr(library, launch.kernel), ctypes.c_void_p)
        uneven = library.cpu_launch(
            kernel, grid, launch.threads, ctypes.byref(arguments), ctypes.c_uint64(seed)
        )
        assert not uneven, (
            f"{launch.kernel}: some threads of a block wait at a barrier that others never reach"
        )
