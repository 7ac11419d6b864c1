"""Stand-ins for libamdhip64, librocblas and libMIOpen, compiled from ``tests/stand_in``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "stand_in"
FILES = {"hip": "libamdhip64.so.6", "rocblas": "librocblas.so.4", "miopen": "libMIOpen.so.1"}


def build(folder: Path, *flags: str) -> Path:
    """The three libraries in ``folder``, built with ``flags``; skips where nothing compiles C."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler: cc, gcc or clang")
    for part, name in FILES.items():
        command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-shared", "-fPIC", *flags]
        # With a SONAME, as the real ones, the loader knows a second copy for the first.
        subprocess.run(
            [*command, str(FOLDER / f"{part}.c"), f"-Wl,-soname,{name}", "-o", str(folder / name)], check=True
        )
    return folder


def python_without_torch(folder: Path) -> Path:
    """A Python that has what this one has, but torch: a virtual environment of links, made in ``folder``."""
    home = Path(sys.base_exec_prefix) / "bin"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = folder / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    for entry in sysconfig.get_path("purelib"), sysconfig.get_path("platlib"):
        for path in Path(entry).iterdir():
            link = site / path.name
            if not path.name.lower().startswith(("torch", "functorch")) and not link.is_symlink():
                link.symlink_to(path)
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(home / version)
    return python
