"""MIOpen's databases by GPU, the folders that MIOpen writes into, and caches of compiled kernels."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_trees import RX_5600_XT, Build, tree
from stack_trees import TORCH, wheel_files

from rocmprobe.judge.findings.machine import machine_findings
from rocmprobe.knowledge.miopen_files import database_name, user_file
from rocmprobe.model.results import Finding

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
DB = "opt/rocm/share/miopen/db"


@pytest.mark.parametrize(
    ("isa", "cus", "name"),
    [
        ("gfx1010", 36, "gfx1010_18"),
        ("gfx1030", 72, "gfx1030_36"),
        ("gfx900", 64, "gfx900_64"),
        ("gfx908", 120, "gfx90878"),
        ("gfx90a", 104, "gfx90a68"),
        ("gfx942", 304, "gfx942130"),
    ],
)
def test_names_of_databases(isa, cus, name):
    assert database_name(isa, cus) == name


MIOPEN = {"opt/rocm/lib/libMIOpen.so.1": "", "etc/ld.so.conf": "/opt/rocm/lib\n"}
MOUNTS = (
    "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\ntmpfs /home/x/.cac tmpfs rw 0 0\nshort\n"
    "tmpfs /my\\040disk tmpfs rw 0 0\n"
)
ON_NFS = {"exists": True, "writable": True, "filesystem": "nfs4", "network": True}


def databases(*names):
    return {**MIOPEN, **{f"{DB}/{name}": "" for name in names}}


@pytest.mark.parametrize(
    ("files", "environ", "facts", "sources"),
    [
        tree("each GPU by its native and effective ISA",
             databases("gfx1030_36.HIP.fdb.txt", "gfx1030_20.HIP.fdb.txt", "gfx1030_36.db.txt", "gfx1030.kdb",
                       "gfx900_18.HIP.fdb.txt"),
             {"miopen.db_path": "/opt/rocm/share/miopen/db",
              "miopen.find_db": {"gfx1010_18": None, "gfx1030_18": "gfx1030_20.HIP.fdb.txt"},
              "miopen.perf_db": {"gfx1010_18": None, "gfx1030_18": "gfx1030_36.db.txt"},
              "miopen.kernel_db": {"gfx1010_18": None, "gfx1030_18": "gfx1030.kdb"}},
             HSA_OVERRIDE_GFX_VERSION="10.3.0"),
        tree("the file with the exact number comes first", databases("gfx1010.kdb", "gfx1010_18.kdb"),
             {"miopen.kernel_db": {"gfx1010_18": "gfx1010_18.kdb"}}),
        tree("kernels of another size", databases("gfx1010_20.kdb"),
             {"miopen.kernel_db": {"gfx1010_18": None}}),
        tree("a wheel with databases",
             {**wheel_files("2.1.2+rocm5.6", "5.6.31061-8c743ae5d"),
              f"{TORCH}/share/miopen/db/gfx1030_36.HIP.fdb.txt": ""},
             {"miopen.db_path": "torch/share/miopen/db", "miopen.find_db": {"gfx1010_18": None}}),
        tree("a wheel with databases inside the library", wheel_files(), {"miopen.find_db": None},
             {"miopen.find_db": "torch/share/miopen/db: no databases; wheels for ROCm 4.2 to 5.4 have "
              "databases inside the library"}),
        tree("the path from the environment", {"data/db/gfx1010_18.HIP.fdb.txt": ""},
             {"miopen.find_db": {"gfx1010_18": "gfx1010_18.HIP.fdb.txt"}},
             {"miopen.db_path": "MIOPEN_SYSTEM_DB_PATH"}, MIOPEN_SYSTEM_DB_PATH="/data/db"),
        tree("no MIOpen", {}, {}, {"miopen.find_db": "no libMIOpen is installed",
                                   "miopen.user_db": "not looked up: --root"}),
        tree("folders of the user",
             {"home/x/.config/miopen/gfx1030_18.HIP.3_4_0_.ufdb.txt": "12345",
              "home/x/.cache/miopen/3.4.0./gfx1030_18.ukdb": "123",
              "home/x/.cache/miopen/3.4.0./gfx1010_18.ukdb": "4567", "proc/mounts": MOUNTS},
             {"miopen.user_db": {"path": "~/.config/miopen", "files": 1, "bytes": 5, **ON_NFS},
              "miopen.kernel_cache": {"path": "~/.cache/miopen", "files": 2, "bytes": 7, **ON_NFS}},
             HOME="/home/x"),
        tree("folders from the environment",
             {"proc/mounts": MOUNTS, "my disk/other": "", "home/x/cache/3.4.0./gfx1010_18.ukdb": "4567"},
             {"miopen.user_db": {"path": "/my disk/db", "files": 0, "bytes": 0, "exists": False,
                                 "writable": True, "filesystem": "tmpfs", "network": False},
              "miopen.kernel_cache": {"path": "~/cache", "files": 1, "bytes": 4, **ON_NFS}},
             {"miopen.user_db": "MIOPEN_USER_DB_PATH"}, HOME="/home/x", MIOPEN_USER_DB_PATH="/my disk/db",
             MIOPEN_CUSTOM_CACHE_DIR="~/cache"),
    ],
)  # fmt: skip
def test_databases_and_folders(build, files, environ, facts, sources):
    build.rx_5600_xt()
    build.check(files, environ, facts, sources)


def test_databases_without_a_gpu(build):
    build.files(databases("gfx1030_36.HIP.fdb.txt"))
    source = build.detect().facts["miopen.find_db"].source
    assert source == "no AMD GPU with known ISA and number of compute units"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(build):
    folder = build.file("home/x/.config/miopen/db", "").parent
    folder.chmod(0o500)
    assert build.detect(HOME="/home/x").value("miopen.user_db")["writable"] is False


RELEASES = sorted((FIXTURES / "miopen-db-by-release").glob("rocm-*.lst"))


@pytest.mark.skipif(
    not RELEASES, reason="the recorded file names of MIOpen's releases are not on this machine"
)
def test_databases_of_every_recorded_release(build):
    """No release has one for gfx101x; a gfx1030 of any size gets that of 36 from ROCm 4.3 on."""
    build.node(1, RX_5600_XT)
    build.node(2, {**RX_5600_XT, "gfx_target_version": 100300, "location_id": 0x0C00})
    build.files(MIOPEN)
    for listing in RELEASES:
        build.file(f"{DB}/README", "")
        for old in (build.root / DB).iterdir():
            old.unlink()
        for name in listing.read_text().split():
            build.file(f"{DB}/{re.sub('[.](bz2|zip)$', '', name)}", "")
        release = tuple(int(number) for number in re.findall("[0-9]+", listing.stem))
        with_gfx1030 = "gfx1030_36.HIP.fdb.txt" if release >= (4, 3) else None
        found = build.detect()
        assert found.value("miopen.find_db") == {"gfx1010_18": None, "gfx1030_18": with_gfx1030}, listing.name


HOME = "home/x"
BUFFERS = (
    "%1 = call <4 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v4i32(ptr addrspace(8) %0, i32 0, i32 0, i32 0)"
)
GENERATED = (
    "@triton_heuristics.pointwise(triton_meta={'device': DeviceProperties(type='hip', index=0, "
    "multi_processor_count=18, cc='gfx1030', major=10, warp_size=32)})\n"
)


def kernel(build: Build, folder: str, target: object, version: str = "3.2.0", llvm: str = "") -> None:
    """A kernel in a cache of Triton."""
    place = f"{folder}/{abs(hash(str(target))):x}{version}"
    build.file(f"{place}/__grp__add.json", "{}")
    build.file(f"{place}/add.json", json.dumps({"target": target, "triton_version": version, "num_warps": 4}))
    build.file(f"{place}/add.llir", llvm)
    build.file(f"{place}/add.hsaco", b"\x7fELF")


def hip(arch: str) -> dict[str, object]:
    return {"backend": "hip", "arch": arch, "warp_size": 32}


def findings(build: Build, **environ: str) -> dict[str, Finding]:
    machine = build.detect(HOME="/home/x", USER="x", **environ)
    assert not [name for name in machine.facts if name.startswith("errors.")]
    return {each.id: each for each in machine_findings(machine) if each.id.startswith("caches-")}


def test_own_caches_are_no_finding(build: Build) -> None:
    build.rx_5600_xt()
    assert findings(build) == {}
    kernel(build, f"{HOME}/.triton/cache", hip("gfx1010"))
    kernel(build, f"{HOME}/.triton/cache", {"backend": "cuda", "arch": 86, "warp_size": 32})
    build.file(f"{HOME}/.config/miopen/gfx1010_18.HIP.3_4_0_.ufdb.txt", "")
    build.file(f"{HOME}/.triton/cache/broken/add.json", "[" * 5000)
    assert findings(build) == {}
    assert build.detect(HOME="/home/x").value("caches.triton") == {
        "path": "~/.triton/cache", "kernels": 1, "isas": {"gfx1010": 1}, "versions": {"3.2.0": 1},
        "buffer_ops": 0, "complete": True,
    }  # fmt: skip
    assert build.detect().facts["caches.triton"].source == "not looked up: --root"


def test_kernels_of_another_chip_or_version(build: Build) -> None:
    build.rx_5600_xt()
    # Before Triton 3.0 the target was a list.
    kernel(build, f"{HOME}/.triton/cache", ["hip", "gfx1030", 32])
    found = findings(build)["caches-triton"]
    assert (found.severity, found.cause) == ("info", "benign-warning")
    assert found.title == "Triton's cache has kernels that were made for another chip (gfx1030)"
    assert "`mv ~/.triton/cache ~/.triton/cache-$(date +%F)`" in found.advice

    build.files(wheel_files(hip="6.4.0"))
    build.file(f"{site(build)}/pytorch_triton_rocm-3.4.0+git1.dist-info/METADATA", "")
    kernel(build, "my cache", hip("gfx1010"), version="3.1.0")
    found = findings(build, TRITON_CACHE_DIR="/my cache")["caches-triton"]
    assert "by another Triton (3.1.0)" in found.title
    assert "Triton 3.4.0" in found.evidence[1]
    assert "`mv '/my cache' '/my cache'-$(date +%F)`" in found.advice


def site(build: Build) -> str:
    (torch,) = build.root.rglob("torch/version.py")
    return str(torch.parent.parent.relative_to(build.root))


def test_kernels_with_buffer_instructions_on_rdna1(build: Build) -> None:
    build.rx_5600_xt()
    kernel(build, "tmp/torchinductor_x/triton/0", hip("gfx1010"), llvm=BUFFERS)
    # Registers that are spilled use buffer instructions, too, but no such intrinsic.
    kernel(build, f"{HOME}/.triton/cache", hip("gfx1010"), llvm="buffer_store_dword v0, off, s[0:3], 0")
    (found,) = findings(build).values()
    assert (found.id, found.severity, found.cause) == ("caches-inductor", "warning", "triton-writes-nothing")
    assert "1 of 1 kernels use buffer instructions" in found.evidence
    assert "Set AMDGCN_USE_BUFFER_OPS=0 and move the cache away" in found.advice
    assert "`mv /tmp/torchinductor_$USER /tmp/torchinductor_$USER-$(date +%F)`" in found.advice


def test_generated_code_names_its_chip(build: Build) -> None:
    build.rx_5600_xt()
    build.file("tmp/torchinductor_x/ab/cab.py", GENERATED)
    build.file("tmp/torchinductor_x/ab/other.py", "DeviceProperties(type='cuda', cc=86)")
    build.file("tmp/torchinductor_x/fxgraph/ab/abc/xyz", b"\x80\x04.")
    (found,) = findings(build).values()
    assert found.title == "Inductor's cache has kernels that were made for another chip (gfx1030)"


def test_files_of_miopen_for_another_gpu_or_version(build: Build, tmp_path: Path) -> None:
    build.rx_5600_xt()
    build.file("opt/rocm/.info/version", "6.4.0")
    build.file("opt/rocm/lib/libMIOpen.so.1", "")
    build.file("opt/rocm/include/miopen/version.h", "")
    build.file(f"{HOME}/.config/miopen/gfx1010_18.HIP.3_4_0_.ufdb.txt", "")
    build.file(f"{HOME}/.config/miopen/gfx1010_18.HIP.2_17_0_.ufdb.txt", "")
    build.file(f"{HOME}/.cache/miopen/3.4.0./gfx1030_18.ukdb", "")
    build.file(f"{HOME}/.cache/miopen/3.4.0./gfx1030_18.ukdb-wal", "")
    (found,) = findings(build).values()
    assert "another GPU (gfx1030_18) and another version (2.17.0)" in found.title
    command = found.advice.split("`")[1]
    home = tmp_path / "root" / HOME
    done = subprocess.run(
        ["sh", "-c", command], env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, check=False
    )
    assert done.returncode == 0
    assert [each.name for each in (home / ".config" / "miopen").iterdir()] == [
        "gfx1010_18.HIP.3_4_0_.ufdb.txt"
    ]
    (moved,) = home.glob("miopen-*")
    assert len(list(moved.iterdir())) == 3
    assert findings(build) == {}


@given(st.sampled_from(["gfx1010", "gfx1030", "gfx90a", "gfx942"]), st.integers(1, 300), st.integers(0, 99))
def test_names_of_user_files_are_read_back(isa: str, cus: int, minor: int) -> None:
    gpu = database_name(isa, cus)
    database = user_file(f"{gpu}.HIP.3_{minor}_0_36e8-dirty.ufdb.txt")
    assert database is not None
    assert (database.gpu, database.isa, database.version) == (gpu, isa, f"3.{minor}.0")
    kernels = user_file(f"3.{minor}.0.36e8/{gpu}.ukdb")
    assert kernels is not None
    assert (kernels.gpu, kernels.isa, kernels.version) == (gpu, isa, f"3.{minor}.0")


@given(st.text(max_size=40))
def test_other_names_are_none_of_miopens(name: str) -> None:
    found = user_file(name)
    assert found is None or name == shlex.quote(name)
