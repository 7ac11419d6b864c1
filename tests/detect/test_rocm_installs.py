"""ROCm installs, the copy that the loader takes, and the version of MIOpen."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from machine_trees import tree
from stack_trees import wheel_files

from rocmprobe.detect.stack import rocm
from rocmprobe.detect.stack.libraries import Libraries, Library
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact

DEBIAN = "usr/lib/x86_64-linux-gnu"


def install(folder, version, hip):
    return {
        f"{folder}/.info/version": f"{version}\n", f"{folder}/lib/libamdhip64.so.{hip}": "",
        f"{folder}/lib/libamdhip64.so": f"-> libamdhip64.so.{hip}",
    }  # fmt: skip


NEW = install("opt/rocm-6.2.0", "6.2.0-66", "6.2.60200")
OF_NEW = {"libamdhip64": "/opt/rocm-6.2.0/lib/libamdhip64.so.6.2.60200"}
OF_DEBIAN = {f"{DEBIAN}/libMIOpen.so.1": ""}
CACHED = {
    **NEW, **OF_DEBIAN, "opt/rocm-6.2.0/lib/libMIOpen.so.1": "",
    "etc/ld.so.cache": b"glibc-ld.so.cache1.1\0\0\1\2\3\0libMIOpen.so.1\0"
    b"/opt/rocm-6.2.0/lib/libMIOpen.so.1\0libc.so.6\0/lib/libc.so.6\0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "environ", "facts", "sources"),
    [
        tree("installs below /opt and of the distribution",
             {**install("opt/rocm-5.2.0", "5.2.0-65", "5.2.50200"), **NEW, "opt/rocm": "-> rocm-6.2.0",
              f"{DEBIAN}/libamdhip64.so.5.7.31921-0": "",
              f"{DEBIAN}/libamdhip64.so.5": "-> libamdhip64.so.5.7.31921-0"},
             {"rocm.installs": {"/opt/rocm-5.2.0": "5.2.0-65", "/opt/rocm-6.2.0": "6.2.0-66",
                                f"/{DEBIAN}": "5.7"},
              "rocm.libraries": {"libamdhip64": [
                  "/opt/rocm-6.2.0/lib/libamdhip64.so.6.2.60200",
                  "/opt/rocm-5.2.0/lib/libamdhip64.so.5.2.50200",
                  f"/{DEBIAN}/libamdhip64.so.5.7.31921-0"]}}),
        tree("the distribution only", {**OF_DEBIAN, f"{DEBIAN}/libamdhip64.so.5.2.21153": ""},
             {"rocm.version": "5.2", "hip.version": "5.2.21153", "miopen.version": "2.17.0"},
             {"miopen.version": "expected from ROCm 5.2"}),
        # LD_LIBRARY_PATH, then the cache, then the default folders.
        tree("the loader: a default folder", OF_DEBIAN,
             {"rocm.loader": {"libMIOpen": f"/{DEBIAN}/libMIOpen.so.1"}}),
        tree("the loader: the cache", CACHED,
             {"rocm.loader": {"libMIOpen": "/opt/rocm-6.2.0/lib/libMIOpen.so.1", **OF_NEW}},
             {"rocm.loader": "/etc/ld.so.cache"}),
        tree("the loader: LD_LIBRARY_PATH", {**CACHED, "home/x/lib/libMIOpen.so.1.0": ""},
             {"rocm.loader": {"libMIOpen": "/home/x/lib/libMIOpen.so.1.0", **OF_NEW}},
             {"rocm.loader": "/etc/ld.so.cache, LD_LIBRARY_PATH"}, LD_LIBRARY_PATH="/nowhere:/home/x/lib"),
        tree("the loader: outside of its folders", NEW, {"rocm.loader": None}),
        tree("the configuration of the loader, without a cache",
             {**NEW, "etc/ld.so.conf": "# comment\ninclude ld.so.conf.d/*.conf\ninclude ld.so.conf\n",
              "etc/ld.so.conf.d/rocm.conf": "/opt/rocm-6.2.0/lib # ROCm\n",
              "etc/ld.so.conf.d/other.txt": f"/{DEBIAN}\n"},
             {"rocm.loader": OF_NEW}, {"rocm.loader": "/etc/ld.so.conf"}),
        tree("the newest version in a folder",
             {f"{DEBIAN}/libamdhip64.so.{version}": "" for version in ("5.7.31921", "6.1.40091", "10.0.1")},
             {"rocm.loader": {"libamdhip64": f"/{DEBIAN}/libamdhip64.so.10.0.1"}}),
        tree("a wheel keeps its own versions",
             {**wheel_files(), **install("opt/rocm", "6.2.0-66", "6.2.60200")},
             {"miopen.version_expected": "2.17.0", "hip.version": "5.2.21151-afdc89f8"}),
    ],
)  # fmt: skip
def test_installs_and_the_loader(build, files, environ, facts, sources):
    build.check(files, environ, facts, sources)


def told(library, seconds=None, monkeypatch=None):
    if seconds:
        monkeypatch.setattr(rocm, "ASK_SECONDS", seconds)
    libraries = Libraries({"libMIOpen": Library(str(library), "test")})
    torch = TorchBuild(None, {})
    return rocm.read_miopen(Tree(Path("/")), torch, libraries, Fact("6.4.1"), os.environ)


def test_a_library_that_cannot_be_loaded_costs_only_its_answer(tmp_path):
    (tmp_path / "libMIOpen.so.1").write_bytes(b"not a library")
    facts = told(tmp_path / "libMIOpen.so.1")
    assert facts["miopen.version_told"].value is None
    assert "exit status 1, OSError" in facts["miopen.version_told"].source
    assert facts["miopen.version"].value == "3.4.0"


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler to build a stand-in of the library with")
@pytest.mark.parametrize(
    ("body", "version", "why"),
    [
        ("*major = 3; *minor = 5; *patch = 1; return 0;", "3.5.1", "miopenGetVersion of"),
        ("return 7;", None, "miopenGetVersion gave status 7"),
        ("abort();", None, "SIGABRT"),
        ('for (;;) puts("noise");', None, "no answer in 0.5 s"),
    ],
)
def test_what_the_library_tells(tmp_path, monkeypatch, body, version, why):
    source = tmp_path / "miopen.c"
    arguments = "size_t *major, size_t *minor, size_t *patch"
    source.write_text(
        f"#include <stdio.h>\n#include <stdlib.h>\nint miopenGetVersion({arguments}) {{ {body} }}\n"
    )
    library = tmp_path / "libMIOpen.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    # The endless one must not need the whole budget; the others get what a busy machine needs.
    facts = told(library, 0.5 if "for" in body else 60.0, monkeypatch)
    assert facts["miopen.version_told"].value == version
    assert why in facts["miopen.version_told"].source
    assert facts["miopen.version"].value == (version or "3.4.0")
