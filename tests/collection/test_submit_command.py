"""`rocmprobe submit`: what it packs, what it refuses, and what its check refuses."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bundles import disguised, document, records, repacked, rewritten
from runs import CHECKOUT, SMALL, Run, cli, environment, machine_file, rocmprobe, run

FILES = ("manifest.json", "results.json", "journal.jsonl")
TOKEN = "hf_" + "abCD1234" * 4
PLANTED = (
    "plantedname", "plantedhost", "192.168.77.7", "2001:db8::77", "aa:bb:cc:dd:ee:77",
    "95a1ca7691e7c377", "2e992352-6f78-4f9b-aa68-1b771d43e277", "692024000877",
    "someone@planted.example.org", TOKEN, "otherperson",
)  # fmt: skip
SAID = (
    "/home/plantedname/.cache/miopen of plantedname on plantedhost.lan (192.168.77.7, 2001:db8::77, "
    "aa:bb:cc:dd:ee:77) GPU-95a1ca7691e7c377 UUID=2e992352-6f78-4f9b-aa68-1b771d43e277 "
    f"Serial Number: 692024000877 someone@planted.example.org {TOKEN} "
    "C:\\Users\\otherperson\\miopen by otherperson"
)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("simulated")
    fault = {"library": "miopen", "effect": "raise", "message": "miopenStatusUnknownError"}
    machine = machine_file(folder / "machine.toml", fault)
    settings = ("--settings", "default,vendor-off", *SMALL[:2], *SMALL[4:])
    done = run(folder / "out", "--simulate", machine, *settings)
    assert done.results.simulated == "machine"
    return done


@pytest.fixture(scope="module")
def real(simulated: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that passes for a real one."""
    return rewritten(tmp_path_factory.mktemp("real"), disguised(records(simulated.folder)))


