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


#: What runs kernels on the CPU, and what the kernels' own source needs there.
_CPU_SOURCE = Path(__file__).parent / "kernels" / "cpu.cpp"


def hip_with_modules(folder: Path) -> Path:
    """A libamdhip64 that compiles kernels, too (with hiprtc in itself, as in ROCm 5.2), and runs them on the
    CPU; skips where there is no g++."""
    compiler = shutil.which("g++")
    if compiler is None or not shutil.which("nm"):
        pytest.skip("no g++ and nm here")
    common = ["-D_GNU_SOURCE", "-O1", "-Wall", "-Wno-unused-function", "-fPIC"]
    c_part, target = folder / "hip.o", folder / FILES["hip"]
    subprocess.run(
        [compiler, "-x", "c", "-std=c11", *common, "-c", str(FOLDER / "hip.c"), "-o", str(c_part)], check=True
    )
    subprocess.run(
        [
            compiler, "-std=c++17", *common, f'-DCPU_SOURCE="{_CPU_SOURCE}"', "-shared",
            str(FOLDER / "modules.cpp"), str(c_part), "-ldl", f"-Wl,-soname,{FILES['hip']}",
            "-o", str(target),
        ],
        check=True,
    )  # fmt: skip
    c_part.unlink()
    return target


def kfd_nodes(folder: Path, *versions: int) -> Path:
    """KFD's nodes for a processor and GPUs of these ``gfx_target_version``, at the PCI addresses that the
    stand-in gives its devices."""
    for number, version in enumerate((0, *versions)):
        node = folder / str(number)
        node.mkdir(parents=True)
        place = (2 + number) << 8
        node.joinpath("properties").write_text(
            f"cpu_cores_count {0 if version else 8}\nsimd_count {80 if version else 0}\nsimd_per_cu 2\n"
            f"gfx_target_version {version}\nlocation_id {place if version else 0}\ndomain 0\n"
        )
    return folder


def gpu_environment(library: Path, nodes: Path, isa: str) -> dict[str, str]:
    """The variables of a process that has ``library`` (of :func:`hip_with_modules`) as its HIP runtime and
    sees ``nodes`` (of :func:`kfd_nodes`); ``isa`` is what the runtime calls its GPUs. Tensors of the CPU have
    addresses that its kernels take."""
    return {"LD_PRELOAD": str(library), "LC_STAND_IN_KFD": str(nodes), "LC_STAND_IN_ISA": isa}


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
    has_torch = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"
    if subprocess.run([python, "-c", has_torch], check=False).returncode:
        pytest.skip("this environment has its torch from another one, by a .pth file")
    return python
