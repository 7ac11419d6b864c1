"""ROCm installs, the copy that the loader takes, and the version of MIOpen."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from rows import every_row
from stack_trees import wheel_files

from rocmprobe.detect.stack import rocm
from rocmprobe.detect.stack.libraries import Libraries, Library
from rocmprobe.detect.stack.torch_build import TorchBuild
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact

DEBIAN = "usr/lib/x86_64-linux-gnu"


def install(build, folder, version, hip):
    build.file(f"{folder}/.info/version", f"{version}\n")
    build.file(f"{folder}/lib/libamdhip64.so.{hip}", "")
    build.link(f"{folder}/lib/libamdhip64.so", f"libamdhip64.so.{hip}")


def test_installs_below_opt_and_of_the_distribution(build):
    install(build, "opt/rocm-5.2.0", "5.2.0-65", "5.2.50200")
    install(build, "opt/rocm-6.2.0", "6.2.0-66", "6.2.60200")
    build.link("opt/rocm", "rocm-6.2.0")
    build.file(f"{DEBIAN}/libamdhip64.so.5.7.31921-0", "")
    build.link(f"{DEBIAN}/libamdhip64.so.5", "libamdhip64.so.5.7.31921-0")
    found = build.detect()
    assert found.value("rocm.installs") == {
        "/opt/rocm-5.2.0": "5.2.0-65",
        "/opt/rocm-6.2.0": "6.2.0-66",
        f"/{DEBIAN}": "5.7",
    }
    assert found.value("rocm.libraries")["libamdhip64"] == [
        "/opt/rocm-6.2.0/lib/libamdhip64.so.6.2.60200",
        "/opt/rocm-5.2.0/lib/libamdhip64.so.5.2.50200",
        f"/{DEBIAN}/libamdhip64.so.5.7.31921-0",
    ]


def test_distribution_alone(build):
    build.file(f"{DEBIAN}/libamdhip64.so.5.2.21153", "")
    build.file(f"{DEBIAN}/libMIOpen.so.1", "")
    found = build.detect()
    assert found.value("rocm.version") == "5.2"
    assert found.value("hip.version") == "5.2.21153"
    assert found.value("miopen.version") == "2.17.0"
    assert "expected from ROCm 5.2" in found.facts["miopen.version"].source


def loader(build, **environ):
    fact = build.detect(**environ).facts["rocm.loader"]
    return fact.value, fact.source


def test_order_of_the_loader(build):
    """LD_LIBRARY_PATH, then the cache, then the default folders."""
    build.file(f"{DEBIAN}/libMIOpen.so.1", "")
    assert loader(build)[0] == {"libMIOpen": f"/{DEBIAN}/libMIOpen.so.1"}
    install(build, "opt/rocm-6.2.0", "6.2.0-66", "6.2.60200")
    build.file("opt/rocm-6.2.0/lib/libMIOpen.so.1", "")
    strings = "libMIOpen.so.1\0/opt/rocm-6.2.0/lib/libMIOpen.so.1\0libc.so.6\0/lib/libc.so.6\0"
    build.file("etc/ld.so.cache", b"glibc-ld.so.cache1.1\0\0\1\2\3\0" + strings.encode())
    found, source = loader(build)
    assert found["libMIOpen"] == "/opt/rocm-6.2.0/lib/libMIOpen.so.1"
    assert source == "/etc/ld.so.cache"
    build.file("home/x/lib/libMIOpen.so.1.0", "")
    found, source = loader(build, LD_LIBRARY_PATH="/nowhere:/home/x/lib")
    assert found["libMIOpen"] == "/home/x/lib/libMIOpen.so.1.0"
    assert source == "/etc/ld.so.cache, LD_LIBRARY_PATH"


def test_configuration_stands_for_a_missing_cache(build):
    install(build, "opt/rocm-6.2.0", "6.2.0-66", "6.2.60200")
    assert loader(build)[0] is None
    build.file("etc/ld.so.conf", "# comment\ninclude ld.so.conf.d/*.conf\ninclude ld.so.conf\n")
    build.file("etc/ld.so.conf.d/rocm.conf", "/opt/rocm-6.2.0/lib # ROCm\n")
    build.file("etc/ld.so.conf.d/other.txt", f"/{DEBIAN}\n")
    found, source = loader(build)
    assert found == {"libamdhip64": "/opt/rocm-6.2.0/lib/libamdhip64.so.6.2.60200"}
    assert source == "/etc/ld.so.conf"


def test_the_newest_of_several_versions_in_a_folder(build):
    for name in ("libamdhip64.so.5.7.31921", "libamdhip64.so.6.1.40091", "libamdhip64.so.10.0.1"):
        build.file(f"{DEBIAN}/{name}", "")
    assert loader(build)[0] == {"libamdhip64": f"/{DEBIAN}/libamdhip64.so.10.0.1"}


def test_the_system_does_not_change_what_a_wheel_has(build):
    build.files(wheel_files())
    install(build, "opt/rocm", "6.2.0-66", "6.2.60200")
    found = build.detect()
    assert found.value("miopen.version_expected") == "2.17.0"
    assert found.value("hip.version").startswith("5.2.21151")


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
@every_row(
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