@pytest.fixture(scope="module")
def bundle(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "bundle.zip"
    done = cli("submit", real, "--yes", "-o", path)
    assert (done.returncode, done.stderr) == (0, "")
    return path


def files_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check(*paths: Path, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Exit code, and what was refused."""
    done = cli("submit", "--check", *options, *paths)
    return done.returncode, done.stderr


def sealed(files: dict[str, bytes]) -> None:
    """Make the manifest fit the files, as somebody who edits them would."""
    about = json.loads(files["manifest.json"])
    for name in about["files"]:
        content = files[name]
        about["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    files["manifest.json"] = document(about)


def edited_results(edit: Callable[[Any], Any]) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        data = json.loads(files["results.json"])
        edit(data)
        files["results.json"] = document(data)
        sealed(files)

    return change


def test_a_bundle_is_shown_written_and_taken(real: Path, tmp_path: Path) -> None:
    done = cli(
        "submit", real / "results.json", "--yes", "--repository", "https://example.org/r/", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    for word in ("chip       gfx1010", "torch-2.4.0-rocm6.1", "replaced", "CC-BY-4.0", "Nothing was sent"):
        assert word in done.stdout
    assert "https://example.org/r/issues/new?template=report.yml" in done.stdout
    (written,) = tmp_path.iterdir()
    digest = hashlib.sha256(written.read_bytes()).hexdigest()
    assert f"bundles/gfx1010/{digest}.zip" in done.stdout
    assert written.name == f"rocmprobe-gfx1010-{digest[:12]}.zip"
    about = json.loads(files_of(written)["manifest.json"])
    assert set(about["files"]) == set(FILES[1:])
    checked = cli("submit", "--check", written)
    assert checked.returncode == 0
    assert "gfx1010 torch-2.4.0-rocm6.1" in checked.stdout


def test_without_a_repository_no_address_is_made_up(real: Path, tmp_path: Path) -> None:
    done = cli("submit", real, "--yes", cwd=tmp_path)
    assert "http" not in done.stdout
    assert "Nothing was sent" in done.stdout


def test_the_same_run_gives_the_same_bundle(real: Path, bundle: Path, tmp_path: Path) -> None:
    cli("submit", real, "--yes", "-o", tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()
    with zipfile.ZipFile(bundle) as archive:
        assert tuple(archive.namelist()) == FILES
        assert {each.date_time[0] for each in archive.infolist()} == {1980}


def test_a_torn_line_and_a_number_that_is_none_do_not_matter(real: Path, tmp_path: Path) -> None:
    rows = records(real)
    outcome = next(row["outcome"] for row in rows if row["record"] == "outcome")
    outcome["numerics"]["max_ratio"] = float("nan")
    folder = rewritten(tmp_path / "run", rows)
    with (folder / "journal.jsonl").open("a", encoding="utf-8") as journal:
        journal.write('{"record": "outcome"}\n[1]\n{"record": "end", "a')
    assert cli("submit", folder, "--yes", "-o", tmp_path / "b.zip").returncode == 0
    assert check(tmp_path / "b.zip") == (0, "")


@pytest.mark.thorough
def test_a_run_that_is_too_large_for_a_bundle_is_said_so(real: Path, tmp_path: Path) -> None:
    rows = records(real)
    log = "".join(hashlib.sha512(str(number).encode()).hexdigest() for number in range(7000))
    trial = next(row for row in rows if row["record"] == "trial")
    more = [{**trial, "trial": {**trial["trial"], "id": f"t{each}", "log": log[each:]}} for each in range(60)]
    done = cli("submit", rewritten(tmp_path / "run", [*rows[:-1], *more, rows[-1]]), "--yes", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "larger than 25,000,000 bytes" in done.stderr


def test_nobody_to_ask_writes_nothing(real: Path, tmp_path: Path) -> None:
    done = cli("submit", real, cwd=tmp_path)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of Unix")
@pytest.mark.parametrize(("answer", "written"), [("y", 1), ("n", 0), ("", 0)])
def test_on_a_terminal_it_asks(real: Path, tmp_path: Path, answer: str, written: int) -> None:
    leader, follower = os.openpty()
    command = [sys.executable, "-m", "rocmprobe", "submit", str(real)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdin=follower, stdout=subprocess.PIPE, text=True
    ) as process:
        os.write(leader, f"{answer}\n".encode())
        shown, _ = process.communicate(timeout=120)
    os.close(leader)
    os.close(follower)
    assert process.returncode == 0
    assert "[y/N]" in shown
    assert ("Nothing was written." in shown) == (not written)
    assert len(list(tmp_path.iterdir())) == written


def test_planted_identifiers_are_not_in_a_bundle(tmp_path: Path) -> None:
    """A real run on the processor, whose torch says all that was planted, kept with --no-redact."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(f"print({SAID!r})\nraise OSError({SAID!r})")
    (package / "version.py").write_text("__version__ = '2.4.0'\ncuda = None\nhip = None\n")
    own = {"HOME": "/home/plantedname", "USER": "plantedname", "LOGNAME": "plantedname",
           "HOSTNAME": "plantedhost"}  # fmt: skip
    env = {**own, "PYTHONPATH": f"{tmp_path}{os.pathsep}{CHECKOUT}", "MIOPEN_USER_DB_PATH": SAID}
    asked = ("--device", "cpu", "--only", "*/copy/float32", "--no-redact", "--note", SAID)
    done = run(tmp_path / "plantedname" / "out", *asked, env=env)
    journal = (done.folder / "journal.jsonl").read_text("utf-8")
    assert [each for each in PLANTED if each not in journal] == []
    submitted = rocmprobe("submit", done.folder, "--yes", "-o", tmp_path / "b.zip", env=own)
    assert submitted.returncode == 0, submitted.stderr
    assert "--no-redact" in submitted.stdout
    written = b"\n".join(files_of(tmp_path / "b.zip").values()).decode() + submitted.stdout
    assert [each for each in PLANTED if each in written.replace(str(tmp_path), "")] == []
    assert set(json.loads(files_of(tmp_path / "b.zip")["manifest.json"])["redacted"]) == {
        "user", "host", "home", "ip", "mac", "uuid", "serial", "email", "token"
    }  # fmt: skip
    assert check(tmp_path / "b.zip") == (0, "")


def test_the_names_of_another_machine_are_found_in_its_paths(real: Path, tmp_path: Path) -> None:
    rows = records(real)
    rows[0]["options"].update(redact=False, note="/home/somebodyelse/x, says somebodyelse")
    rewritten(tmp_path / "run", rows)
    assert cli("submit", tmp_path / "run", "--yes", "-o", tmp_path / "b.zip").returncode == 0
    assert b"somebodyelse" not in b"".join(files_of(tmp_path / "b.zip").values())


def test_a_simulated_run_is_refused(simulated: Run, tmp_path: Path) -> None:
    done = cli("submit", simulated.folder, "--yes", cwd=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "simulated" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_partial_run_needs_a_word(real: Path, tmp_path: Path) -> None:
    folder = rewritten(tmp_path / "run", [row for row in records(real) if row["record"] != "end"])
    refused = cli("submit", folder, "--yes", "-o", tmp_path / "b.zip")
    assert (refused.returncode, "--partial" in refused.stderr) == (2, True)
    assert cli("submit", folder, "--yes", "--partial", "-o", tmp_path / "b.zip").returncode == 0
    assert check(tmp_path / "b.zip")[1].endswith("a partial run: it is not complete\n")
    assert check(tmp_path / "b.zip", options=("--partial",)) == (0, "")


def first_number(data: Any) -> None:
    outcome = next(each for each in data["outcomes"] if each["timings"])
    name = next(name for name, value in outcome["timings"].items() if isinstance(value, float))
    outcome["timings"][name] *= 1.01


EDITS: dict[str, Callable[[Any], Any]] = {
    "a state": lambda data: next(
        each for each in data["outcomes"] if each["state"] == "error").update(state="pass"),
    "a number": first_number,
    "the recommendation": lambda data: data["recommendation"]["configuration"].update(env={"A": "1"}),
    "a sentence": lambda data: data["recommendation"].update(sentence="All is well."),
    "a fact": lambda data: data["machine"]["facts"]["torch.version"].update(value="2.9.0+rocm6.4"),
    "the chip": lambda data: data["machine"]["gpus"][0]["native_isa"].update(value="gfx1030"),
    "a finding left out": lambda data: data["findings"].pop(),
    "an outcome left out": lambda data: data["outcomes"].pop(),
    "a key more": lambda data: data["machine"].update(extra="more"),
    "the date": lambda data: data.update(started="2020-01-01T00:00:00Z"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_edited_results_are_refused(bundle: Path, real: Path, tmp_path: Path, name: str) -> None:
    path = repacked(bundle, tmp_path / "edited.zip", edited_results(EDITS[name]))
    code, refused = check(path)
    assert (code, len(refused.splitlines())) == (1, 1)
    assert refused.startswith(f"refused: {path}: edited: results.json: ")
    shutil.copytree(real, tmp_path / "run")
    data = json.loads((tmp_path / "run/results.json").read_text("utf-8"))
    EDITS[name](data)
    (tmp_path / "run/results.json").write_bytes(document(data))
    done = cli("submit", tmp_path / "run", "--yes", cwd=tmp_path)
    assert done.returncode == 2
    assert "edited: " in done.stderr


@pytest.mark.thorough
def test_a_file_with_another_hash_than_the_manifest_says_is_refused(bundle: Path, tmp_path: Path) -> None:
    path = repacked(bundle, tmp_path / "b.zip", lambda files: files.update(
        {"results.json": files["results.json"] + b"\n"}))  # fmt: skip
    assert "edited: manifest.json: files/results.json/sha256 is" in check(path)[1]


def test_an_edited_manifest_is_refused(bundle: Path, tmp_path: Path) -> None:
    def change(files: dict[str, bytes]) -> None:
        about = json.loads(files["manifest.json"])
        files["manifest.json"] = document({**about, "chip": "gfx1030"})

    assert "edited: manifest.json: chip" in check(repacked(bundle, tmp_path / "b.zip", change))[1]


def test_a_journal_that_breaks_what_judges_it_is_refused(bundle: Path, tmp_path: Path) -> None:
    """Half a surrogate pair where a name is looked up."""

    def change(files: dict[str, bytes]) -> None:
        files["journal.jsonl"] = files["journal.jsonl"].replace(
            b'"state": "error"', b'"state": "error", "\\ud800": 1', 1
        )
        sealed(files)

    code, refused = check(repacked(bundle, tmp_path / "b.zip", change), bundle)
    assert (code, refused.count("\n")) == (1, 1)


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(each for key, item in inner for each in places(item, (*place, key)))]


ODD = (None, True, -1, 1e308, 2**70, "", "\ud800", "../../x", [], {}, [[]], {"a": 1}, float("nan"))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_journal_holds_a_bundle_is_taken_or_refused(
    bundle: Path, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)

    def change(files: dict[str, bytes]) -> None:
        rows = [json.loads(line) for line in files["journal.jsonl"].splitlines()]
        row = rows[random.choice((0, 0, random.randrange(len(rows))))]
        *above, last = random.choice(places(row)[1:])
        for key in above:
            row = row[key]
        row[last] = random.choice(ODD)
        files["journal.jsonl"] = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        sealed(files)

    path = repacked(bundle, tmp_path / "b.zip", change)
    code, refused = check(path)
    assert (code, refused.count("\n")) in ((0, 0), (1, 1)), refused
    done = cli("table", path, "--site", tmp_path / "site")
    assert done.returncode == code, done.stderr


def test_a_bundle_of_a_simulated_run_is_refused(simulated: Run, bundle: Path, tmp_path: Path) -> None:
    def swapped(files: dict[str, bytes]) -> None:
        for name in FILES[1:]:
            files[name] = (simulated.folder / name).read_bytes()
        sealed(files)

    code, refused = check(repacked(bundle, tmp_path / "b.zip", swapped))
    assert (code, refused.count("\n")) == (1, 1)
    assert "a simulated run: " in refused


def test_an_identifier_that_somebody_put_in_is_refused(real: Path, bundle: Path, tmp_path: Path) -> None:
    rows = records(real)
    rows[0]["options"]["note"] = "ask someone@planted.example.org"
    folder = rewritten(tmp_path / "run", rows)

    def swapped(files: dict[str, bytes]) -> None:
        for name in FILES[1:]:
            files[name] = (folder / name).read_bytes()
        sealed(files)

    code, refused = check(repacked(bundle, tmp_path / "b.zip", swapped))
    assert code == 1
    assert "contains an identifier: " in refused
    assert "someone@" not in refused


def judged_by(version: str) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        edited_results(EDITS["a sentence"])(files)
        about = json.loads(files["manifest.json"])
        files["manifest.json"] = document({**about, "rocmprobe": version})

    return change


def test_what_an_older_version_judged_passes_only_where_it_is_judged_again(
    bundle: Path, tmp_path: Path
) -> None:
    def page(path: Path) -> tuple[int, str]:
        done = cli("table", path, "--site", tmp_path / "site")
        return done.returncode, done.stderr

    old = repacked(bundle, tmp_path / "old.zip", judged_by("0.0.1"))
    assert "judged by rocmprobe 0.0.1" in check(old)[1]
    assert page(old) == (0, "")
    assert "All is well" not in "".join(
        each.read_text("utf-8") for each in (tmp_path / "site").rglob("*.json")
    )
    new = repacked(bundle, tmp_path / "new.zip", judged_by("999.0"))
    assert "newer than this one" in check(new)[1]
    assert "newer than this one" in page(new)[1]

    def state(files: dict[str, bytes]) -> None:
        edited_results(EDITS["a state"])(files)
        about = json.loads(files["manifest.json"])
        files["manifest.json"] = document({**about, "rocmprobe": "0.0.1"})

    code, refused = page(repacked(bundle, tmp_path / "s.zip", state))
    assert (code, "edited: " in refused) == (1, True)


def test_what_was_taken_stays_and_is_not_checked_again(bundle: Path, tmp_path: Path) -> None:
    before, now = tmp_path / "before", tmp_path / "now"
    assert cli("submit", "--check", bundle, "--into", before).returncode == 0
    shutil.copytree(before, now)
    done = cli("submit", "--check", now, "--accepted", before)
    assert (done.returncode, done.stdout) == (0, "0 taken, 0 refused, 1 taken before\n")
    (path,) = now.glob("*/*.zip")
    path.unlink()
    code, refused = check(now, options=("--accepted", str(before)))
    assert (code, "was accepted before, and is missing" in refused) == (1, True)


def zipped(*entries: tuple[Any, bytes], comment: bytes = b"") -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in entries:
            archive.writestr(entry, content)
        archive.comment = comment
    return target.getvalue()


def claiming_less(content: bytes) -> bytes:
    """A zip file whose directory says that its largest file is smaller than it is."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        size = archive.getinfo("results.json").file_size.to_bytes(4, "little")
    return content.replace(size, (10).to_bytes(4, "little"))


HOSTILE: dict[str, tuple[str, Callable[[list[tuple[str, bytes]]], bytes]]] = {
    "no zip": ("damaged", lambda whole: b"results"),
    "empty": ("damaged", lambda whole: b""),
    "a path upwards": ("a file called '../results.json'", lambda whole: zipped(
        *whole[:2], ("../results.json", b"{}"))),
    "an absolute path": ("a file called '/etc/passwd'", lambda whole: zipped(*whole, ("/etc/passwd", b"x"))),
    "a name with NUL": ("a file called", lambda whole: zipped(*whole[:2]).replace(
        b"results.json", b"results.\0son")),
    "a file twice": ("results.json more than once", lambda whole: zipped(*whole, whole[1])),
    "a file too few": ("lacks journal.jsonl", lambda whole: zipped(*whole[:2])),
    "many files": ("a file called '0'", lambda whole: zipped(*((f"{each}", b"") for each in range(900)))),
    "a bomb": ("larger than 65,536 bytes", lambda whole: zipped(
        ("manifest.json", b" " * 20_000_000), *whole[1:])),
    "a bomb that claims to be small": ("damaged", lambda whole: claiming_less(zipped(*whole))),
    "data before": ("data outside of its files", lambda whole: b"#!/bin/sh\n" + zipped(*whole)),
    "a comment": ("data outside of its files", lambda whole: zipped(*whole, comment=b"hello")),
    "damaged": ("damaged", lambda whole: zipped(*whole).replace(b"PK\x01\x02", b"PK\x01\x09")),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_zip_file_is_refused(bundle: Path, tmp_path: Path, name: str) -> None:
    sign, make = HOSTILE[name]
    path = tmp_path / "b.zip"
    path.write_bytes(make(list(files_of(bundle).items())))
    code, refused = check(path)
    assert (code, refused.count("\n")) == (1, 1)
    assert refused.startswith(f"refused: {path}: ")
    assert sign in refused


BROKEN: dict[str, tuple[str, Callable[[dict[str, bytes]], Any]]] = {
    "not JSON": ("not JSON", lambda files: files.update({"manifest.json": b"{"})),
    "another format": ("bundle is 2", lambda files: files.update(
        {"manifest.json": files["manifest.json"].replace(b'"bundle": 1', b'"bundle": 2')})),
    "another licence": ("licence is", lambda files: files.update(
        {"manifest.json": files["manifest.json"].replace(b"CC-BY-4.0", b"All rights")})),
    "against the schema": ("outcomes", edited_results(lambda data: data.update(outcomes={}))),
    "a line that is no record": ("is no record", lambda files: files.update(
        {"journal.jsonl": files["journal.jsonl"] + b"note for you\n"})),
    "a field of another type": ("journal.jsonl", lambda files: files.update(
        {"journal.jsonl": files["journal.jsonl"].replace(b'"state": "error"', b'"state": 7', 1)})),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_files_that_are_not_what_they_should_be_are_refused(bundle: Path, tmp_path: Path, name: str) -> None:
    sign, change = BROKEN[name]

    def changed(files: dict[str, bytes]) -> None:
        change(files)
        if name not in ("not JSON",):
            sealed(files)

    code, refused = check(repacked(bundle, tmp_path / "b.zip", changed))
    assert (code, refused.count("\n")) == (1, 1)
    assert sign in refused


def test_a_repository_holds_bundles_by_chip_and_hash_and_nothing_else(bundle: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    folder = tmp_path / "bundles"
    for chip in ("gfx1010", "gfx1030"):
        (folder / chip).mkdir(parents=True)
    shutil.copy(bundle, folder / f"gfx1010/{digest}.zip")
    assert check(folder) == (0, "")
    shutil.copy(bundle, folder / f"gfx1030/{digest}.zip")
    shutil.copy(bundle, folder / f"gfx1010/{'0' * 64}.zip")
    (folder / "gfx1010/run.sh").write_text("echo")
    (folder / f"gfx1010/{'1' * 64}.zip").symlink_to(bundle)
    code, refused = check(folder)
    assert code == 1
    lines = [line.partition(str(folder))[2] for line in refused.splitlines()]
    assert len(lines) == 4
    assert sum("contains only CHIP/SHA256.zip" in line for line in lines) == 2
    assert any("not the SHA-256" in line for line in lines)
    assert any("belongs into the folder gfx1010" in line for line in lines)


def test_one_refused_bundle_does_not_hide_the_others(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "none.zip").write_bytes(b"")
    done = cli("submit", "--check", tmp_path / "none.zip", bundle, tmp_path / "absent.zip")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 2
    assert done.stdout.endswith("1 taken, 2 refused\n")


@pytest.mark.parametrize(
    ("arguments", "sign"),
    [
        (["submit", "nowhere", "--yes"], "nowhere"),
        (["submit", "a", "b"], "one run"),
        (["submit", "a", "--into", "b"], "--check"),
        (["submit", "a", "--label", "<b>"], "--label"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path: Path, arguments: list[str], sign: str) -> None:
    done = cli(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert sign in done.stderr
