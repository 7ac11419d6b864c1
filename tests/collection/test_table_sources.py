"""What names lead to: files, folders, patterns, archives, lists; and what is left out of them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from gathered import command, outcome, put, results, table
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.collection import sources
from rocmprobe.collection.reading import Simulated, run_of
from rocmprobe.collection.sources import Refused, found, listed


def names(*given_names: object, by_folder: bool = False) -> list[str]:
    return [each.name for each in found([str(name) for name in given_names], by_folder)]


def labels(*given_names: object) -> list[str]:
    return [each.label for each in found([str(name) for name in given_names], True) if not each.refused]


def test_folders_patterns_and_files(tmp_path: Path) -> None:
    first, second = put(tmp_path / "a" / "results.json", {}), put(tmp_path / "b" / "c" / "results.json", {})
    (tmp_path / "a" / "report.html").write_text("no results")
    put(tmp_path / "a" / "manifest.json", {"label": "of a bundle that was unpacked"})
    (tmp_path / "latest").symlink_to("a")
    assert names(tmp_path) == [str(first), str(second)]
    assert set(names(tmp_path / "**" / "results.json")) >= {str(first), str(second)}
    assert names(first) == [str(first)]


def test_a_run_that_died_before_it_wrote_results_is_named(tmp_path: Path) -> None:
    kept = put(tmp_path / "node1" / "results.json", {})
    (tmp_path / "node1" / "journal.jsonl").write_text("{}\n")
    (tmp_path / "node7").mkdir()
    (tmp_path / "node7" / "journal.jsonl").write_text("{}\n")
    first, second = found([str(tmp_path)])
    assert first.name == str(kept)
    assert second.name == str(tmp_path / "node7")
    assert f"`rocmprobe report {tmp_path / 'node7'}`" in str(second.refused)


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    put(tmp_path / "a.json", {})
    (tmp_path / "again").symlink_to(tmp_path)
    assert len(names(tmp_path)) == 1


def test_names_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    both = list(found([str(tmp_path / "none.json"), str(tmp_path / "*.json")]))
    assert [str(each.refused).partition(";")[0] for each in both if each.refused] == [
        "no such file or folder",
        "no file matches",
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo") or os.geteuid() < 0, reason="no pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (each,) = found([str(tmp_path)])
    assert each.refused


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize(("make", "name"), [(zipped, "runs.zip"), (tarred, "runs.tar.gz")])
def test_archives_and_archives_in_them(tmp_path: Path, make, name: str) -> None:
    content = json.dumps(results()).encode()
    bundle = zipped(tmp_path / "bundle", {"results.json": content, "manifest.json": b"{}"}).read_bytes()
    path = make(tmp_path / name, {"node1/results.json": content, "node2/b.zip": bundle, "notes.txt": b"no"})
    (tmp_path / "bundle").unlink()
    every = list(found([str(path)], by_folder=True))
    assert [each.name for each in every] == [
        f"{path}:node1/results.json",
        f"{path}:node2/b.zip:results.json",
    ]
    assert [each.label for each in every] == ["node1", "node2"]
    assert all(each.content == content for each in every)


def test_a_bundle_says_what_its_machine_is_called(tmp_path: Path) -> None:
    manifest = json.dumps({"label": "Anna's desktop"}).encode()
    path = zipped(tmp_path / "b.zip", {"results.json": b"{}", "manifest.json": manifest})
    assert [each.label for each in found([str(path)])] == ["Anna's desktop"]


def test_folders_are_labels_where_asked_for(tmp_path: Path) -> None:
    put(tmp_path / "node1" / "2026" / "results.json", {})
    put(tmp_path / "node2.json", {})
    assert labels(tmp_path) == ["node2", "node1"]
    assert labels(tmp_path / "node1" / "2026" / "results.json") == ["2026"]


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar"])
@given(content=st.binary(max_size=200))
def test_any_bytes_as_an_archive_are_one_refusal_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("archive") / name
    path.write_bytes(content)
    every = list(found([str(path)]))
    assert all(each.refused for each in every)
    assert len(every) <= 1


@pytest.mark.parametrize("end", range(10, 300, 37))
def test_an_archive_cut_short_is_refused(tmp_path: Path, end: int) -> None:
    for make, name in ((zipped, "a.zip"), (tarred, "a.tar.gz")):
        path = make(tmp_path / name, {"results.json": json.dumps(results()).encode()})
        path.write_bytes(path.read_bytes()[:end])
        assert all(each.refused for each in found([str(path)]))


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LARGEST_FILE", 1000)
    monkeypatch.setattr(sources, "LARGEST_ARCHIVE", 5000)
    for make, name in ((zipped, "a.zip"), (tarred, "a.tar.gz")):
        path = make(tmp_path / name, {f"{number}.json": b" " * 100_000 for number in range(50)})
        every = list(found([str(path)]))
        assert all(each.refused for each in every)
        assert len(every) < 10


@given(st.lists(st.text("ab/. \u00e9", min_size=1).filter(str.strip), max_size=5))
def test_a_list_by_lines_and_by_nul(every: list[str]) -> None:
    wanted = [name for name in every if name.encode().strip()]
    assert listed(io.BytesIO("\n".join(every).encode())) == wanted
    assert listed(io.BytesIO(b"".join(name.encode() + b"\0" for name in every))) == wanted


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary())
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with pytest.raises(Refused):
        run_of(content)


@given(st.sampled_from(sorted(results())), JSON)
def test_anything_in_place_of_a_part_is_read_or_refused(name: str, value: object) -> None:
    content = json.dumps({**results(), name: value}).encode()
    with contextlib.suppress(Refused):
        assert run_of(content, simulated=True).sha256


@given(st.dictionaries(st.sampled_from(["kernel.release", "torch.version", "packages", "os.name"]), JSON))
def test_any_fact_is_one_short_line(facts: dict[str, object]) -> None:
    (subject,) = run_of(json.dumps(results(facts=facts)).encode()).subjects
    for value in (*subject.stack, *subject.chip, *subject.facts.values()):
        assert len(value) <= 200
        assert "\n" not in value


def test_another_schema_version_a_simulated_run_and_no_outcomes_are_refused() -> None:
    for changed, kind, words in (
        ({"schema_version": 9}, Refused, "schema_version is 9"),
        ({"schema_version": True}, Refused, "schema_version is True"),
        ({"simulated": "conv-hang"}, Simulated, "conv-hang"),
        ({"outcomes": []}, Refused, "no outcome"),
    ):
        with pytest.raises(kind, match=words):
            run_of(json.dumps({**results(), **changed}).encode())


def test_the_worst_of_several_problems_counts_and_what_was_expected_does_not() -> None:
    known = {"state": "hang", "source": "expectations.toml"}
    content = results(
        outcome("pass"), outcome("wrong", cause="x"), outcome("n/a"), outcome("xfail", "copy", expected=known)
    )
    rows = run_of(json.dumps(content).encode()).subjects[0].rows
    assert [(row.question.check, row.state, row.problems) for row in rows] == [
        ("gemm", "wrong", 3),
        ("copy", "hang", 1),
    ]


def test_the_same_file_twice_counts_once(tmp_path: Path) -> None:
    first = put(tmp_path / "a" / "results.json", results())
    (tmp_path / "b.json").write_bytes(first.read_bytes())
    made = table(tmp_path, by_folder=False)
    assert (made["read"]["results"], made["read"]["duplicates"]) == (1, 1)


def test_many_bad_files_are_a_few_lines_and_a_count(tmp_path: Path) -> None:
    put(tmp_path / "good.json", results())
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        for number in range(2000):
            archive.writestr(f"{number}.json", "{}")
    shown = command(tmp_path, "--format", "json")
    assert shown.returncode == 0, shown.stderr
    *lines, more, last = shown.stderr.splitlines()
    assert len(lines) == 10
    assert more == "rocmprobe: 1990 more left out"
    assert last == "rocmprobe: 1 results from 2001 files, 2000 refused"


def test_bad_files_do_not_end_the_rest(tmp_path: Path) -> None:
    put(tmp_path / "good.json", results())
    (tmp_path / "torn.json").write_text('{"schema_version": 1, "outcomes": [')
    (tmp_path / "binary.json").write_bytes(b"\x00\xff" * 100)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "digits.json").write_text(json.dumps(results()).replace("40", "4" * 5000))
    put(tmp_path / "foreign.json", {"name": "package"})
    put(tmp_path / "sim.json", results(simulated="conv-hang"))
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04")
    shown = command(tmp_path, "--format", "json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["read"]["results"] == 1
    *lines, last = shown.stderr.splitlines()
    assert len(lines) == 7
    assert all(line.startswith("rocmprobe: ") and ": " in line for line in lines)
    assert last == "rocmprobe: 1 results from 8 files, 1 left out as simulated, 6 refused"
