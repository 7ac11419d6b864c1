"""Targets from fat binaries and from the names of Tensile files."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_trees import Build
from stack_trees import bundle, elf, torch_hip
from tiers import examples

from rocmprobe.detect.stack import elf as elf_reader
from rocmprobe.detect.stack.code_objects import fat_binary_targets, tensile_targets
from rocmprobe.detect.tree import ReadError, Tree

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"


def targets(build, content):
    build.file("lib.so", content)
    return fat_binary_targets(Tree(build.root), "/lib.so", "lib.so").value


def test_targets_of_every_bundle_are_joined_in_the_order_of_chips(build):
    content = torch_hip(bundle(["gfx1030", "gfx90a:xnack+"], 5000), bundle(["gfx900", "gfx10-1-generic"]))
    assert targets(build, content) == ["gfx900", "gfx90a:xnack+", "gfx1030", "gfx10-1-generic"]


def test_bundles_of_old_compilers(build):
    assert targets(build, torch_hip(bundle(["gfx803"], kind="hip-amdgcn-amd-amdhsa-"))) == ["gfx803"]


def test_a_library_of_gigabytes_is_read_in_part(build, monkeypatch):
    path = build.file("lib.so", torch_hip(bundle(["gfx1030"])))
    data = bytearray(path.read_bytes())
    (table,) = struct.unpack_from("<Q", data, 40)
    with path.open("r+b") as file:
        # The section table of a linked library comes last, behind gigabytes of code.
        file.seek(3 << 30)
        file.write(data[table:])
        file.seek(40)
        file.write(struct.pack("<Q", 3 << 30))
    read = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *arguments: read.append(arguments[1]) or pread(*arguments))
    assert fat_binary_targets(Tree(build.root), "/lib.so", "lib.so").value == ["gfx1030"]
    assert sum(read) < 1 << 20


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "truncated ELF file"),
        (b"x" * 100, "not a 64-bit ELF file"),
        (b"\x7fELF\x02\x01", "truncated ELF file"),
        (elf(), "no section .hip_fatbin"),
        (torch_hip(b"CCOB" + b"\0" * 100), "compressed"),
        (torch_hip(b"\0" * 100), "no target"),
        (torch_hip(bundle(["gfx1030"])[:60]), "no target"),
        (elf([(".hip_fatbin", b"x")])[:200], "truncated ELF file"),
    ],
)
def test_files_without_readable_targets(build, content, why):
    with pytest.raises(ReadError, match=why):
        targets(build, content)


def test_missing_and_special_files(build):
    tree = Tree(build.root)
    build.root.mkdir()
    os.mkfifo(build.root / "pipe")
    build.link("loop", "loop")
    for name, why in (("/nothing", "no such file"), ("/pipe", "not a file"), ("/loop", "symbolic links")):
        with pytest.raises(ReadError, match=why):
            fat_binary_targets(tree, name, name)


WHOLE = torch_hip(bundle(["gfx1030"]), needed=["libMIOpen.so.1"], runpath="$ORIGIN")


@given(
    place=st.integers(0, len(WHOLE) - 8),
    noise=st.binary(min_size=1, max_size=8),
    end=st.integers(0, len(WHOLE)),
)
@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
def test_damaged_libraries_raise_nothing_else(tmp_path_factory, place, noise, end):
    build = Build(tmp_path_factory.mktemp("any"))
    build.file("lib.so", (WHOLE[:place] + noise + WHOLE[place + len(noise) :])[: max(end, place)])
    tree = Tree(build.root)
    with suppress(ReadError):
        fat_binary_targets(tree, "/lib.so", "lib.so")
    with suppress(ReadError), tree.opened("/lib.so") as handle:
        elf_reader.read_links(handle)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        # ROCm before 5.2: one index for all, so every kernel file counts.
        (
            ["TensileLibrary.dat", "TensileLibrary_gfx900.co", "Kernels.so-000-gfx1010.hsaco"],
            ["gfx900", "gfx1010"],
        ),
        # 5.2 and later: an index for each target; kernels alone, as gfx1010 had from 5.3 to 6.0, do not help.
        (
            ["TensileLibrary_gfx1030.dat", "TensileLibrary_gfx1030.co", "Kernels.so-000-gfx1010.hsaco"],
            ["gfx1030"],
        ),
        (["TensileLibrary_lazy_gfx1030.dat", "TensileLibrary_Type_HH_fallback_gfx1010.hsaco"], ["gfx1030"]),
        (["Kernels.so-000-gfx90a-xnack+.hsaco", "Kernels.so-000-gfx90a-xnack-.hsaco"], ["gfx90a"]),
        (["README", "gfx", "TensileLibrary.yaml"], []),
    ],
)
def test_tensile_targets(names, expected):
    assert tensile_targets(names) == expected


def recorded(*parts):
    path = FIXTURES.joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"{'/'.join(parts)} is not on this machine")
    return path.read_text()


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        (
            "librocblas0_5.5.1+dfsg-7_amd64",
            "gfx803 gfx900 gfx906 gfx908 gfx90a gfx1010 gfx1030 gfx1100 gfx1101 gfx1102",
        ),
        (
            "librocblas4_6.4.4-4_amd64",
            "gfx803 gfx900 gfx906 gfx908 gfx90a gfx1010 gfx1030 gfx1100 gfx1101 gfx1102",
        ),
    ],
)
def test_rocblas_packages_of_debian(build, package, expected):
    """The whole package as files: the loader's choice, Debian's folder with a version, the targets."""
    for line in recorded("lib-listings-debian", f"{package}.dpkg-c.txt").splitlines():
        mode, *_, name = line.split(" -> ")[0].split()
        if mode.startswith("-"):
            build.file(name, "")
        if mode.startswith("l"):
            build.link(name, line.split(" -> ")[1])
    found = build.detect()
    assert found.value("rocblas.targets") == expected.split()
    assert found.value("rocblas.path").startswith("/usr/lib/x86_64-linux-gnu/rocblas/")
    assert list(found.value("rocm.loader")) == ["librocblas"]
