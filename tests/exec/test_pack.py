"""Databases and kernels are shared between equal GPUs, and nothing that is dishonest or wrong is used."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
import stat
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warm_machine import DEFAULT, RIGHT, WRONG, Place

from rocmprobe.exec.pack import open_pack
from rocmprobe.model.results import BadInput

KERNELS, RECORDS = "cache/gfx1030_18.ukdb", "db/gfx1030_18.HIP.2_17_0_.ufdb.txt"


def kernels(path: Path, *names: str) -> None:
    """Write a cache of compiled kernels as MIOpen has it: the newest rows are in a file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma journal_mode=wal")
        database.execute("create table kern_db (id integer primary key, kernel_name text)")
        database.executemany("insert into kern_db (kernel_name) values (?)", [(name,) for name in names])
        database.commit()


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "pack": 1, "rocmprobe": "1", "made": "2026-11-24T00:00:00Z", "setting": "default", "variables": {},
        "origin": {
            "miopen": "2.17.0", "native_isa": "gfx1010", "effective_isa": "gfx1030", "compute_units": 36
        },
        "shapes": [{"problem": RIGHT, "direction": "fwd"}], **changes,
    }  # fmt: skip


def write(path: Path, content: dict[str, bytes], **changes: Any) -> Path:
    """Write a pack by hand."""
    files = {
        name: {"sha256": hashlib.sha256(each).hexdigest(), "size": len(each)}
        for name, each in content.items()
    }
    text = json.dumps(manifest(**{"files": files, **changes}))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, each in {**content, "pack.json": text.encode()}.items():
            packed.writestr(name, each)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.machine()
    found.results()
    return found


@pytest.mark.thorough
def test_a_pack_makes_the_first_calls_of_another_machine_short(place: Place) -> None:
    pack, shapes = place.folder / "pack.zip", place.shapes(RIGHT)
    assert place.warm("--shapes", shapes).returncode == 0
    kernels(place.caches() / "miopen-cache" / "gfx1030_18.ukdb", "naive_conv", "im2col")
    done = place.warm("--pack", pack)
    assert done.returncode == 0, done.stderr
    assert "for 3 first calls of MIOpen 2.17.0 on gfx1010 that runs as gfx1030" in done.stdout
    with zipfile.ZipFile(pack) as packed:
        assert sorted(packed.namelist()) == [KERNELS, RECORDS, "pack.json"]

    refused = place.warm("--unpack", pack, caches="theirs")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "kernels that somebody else compiled" in refused.stderr
    assert "Add --yes" in refused.stderr
    used = place.warm("--unpack", pack, "--yes", caches="theirs")
    assert used.returncode == 0, used.stderr
    assert used.stdout.splitlines()[0] == f"{RIGHT} fwd: pass"
    theirs = place.caches("theirs")
    assert sorted(each.name for each in theirs.iterdir() if "staging" in each.name) == []
    with closing(sqlite3.connect(theirs / "miopen-cache" / "gfx1030_18.ukdb")) as database:
        assert database.execute("select count(*) from kern_db").fetchone() == (2,)
    warm = place.warm("--shapes", shapes, caches="theirs")
    assert "3 of 3 first calls are warm" in warm.stdout
    assert " 40 s before" not in warm.stdout
    assert "Compiled kernels in the cache: 2 before, 2 after." in warm.stdout


def test_a_pack_that_computes_wrong_is_not_used(place: Place) -> None:
    pack = write(place.folder / "pack.zip", {RECORDS: b"theirs\n"})
    place.machine(WRONG)
    done = place.warm("--unpack", pack, "--yes")
    assert done.returncode == 1
    assert done.stdout.startswith(f"{RIGHT} fwd: wrong")
    assert "1 of 1 failed: the pack is not used" in done.stderr
    assert sorted(each.name for each in place.caches().glob("*miopen*")) == [
        "miopen-cache", "miopen-db",
    ]  # fmt: skip
    assert list((place.caches() / "miopen-db").iterdir()) == []


def test_former_caches_are_kept_under_a_dated_name(place: Place) -> None:
    pack = write(place.folder / "pack.zip", {RECORDS: b"theirs\n"})
    place.warm("--unpack", write(place.folder / "first.zip", {RECORDS: b"first\n"}), "--yes")
    done = place.warm("--unpack", pack, "--yes")
    assert done.returncode == 0, done.stderr
    (former,) = place.caches().glob("miopen-db-20*")
    assert f"The former files are in {former}." in done.stdout
    name = Path(RECORDS).name
    assert (former / name).read_text().startswith("first\n")
    assert (place.caches() / "miopen-db" / name).read_text().startswith("theirs\n")


@pytest.mark.parametrize(
    ("machine", "variables", "words"),
    [
        ({"miopen": "3.4.0"}, {}, "made for MIOpen 2.17.0 on gfx1010 that runs as gfx1030 with 36"),
        (
            {"cus": 40},
            {},
            "this machine has MIOpen 2.17.0 on gfx1010 that runs as gfx1030 with 40 compute units",
        ),
        ({}, {"MIOPEN_DEBUG_CONV_WINOGRAD": "0"}, "under the setting 'default' with other variables"),
    ],
)
def test_a_pack_is_refused_elsewhere(
    place: Place, machine: dict[str, Any], variables: dict[str, str], words: str
) -> None:
    pack = write(place.folder / "pack.zip", {RECORDS: b"theirs\n"})
    place.machine(**machine)
    place.results(dataclasses.replace(DEFAULT, env=variables))
    done = place.warm("--unpack", pack, "--yes")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


