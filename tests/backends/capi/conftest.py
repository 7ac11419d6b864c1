"""The stand-in libraries, compiled once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "stand_in.c"
FILES = {"HIP": "libamdhip64.so.6", "ROCBLAS": "librocblas.so.4", "MIOPEN": "libMIOpen.so.1"}


def build(folder, *flags):
    """The three libraries in ``folder``, built with ``flags``; skips where nothing compiles C."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler: cc, gcc or clang")
    for part, name in FILES.items():
        command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", f"-D{part}", *flags]
        subprocess.run([*command, str(SOURCE), "-o", str(folder / name)], check=True)
    return folder


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory):
    return build(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture(scope="session")
def old_stand_in(tmp_path_factory):
    """No Find 2.0 and the old properties, as before ROCm 5.4, and no immediate mode."""
    flags = ("-DOLD_PROPERTIES", "-DWITHOUT_FIND2", "-DWITHOUT_IMMEDIATE")
    return build(tmp_path_factory.mktemp("old-stand-in"), *flags)
