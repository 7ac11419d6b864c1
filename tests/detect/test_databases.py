"""MIOpen's databases by GPU, and the folders that it writes into."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from machine_trees import RX_5600_XT, tree
from rows import every_row
from stack_trees import TORCH, wheel_files

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


MIOPEN = {"opt/rocm/lib/libMIOpen.so.1": "", "etc/ld.so.conf": "/opt/rocm/lib\n"}
MOUNTS = (
    "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\ntmpfs /home/x/.cac tmpfs rw 0 0\nshort\n"
    "tmpfs /my\\040disk tmpfs rw 0 0\n"
)
ON_NFS = {"exists": True, "writable": True, "filesystem": "nfs4", "network": True}


def databases(*names):
    return {**MIOPEN, **{f"{DB}/{name}": "" for name in names}}


@every_row(
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