def linked(path: Path) -> None:
    write(path, {RECORDS: b"/etc/passwd"})
    with zipfile.ZipFile(path) as packed:
        contents = {entry: packed.read(entry) for entry in packed.infolist()}
    with zipfile.ZipFile(path, "w") as packed:
        for entry, content in contents.items():
            if entry.filename == RECORDS:
                entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            packed.writestr(entry, content)


def lying(path: Path) -> None:
    """The directory of the zip file claims fewer bytes than the file unpacks to."""
    write(path, {RECORDS: b"x" * 5000}, files={RECORDS: {"sha256": "0" * 64, "size": 50}})
    content = path.read_bytes()
    path.write_bytes(content.replace((5000).to_bytes(4, "little"), (50).to_bytes(4, "little")))


def bomb(path: Path) -> None:
    write(path, {RECORDS: b"x"})
    content = path.read_bytes()
    at = content.index(b"PK\1\2") + 24
    path.write_bytes(content[:at] + (1 << 31).to_bytes(4, "little") + content[at + 4 :])


def twice(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(RECORDS, b"x")
        with pytest.warns(UserWarning, match="Duplicate name"):
            packed.writestr(RECORDS, b"x")


def followed(path: Path) -> None:
    write(path, {RECORDS: b"x"})
    with path.open("ab") as stream:
        stream.write(b"hidden")


DISHONEST: dict[str, tuple[Callable[[Path], object], str]] = {
    "no zip file": (lambda path: path.write_bytes(b"x"), "a damaged zip file"),
    "a path that leads out": (
        lambda path: write(path, {"db/../../evil.HIP.2_17_0_.ufdb.txt": b"x"}), "contains a file called"
    ),
    "an absolute path": (lambda path: write(path, {"/etc/gfx1030_18.ukdb": b"x"}), "contains a file called"),
    "another file": (lambda path: write(path, {"db/run.sh": b"x"}), "contains a file called 'db/run.sh'"),
    "kernels among records": (
        lambda path: write(path, {"db/gfx1030_18.ukdb": b"x"}), "contains a file called"
    ),
    "a link": (linked, "is a link or another special file"),
    "two files of one name": (twice, "more than once"),
    "a bomb": (bomb, "is larger than"),
    "data behind it": (followed, "contains data that belongs to none of the files in it"),
    "no manifest": (
        lambda path: zipfile.ZipFile(path, "w").close(), "lacks pack.json"
    ),
    "another format": (lambda path: write(path, {RECORDS: b"x"}, pack=2), "is not of format 1"),
    "a missing field": (lambda path: write(path, {RECORDS: b"x"}, origin={}), "pack.json: "),
    "files that are not there": (lambda path: write(path, {RECORDS: b"x"}, files={}), "names other files"),
    "kernels of another chip": (
        lambda path: write(path, {"cache/gfx1010_18.ukdb": b"x"}), "is not a file of MIOpen 2.17.0"
    ),
    "records of another version": (
        lambda path: write(path, {"db/gfx1030_18.HIP.3_4_0_.ufdb.txt": b"x"}), "is not a file of MIOpen 2"
    ),
    "nothing to test": (lambda path: write(path, {RECORDS: b"x"}, shapes=[]), "names 0 shapes"),
    "a problem that is none": (
        lambda path: write(path, {RECORDS: b"x"}, shapes=[{"problem": "conv", "direction": "fwd"}]), "conv"
    ),
    "a direction that is none": (
        lambda path: write(path, {RECORDS: b"x"}, shapes=[{"problem": RIGHT, "direction": "up"}]),
        "'up' is not a direction",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DISHONEST)
def test_a_dishonest_pack_is_refused_before_it_is_unpacked(tmp_path: Path, what: str) -> None:
    make, words = DISHONEST[what]
    path = tmp_path / "pack.zip"
    make(path)
    with pytest.raises(BadInput, match="^" + str(path)) as refused, open_pack(path):
        pass
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.data())
def test_a_damaged_pack_is_refused_in_one_line(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = write(Path(folder, "pack.zip"), {RECORDS: b"theirs\n" * 9, KERNELS: bytes(range(256))})
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        refused = str(path)
        try:
            with open_pack(path) as opened:
                assert set(opened.manifest.files) == {RECORDS, KERNELS}
        except BadInput as error:
            refused = str(error)
        assert refused.startswith(str(path))
        assert "\n" not in refused


@pytest.mark.parametrize("what", ["has another checksum", "Bad CRC-32"])
def test_a_file_that_differs_from_the_manifest_leaves_nothing(place: Place, what: str) -> None:
    pack = place.folder / "pack.zip"
    if what == "Bad CRC-32":
        lying(pack)
    else:
        write(pack, {RECORDS: b"x"}, files={RECORDS: {"sha256": "0" * 64, "size": 1}})
    done = place.warm("--unpack", pack, "--yes")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert what in done.stderr
    assert sorted(each.name for each in place.caches().glob("*miopen*")) == ["miopen-cache", "miopen-db"]
