"""`rocmprobe table`: what the table says, in each form of output."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
from gathered import command, outcome, put, results, table
from runs import CHECKOUT

from rocmprobe.cli import main
from rocmprobe.collection import store
from rocmprobe.collection.output import COLUMNS
from rocmprobe.model.results import SCHEMA_VERSION


def states(folder: Path, **chosen: str) -> list[dict[str, int]]:
    cells = table(folder)["cells"]
    return [cell["states"] for cell in cells if all(cell[name] == value for name, value in chosen.items())]


def test_a_cell_counts_machines_and_shows_disagreement(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path / f"node{number}" / "results.json", results())
        put(tmp_path / f"node{number}" / "again.json", results(day=2))
    put(tmp_path / "bad" / "results.json", results(outcome("hang", cause="timeout")))
    (cell,) = table(tmp_path)["cells"]
    assert list(cell["states"].items()) == [("hang", 1), ("pass", 3)]
    assert (cell["machines"], cell["runs"], cell["causes"]) == (4, 7, {"timeout": 1})


def test_the_latest_run_that_answered_counts_whatever_the_order_of_files(tmp_path: Path) -> None:
    put(tmp_path / "node" / "a.json", results(outcome("pass"), day=9))
    put(tmp_path / "node" / "b.json", results(outcome("crash"), day=1))
    put(tmp_path / "node" / "c.json", results(outcome("blocked"), day=20))
    assert states(tmp_path) == [{"pass": 1}]


def test_what_changed_on_a_machine_with_what_else_did(tmp_path: Path) -> None:
    put(tmp_path / "node" / "a.json", results(outcome("pass"), outcome("pass", "copy"), day=1))
    after = results(outcome("crash"), outcome("pass", "copy"), day=2, facts={"kernel.release": "6.9.0"})
    put(tmp_path / "node" / "b.json", after)
    (change,) = table(tmp_path)["changes"]
    assert (change["machine"], change["before"][:10], change["after"][:10]) == (
        "node", "2026-01-01", "2026-01-02",
    )  # fmt: skip
    (state,) = change["states"]
    assert (state["before"], state["after"], state["questions"], state["first"]["check"]) == (
        "pass", "crash", 1, "gemm",
    )  # fmt: skip
    assert change["facts"] == [{"name": "kernel.release", "before": "6.8.0", "after": "6.9.0"}]


def test_without_labels_machines_are_told_apart_by_their_hardware_and_kernel(tmp_path: Path) -> None:
    put(tmp_path / "a.json", results())
    put(tmp_path / "b.json", results(day=2))
    put(tmp_path / "c.json", results(day=3, facts={"kernel.release": "6.9.0"}))
    put(tmp_path / "d.json", results(day=4, gpu={"vram_bytes": 2**34}))
    made = table(tmp_path, by_folder=False)
    assert sorted(machine["runs"] for machine in made["machines"]) == [1, 1, 2]
    assert {machine["label"] for machine in made["machines"]} == {""}


def test_two_gpus_of_a_machine_that_differ_count_under_both_states(tmp_path: Path) -> None:
    both = results(outcome("pass"), outcome("crash", device="cuda:1"))
    both["machine"]["gpus"] *= 2
    put(tmp_path / "node" / "results.json", both)
    (cell,) = table(tmp_path)["cells"]
    assert (cell["states"], cell["machines"]) == ({"crash": 1, "pass": 1}, 1)


def test_runs_of_one_machine_with_two_torches_are_two_stacks(tmp_path: Path) -> None:
    put(tmp_path / "joined" / "old" / "results.json", results(outcome("crash")))
    put(
        tmp_path / "joined" / "new" / "results.json", results(outcome("pass"), facts={"torch.version": "2.9"})
    )
    put(tmp_path / "joined" / "results.json", {"schema_version": SCHEMA_VERSION, "members": []})
    made = table(tmp_path)
    found = {made["stacks"][cell["stack"]]["torch"]: cell["states"] for cell in made["cells"]}
    assert found == {"2.0.1": {"crash": 1}, "2.9": {"pass": 1}}
    assert (made["read"]["results"], made["read"]["refused"]) == (2, 0)


def test_configurations_say_on_how_many_machines(tmp_path: Path) -> None:
    def advised(setting: str) -> dict[str, object]:
        answer = {"setting": setting, "env": {"A": "1"}, "code": "", "layers": []}
        per = {"float16/training": {"verdict": "none", "setting": None}}
        return {"verdict": "vendor-off", "sentence": "", "configuration": answer, "per": per}

    for number, setting in enumerate(("vendor-off", "vendor-off", "bypass")):
        put(tmp_path / f"{number}" / "results.json", results(recommendation=advised(setting)))
    found = [
        (row["dtype"], row["setting"], row["machines"], row["of"])
        for row in table(tmp_path)["configurations"]
    ]
    assert found == [("", "vendor-off", 2, 3), ("", "bypass", 1, 3), ("float16", None, 3, 3)]


def test_simulated_and_partial_runs_are_marked(tmp_path: Path) -> None:
    put(tmp_path / "a" / "results.json", results(simulated="conv-hang"))
    put(tmp_path / "b" / "results.json", results(partial=True))
    assert table(tmp_path)["read"]["simulated_left_out"] == 1
    made = table(tmp_path, simulated=True)
    assert [stack["simulated"] for stack in made["stacks"]] == ["", "conv-hang"]
    assert [machine["partial"] for machine in made["machines"]] == [0, 1]
    assert [cell["partial"] for cell in made["cells"]] == [1, 0]


def test_csv_has_a_line_for_each_row_and_no_formula(tmp_path: Path) -> None:
    run = results(outcome("crash", cause="=HYPERLINK(1)"), outcome("pass", "copy"))
    put(tmp_path / "node" / "results.json", run)
    shown = command("--by-folder", tmp_path, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["label"], row["check"], row["state"]) for row in rows] == [
        ("node", "gemm", "crash"),
        ("node", "copy", "pass"),
    ]
    assert rows[0]["cause"] == "'=HYPERLINK(1)"
    assert len(rows[0]["sha256"]) == 64


def test_parquet_has_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    put(tmp_path / "node" / "results.json", results())
    shown = command("--by-folder", tmp_path, "-o", tmp_path / "rows.parquet")
    assert shown.returncode == 0, shown.stderr
    (row,) = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    assert tuple(row) == COLUMNS
    assert (row["label"], row["state"], row["partial"]) == ("node", "pass", False)


def test_parquet_without_its_library_is_one_line(tmp_path: Path) -> None:
    put(tmp_path / "node" / "results.json", results())
    (tmp_path / "pyarrow.py").write_text("raise ImportError")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{CHECKOUT}"}
    shown = command(tmp_path / "node", "-o", tmp_path / "rows.parquet", env=environment)
    assert shown.returncode == 2
    assert shown.stderr.splitlines() == [
        "rocmprobe: --format parquet needs pyarrow; install it with `pip install 'rocmprobe[table]'`, "
        "or use csv"
    ]
    assert not (tmp_path / "rows.parquet").exists()


def test_names_on_standard_input(tmp_path: Path) -> None:
    path = put(tmp_path / "node" / "results.json", results())
    shown = command("-", "--format", "json", input=f"{path}\n")
    assert json.loads(shown.stdout)["read"]["results"] == 1


@pytest.mark.parametrize(
    ("run", "words"),
    [(None, "no results in 0 files"), (results(simulated="x"), "add --simulated to read them")],
)
def test_nothing_to_gather_is_one_line(tmp_path: Path, run: object, words: str) -> None:
    if run:
        put(tmp_path / "results.json", run)
    shown = command(tmp_path)
    assert shown.returncode == 2
    assert words in shown.stderr.splitlines()[-1]
    assert "Traceback" not in shown.stderr


def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    put(tmp_path / "results.json", results())
    shown = command(tmp_path, "-o", tmp_path / "none" / "table.html")
    assert shown.returncode == 2
    assert "name another file with -o" in shown.stderr


def test_no_name_of_a_folder_above_the_machine_is_in_the_table(tmp_path: Path) -> None:
    put(tmp_path / "node" / "run" / "results.json", results())
    (machine,) = table(tmp_path)["machines"]
    assert machine["file"] == "node/run/results.json"


def test_nothing_is_left_behind_and_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "node" / "results.json", results())
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    shown = command(tmp_path / "node", "--format", "json", env={**os.environ, "TMPDIR": str(temporary)})
    assert shown.returncode == 0
    assert list(temporary.iterdir()) == []
    monkeypatch.setattr(store, "_TABLES", f"{store._TABLES} PRAGMA max_page_count = 12;")
    many = [outcome(setting=f"setting-{number}") for number in range(4000)]
    put(tmp_path / "many" / "results.json", results(*many))
    with pytest.raises(SystemExit) as ended:
        main(["table", str(tmp_path / "many"), "--format", "json"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rocmprobe: the rows do not fit (database or disk is full); set TMPDIR to")
