"""Caches of compiled kernels, by their own files: chip, version, and what is known to miscompile."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from machine_trees import Build
from stack_trees import wheel_files

from rocmprobe.judge.findings.machine import machine_findings
from rocmprobe.knowledge.miopen_files import database_name, user_file
from rocmprobe.model.results import Finding

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
