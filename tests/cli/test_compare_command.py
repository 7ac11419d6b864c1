"""`rocmprobe compare` as a process: exit codes, forms of the answer, and what leaves the house."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from markdown_reading import faults
from runs import SMALL, Run, cli, environment, machine_file, run

from rocmprobe.process.processes import pid_namespace

#: Above the largest pid of Linux.
_NO_PROCESS = 4_194_305

HOSTILE = "x|y`` <script>alert(1)</script> @name #77 https://a.example/ \x1b[31m\u202e"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("compare")
    return run(folder / "run", "--simulate", machine_file(folder / "machine.toml"), *SMALL)


def changed(made: Run, path: Path, **fields: Any) -> Path:
    data = json.loads((made.folder / "results.json").read_text("utf-8"))
    first = data["outcomes"][0]
    data["outcomes"][0] = {**first, **fields.pop("outcome", {})}
    data["machine"]["facts"].update(fields.pop("facts", {}))
    path.write_text(json.dumps({**data, **fields}), "utf-8")
    return path


def test_a_run_is_no_change_to_itself_also_where_it_died_before_its_results(
    made: Run, tmp_path: Path
) -> None:
    died = tmp_path / "died"
    died.mkdir()
    shutil.copy(made.folder / "journal.jsonl", died)
    ended = cli("compare", made.folder, died)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("No change.\n")
    assert "Compared: 2 cases" in ended.stdout


def test_a_regression_is_told_in_every_form(made: Run, tmp_path: Path) -> None:
    facts = {
        "torch.version": {"value": "9.9", "source": "x"}, "odd": {"value": HOSTILE, "source": "x"},
        "torch.path": {"value": "/home/marvin/torch", "source": "x"},
    }  # fmt: skip
    new = changed(made, tmp_path / "new.json", outcome={"state": "crash"}, facts=facts)
    old, summary = made.folder / "results.json", tmp_path / "summary.md"
    summary.write_text("before\n", "utf-8")
    ended = cli("compare", old, new, env={"GITHUB_STEP_SUMMARY": str(summary), "COLUMNS": "200"})
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith("1 regression.\n")
    for words in ("regressed", "crash", "facts.torch.version", "9.9"):
        assert words in ended.stdout
    markdown = summary.read_text("utf-8")
    assert markdown.startswith("before\n\n## rocmprobe compare: 1 regression.\n")
    assert faults(markdown) == []
    answer = cli("compare", old, new, "--json", env={"GITHUB_ACTIONS": "true"})
    assert answer.returncode == 1
    data = json.loads(answer.stdout)
    assert (data["verdict"], data["worse"]) == ("1 regression", True)
    assert [(each["before"], each["after"]) for each in data["changed"]] == [("pass", "crash")]
    assert "marvin" not in ended.stdout + markdown + answer.stdout


def test_bad_files_are_one_line_and_exit_code_2(made: Run, tmp_path: Path) -> None:
    good = made.folder
    bad = {
        "cannot be read": tmp_path / "none.json",
        "schema_version is 99": changed(made, tmp_path / "later.json", schema_version=99),
        "contains no outcomes": changed(made, tmp_path / "empty.json", outcomes=[]),
    }
    for words, path in bad.items():
        ended = cli("compare", good, path)
        assert ended.returncode == 2
        assert words in ended.stderr
        assert str(path) in ended.stderr
        assert ended.stderr.count("\n") == 1


def test_in_a_github_job_nothing_printed_is_a_command_and_a_lost_summary_no_failure(
    made: Run, tmp_path: Path
) -> None:
    ended = cli(
        "compare",
        made.folder,
        made.folder,
        env={"GITHUB_STEP_SUMMARY": str(tmp_path), "GITHUB_ACTIONS": "true"},
    )
    first, *_, last = ended.stdout.splitlines()
    assert last == f"::{first.removeprefix('::stop-commands::')}::"
    assert ended.returncode == 0
    assert "no summary of the job" in ended.stderr


def unread(*arguments: object, **also: Any) -> subprocess.CompletedProcess[str]:
    """The command line as ``| head`` leaves it: nobody reads what it prints."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            [sys.executable, "-m", "rocmprobe", *map(str, arguments)], env=environment(), stdout=writing,
            text=True, timeout=300, check=False, **{"stderr": subprocess.PIPE, **also},
        )  # fmt: skip
    finally:
        os.close(writing)


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["compare", "compare --json", "report --format md", "list causes"])
def test_output_that_nobody_reads_is_no_regression(made: Run, command: str) -> None:
    name, *options = command.split()
    folders = {"compare": 2, "report": 1}.get(name, 0) * [made.folder]
    ended = unread(name, *options, *folders)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_nor_is_a_message_that_nobody_reads(tmp_path: Path) -> None:
    assert unread("compare", tmp_path, tmp_path, stderr=subprocess.STDOUT).returncode == 141


@pytest.mark.thorough
def test_a_run_that_nobody_watches_is_finished(tmp_path: Path) -> None:
    machine = machine_file(tmp_path / "machine.toml")
    # A folder that a killed run left behind is told before the run begins.
    left = Path(tempfile.gettempdir()) / f"rocmprobe-{pid_namespace()}-{_NO_PROCESS}-1-x"
    left.mkdir()
    ended = unread("run", "--simulate", machine, *SMALL, "--out", tmp_path / "out")
    assert (ended.returncode, ended.stderr) == (141, "")
    data = json.loads((tmp_path / "out/results.json").read_text("utf-8"))
    assert {each["state"] for each in data["outcomes"]} == {"pass"}
    assert not data["partial"]
    assert not left.exists()
