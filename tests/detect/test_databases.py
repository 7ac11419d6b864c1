"""MIOpen's databases by GPU, and the folders that it writes into."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from machine_trees import RX_5600_XT
from rows import every_row
from stack_trees import TORCH, wheel

from rocmprobe.knowledge.miopen_files import database_name

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
DB = "opt/rocm/share/miopen/db"


@every_row(
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


def system(build):
    build.file("opt/rocm/lib/libMIOpen.so.1", "")
    build.file("etc/ld.so.conf", "/opt/rocm/lib\n")


def test_each_gpu_by_its_native_and_effective_isa(build):
    build.rx_5600_xt()
    system(build)
    for name in ("gfx1030_36.HIP.fdb.txt", "gfx1030_20.HIP.fdb.txt", "gfx1030_36.db.txt", "gfx1030.kdb"):
        build.file(f"{DB}/{name}", "")
    build.file(f"{DB}/gfx900_18.HIP.fdb.txt", "")
    found = build.detect(HSA_OVERRIDE_GFX_VERSION="10.3.0")
    assert found.value("miopen.db_path") == "/opt/rocm/share/miopen/db"
    assert found.value("miopen.find_db") == {"gfx1010_18": None, "gfx1030_18": "gfx1030_20.HIP.fdb.txt"}
    assert found.value("miopen.perf_db") == {"gfx1010_18": None, "gfx1030_18": "gfx1030_36.db.txt"}
    assert found.value("miopen.kernel_db") == {"gfx1010_18": None, "gfx1030_18": "gfx1030.kdb"}


def test_the_file_with_the_exact_number_comes_before_the_one_without(build):
    build.rx_5600_xt()
    system(build)
    for name in ("gfx1010.kdb", "gfx1010_18.kdb"):
        build.file(f"{DB}/{name}", "")
    assert build.detect().value("miopen.kernel_db") == {"gfx1010_18": "gfx1010_18.kdb"}


def test_kernels_of_another_size_do_not_serve(build):
    build.rx_5600_xt()
    system(build)
    build.file(f"{DB}/gfx1010_20.kdb", "")
    assert build.detect().value("miopen.kernel_db") == {"gfx1010_18": None}


def test_wheel_with_databases(build):
    wheel(build, "2.1.2+rocm5.6", "5.6.31061-8c743ae5d")
    build.rx_5600_xt()
    build.file(f"{TORCH}/share/miopen/db/gfx1030_36.HIP.fdb.txt", "")
    found = build.detect()
    assert found.value("miopen.db_path") == "torch/share/miopen/db"
    assert found.value("miopen.find_db") == {"gfx1010_18": None}


def test_wheel_with_databases_inside_the_library(build):
    wheel(build)
    build.rx_5600_xt()
    fact = build.detect().facts["miopen.find_db"]
    assert fact.value is None
    assert fact.source == (
        "torch/share/miopen/db: no databases; wheels for ROCm 4.2 to 5.4 have databases inside the library"
    )


def test_path_told_by_the_environment(build):
    build.rx_5600_xt()
    build.file("data/db/gfx1010_18.HIP.fdb.txt", "")
    found = build.detect(MIOPEN_SYSTEM_DB_PATH="/data/db")
    assert found.value("miopen.find_db") == {"gfx1010_18": "gfx1010_18.HIP.fdb.txt"}
    assert found.facts["miopen.db_path"].source == "MIOPEN_SYSTEM_DB_PATH"


def test_no_miopen_or_no_gpu(build):
    assert build.detect().facts["miopen.find_db"].source == "no libMIOpen is installed"
    system(build)
    build.file(f"{DB}/gfx1030_36.HIP.fdb.txt", "")
    assert (
        build.detect().facts["miopen.find_db"].source
        == "no AMD GPU with known ISA and number of compute units"
    )


def test_folders_of_the_user(build):
    build.file("home/x/.config/miopen/gfx1030_18.HIP.3_4_0_.ufdb.txt", "12345")
    build.file("home/x/.cache/miopen/3.4.0./gfx1030_18.ukdb", "123")
    build.file("home/x/.cache/miopen/3.4.0./gfx1010_18.ukdb", "4567")
    build.file(
        "proc/mounts",
        "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\ntmpfs /home/x/.cac tmpfs rw 0 0\nshort\n",
    )
    found = build.detect(HOME="/home/x")
    expected = {"exists": True, "writable": True, "filesystem": "nfs4", "network": True}
    assert found.value("miopen.user_db") == {"path": "~/.config/miopen", "files": 1, "bytes": 5, **expected}
    assert found.value("miopen.kernel_cache") == {
        "path": "~/.cache/miopen",
        "files": 2,
        "bytes": 7,
        **expected,
    }


def test_folders_told_by_the_environment(build):
    build.file("proc/mounts", "/dev/sda1 / ext4 rw 0 0\ntmpfs /my\\040disk tmpfs rw 0 0\n")
    build.file("my disk/other", "")
    environ = {"HOME": "/home/x", "MIOPEN_USER_DB_PATH": "/my disk/db", "MIOPEN_CUSTOM_CACHE_DIR": "~/cache"}
    found = build.detect(**environ)
    user, cache = found.value("miopen.user_db"), found.value("miopen.kernel_cache")
    assert (user["path"], user["exists"], user["filesystem"], user["network"]) == (
        "/my disk/db", False, "tmpfs", False,
    )  # fmt: skip
    assert (cache["path"], cache["files"]) == ("~/cache", 0)
    assert found.facts["miopen.user_db"].source == "MIOPEN_USER_DB_PATH"


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
    system(build)
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
