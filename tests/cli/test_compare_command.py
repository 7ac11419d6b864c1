"""`rocmprobe compare` on results of real runs: what it reports, its exit codes and its formats."""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown_reading import faults
from runs import SMALL, Run, cli, environment, machine_file, run

from rocmprobe.process.processes import pid_namespace

#: Above the largest pid of Linux.
_NO_PROCESS = 4_194_305

HOSTILE = "x|y`` <script>alert(1)</script> @name #77 https://a.example/ \x1b[31m\u202e"
EXAMPLES = Path(__file__).parents[2] / "reports" / "examples"
TIMES = ("fwd", "bwd_data", "bwd_weights", "fwd_bwd")
YARDSTICKS = ("gemm", "copy")
Change = Callable[[dict[str, Any]], None]


def steady(name: str) -> dict[str, Any]:
    """Return the results of an example with the times of an idle machine, however it was recorded."""
    text = (EXAMPLES / name / "results.json").read_text("utf-8")
    results: dict[str, Any] = json.loads(text.replace('"state": "slow"', '"state": "pass"'))
    throughput = [each["timings"] for each in results["outcomes"] if each["check"] == "throughput"]
    timings = [each for each in throughput if "gemm" in each]
    for found in timings:
        for key in (*TIMES, *YARDSTICKS):
            seconds = timings[0][key] if key in YARDSTICKS else found[key]
            found.update({key: seconds, f"{key}_p10": 0.98 * seconds, f"{key}_p90": 1.02 * seconds})
    return results


CPU = steady("cpu")
RDNA1 = steady("rdna1-rocm52-conv-dead")


def slower(factor: float, keys: tuple[str, ...] = TIMES, setting: str = "bypass") -> Change:
    """Multiply the times of a setting and their ranges."""

    def change(outcome: dict[str, Any]) -> None:
        if outcome["check"] == "throughput" and setting in (outcome["setting"], ""):
            for key in keys:
                for end in ("", "_p10", "_p90"):
                    outcome["timings"][f"{key}{end}"] *= factor

    return change


def scattered(outcome: dict[str, Any]) -> None:
    """Widen the measured ranges of all times."""
    for key in TIMES if outcome["check"] == "throughput" else ():
        outcome["timings"][f"{key}_p10"] /= 2
        outcome["timings"][f"{key}_p90"] *= 2


def more_memory(factor: float) -> Change:
    def change(outcome: dict[str, Any]) -> None:
        if outcome["check"] == "memory" and outcome["setting"] == "default":
            outcome["memory"]["peak_bytes"] = int(outcome["memory"]["peak_bytes"] * factor)

    return change


def state(name: str, check: str = "convolution") -> Change:
    """Give the cases of a check under ``default`` another state."""

    def change(outcome: dict[str, Any]) -> None:
        if outcome["check"] == check and outcome["setting"] == "default":
            outcome["state"] = name

    return change


def changed(*changes: Change, of: dict[str, Any] = CPU, **fields: Any) -> dict[str, Any]:
    data = copy.deepcopy(of)
    data["machine"]["facts"].update(
        {name: {"value": value, "source": "x"} for name, value in fields.pop("facts", {}).items()}
    )
    for change in changes:
        for outcome in data["outcomes"]:
            change(outcome)
    return {**data, **fields}


def written(folder: Path, *runs: dict[str, Any]) -> list[Path]:
    paths = [folder / f"{number}.json" for number in range(len(runs))]
    for path, data in zip(paths, runs):
        path.write_text(json.dumps(data), "utf-8")
    return paths


def compared(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of a comparison, after a check of its exit code."""
    ended = cli("compare", *written(folder, old, new), "--json")
    assert ended.stderr == ""
    answer: dict[str, Any] = json.loads(ended.stdout)
    assert ended.returncode == int(answer["worse"])
    return answer


CONVOLUTIONS = sum(
    each["check"] == "convolution" and each["setting"] == "default" for each in CPU["outcomes"]
)
MEMORY = sum(each["check"] == "memory" and each["setting"] == "default" for each in CPU["outcomes"])
LESS = "s" * (MEMORY > 1)


@pytest.mark.parametrize(("old", "new", "verdict", "worse"), [
    ((), (), "no change", False),
    ((), (state("crash"),), f"{CONVOLUTIONS} regressed", True),
    ((state("crash"),), (), f"{CONVOLUTIONS} fixed", False),
    ((state("crash"),), (state("hang"),), f"{CONVOLUTIONS} changed", False),
    ((), (state("blocked"),), f"{CONVOLUTIONS} without a result", True),
    ((), (state("skipped"),), f"{CONVOLUTIONS} without a result", False),
    ((state("error"),), (state("blocked"),), f"{CONVOLUTIONS} without a result", False),
    ((), (slower(1.2),), "1 setting slower", True),
    ((slower(1.2),), (), "1 setting faster", False),
    ((), (slower(1.05),), "no change", False),
    # The measured times scatter.
    ((scattered,), (scattered, slower(1.2)), "no change", False),
    ((scattered,), (scattered, slower(9)), "1 setting slower", True),
    # The device itself became slower.
    ((), (slower(2), slower(2, YARDSTICKS, "")), "no change", False),
    ((), (slower(1.5), slower(1.2, YARDSTICKS, "")), "1 setting slower", True),
    ((), (slower(1.15), slower(1.2, YARDSTICKS, "")), "no change", False),
    ((), (more_memory(1.2),), "no change", False),
    ((), (more_memory(1.3),), f"{MEMORY} case{LESS} with more memory", True),
    ((more_memory(1.3),), (), f"{MEMORY} case{LESS} with less memory", False),
    ((), (state("wrong"), slower(1.2)), f"{CONVOLUTIONS} regressed, 1 setting slower", True),
])  # fmt: skip
def test_the_verdict_on_two_runs(
    tmp_path: Path, old: tuple[Change, ...], new: tuple[Change, ...], verdict: str, worse: bool
) -> None:
    answer = compared(tmp_path, changed(*old), changed(*new))
    assert (answer["verdict"], answer["worse"]) == (verdict, worse)
    assert answer["compared"] == len(CPU["outcomes"])


def test_measurements_that_are_not_compared_have_a_reason(tmp_path: Path) -> None:
    def notes(new: dict[str, Any]) -> list[str]:
        answer = compared(tmp_path, CPU, new)
        assert (answer["verdict"], answer["measured"]) == ("no change", [])
        return answer["notes"]

    def untimed(outcome: dict[str, Any]) -> None:
        outcome["timings"] = {}

    assert notes(changed()) == []
    (busy,) = notes(changed(slower(2), slower(2, YARDSTICKS, "")))
    assert busy == (
        "Times of cpu are not compared, because its speed differs by a factor of 2.00 (check throughput)."
    )
    (unknown,) = notes(changed(slower(2), untimed))
    assert "its speed is unknown" in unknown
    (other,) = notes(changed(slower(9), more_memory(9), facts={"cpu.allowed": 999}))
    assert other.startswith("Times and memory of the CPU are not compared")


def test_the_busy_cpu_of_one_setting_says_nothing_about_the_gpu(tmp_path: Path) -> None:
    def on_gpu(outcome: dict[str, Any]) -> None:
        outcome.update(device="cuda:0", id=outcome["id"].replace("cpu/", "cuda:0/", 1))

    settings = copy.deepcopy(CPU["settings"])
    next(each for each in settings if each["name"] == "vendor-off")["device"] = "cpu"
    old = changed(on_gpu, settings=settings)
    new = changed(on_gpu, slower(2, YARDSTICKS, "vendor-off"), slower(1.2), settings=settings)
    answer = compared(tmp_path, old, new)
    assert answer["verdict"] == "1 setting slower"
    assert [note.partition(" are ")[0] for note in answer["notes"]] == ["Times of cpu"]


def gpu(**facts: Any) -> dict[str, Any]:
    data = changed(of=RDNA1)
    for name, value in facts.items():
        data["machine"]["gpus"][0][name]["value"] = value
    return data


@pytest.mark.parametrize(("new", "why"), [
    (gpu(pci_id="0x7340"), "0x7340"), (gpu(native_isa="gfx1030"), "(gfx1030 0x731f"),
    (changed(of=RDNA1, simulated="conv-hang"), "the simulated machine conv-hang"),
    (changed(of=RDNA1, simulated=None), "a real machine"),
    (changed(of=RDNA1, outcomes=[{**RDNA1["outcomes"][0], "id": "other"}]), "they have no test in common"),
])  # fmt: skip
def test_runs_that_cannot_be_compared_do_not_pass(tmp_path: Path, new: dict[str, Any], why: str) -> None:
    answer = compared(tmp_path, RDNA1, new)
    assert answer["verdict"].startswith("not comparable: ")
    assert why in answer["verdict"]
    assert (answer["worse"], answer["compared"], answer["changed"], answer["measured"]) == (True, 0, [], [])


def test_versions_and_configuration_that_differ_are_listed(tmp_path: Path) -> None:
    recommendation = copy.deepcopy(CPU["recommendation"])
    recommendation["verdict"] = "bypass"
    recommendation["configuration"].update(setting="bypass", env={"MIOPEN_FIND_MODE": "1"})
    facts = {
        "torch.version": "9.9", "rocm.version": "8.8", "miopen.version": "7.7", "amdgpu.version": "6.6",
        "kernel.release": "5.5", "torch.path": "/elsewhere",
    }  # fmt: skip
    new = changed(rocmprobe="4.4", recommendation=recommendation, facts=facts, partial=True)
    ended = cli("compare", *written(tmp_path, CPU, new), env={"COLUMNS": "200"})
    assert ended.returncode == 0
    lines = [line.split() for line in ended.stdout.splitlines()]
    different = {line[0]: line[-1] for line in lines[lines.index(["old", "new"]) + 1 :] if line}
    assert different == {
        "run": str(tmp_path / "1.json"), "partial": "yes", "rocmprobe": "4.4", "torch": "9.9", "rocm": "8.8",
        "miopen": "7.7", "amdgpu": "6.6", "kernel": "5.5", "verdict": "bypass", "setting": "bypass",
        "variables": "MIOPEN_FIND_MODE=1",
    }  # fmt: skip


def test_three_or_more_runs_are_rows_of_a_table(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    for name, data in (("a", CPU), ("b", {**RDNA1, "partial": True}), ("c", changed(state("wrong")))):
        (fleet / name).mkdir(parents=True)
        (fleet / name / "results.json").write_text(json.dumps(data), "utf-8")
    (fleet / "README.md").write_text("# Our machines", "utf-8")
    (fleet / "empty").mkdir()
    paths = sorted(fleet.iterdir())
    ended = cli("compare", *paths, env={"COLUMNS": "300"})
    assert ended.returncode == 0
    skipped = ended.stderr.splitlines()
    assert [line.partition(": skipped: ")[2].partition(": ")[0] for line in skipped] == [
        str(fleet / "README.md"), str(fleet / "empty" / "journal.jsonl")
    ]  # fmt: skip
    cpu, rdna1, wrong = (line for line in ended.stdout.splitlines() if str(fleet) in line)
    for word in (
        CPU["machine"]["facts"]["cpu.name"]["value"],
        f"torch {CPU['machine']['facts']['torch.version']['value']}",
        "native",
    ):
        assert word in cpu
    assert f"{RDNA1['recommendation']['verdict']}, partial" in rdna1
    assert "gfx1010 as gfx1030" in rdna1
    assert f"wrong={CONVOLUTIONS}" in wrong

    rows = list(csv.DictReader(io.StringIO(cli("compare", *paths, "--csv").stdout)))
    assert [row["run"] for row in rows] == [str(fleet / name) for name in "abc"]
    assert [int(row["wrong"]) for row in rows] == [0, 0, CONVOLUTIONS]
    assert sum(int(rows[0][name]) for name in ("pass", "skipped", "n/a", "slow")) == len(CPU["outcomes"])
    assert [row["partial"] for row in rows] == ["no", "yes", "no"]
    runs = json.loads(cli("compare", *paths, "--json").stdout)["runs"]
    assert [run["setting"] for run in runs] == [row["setting"] for row in rows]
    assert runs[2]["states"]["wrong"] == CONVOLUTIONS

    # Two runs have the same rows.
    two = cli("compare", paths[2], paths[3], "--csv").stdout.splitlines()
    assert len(two) == 3


def test_a_cell_of_csv_is_no_formula(tmp_path: Path) -> None:
    hostile = changed(rocmprobe="=cmd()", facts={"torch.version": "::error::x", "kernel.release": "a,\n\x1b"})
    ended = cli("compare", *written(tmp_path, CPU, hostile), "--csv")
    _, row = csv.DictReader(io.StringIO(ended.stdout))
    assert (row["rocmprobe"], row["torch"]) == ("'=cmd()", "'::error::x")
    assert "\x1b" not in ended.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("compare")
    return run(folder / "run", "--simulate", machine_file(folder / "machine.toml"), *SMALL)


def test_a_run_is_no_change_to_itself_also_where_it_died_before_its_results(
    made: Run, tmp_path: Path
) -> None:
    died = tmp_path / "died"
    died.mkdir()
    shutil.copy(made.folder / "journal.jsonl", died)
    ended = cli("compare", made.folder, died)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("No change.\nCompared: 2 cases.\n")


def test_a_regression_is_told_in_every_form(tmp_path: Path) -> None:
    facts = {"torch.version": "9.9", "kernel.release": HOSTILE, "amdgpu.version": "/home/marvin/amdgpu"}
    old, new = written(tmp_path, CPU, changed(state("crash"), facts=facts))
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", "utf-8")
    ended = cli("compare", old, new, env={"GITHUB_STEP_SUMMARY": str(summary), "COLUMNS": "200"})
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.startswith(f"{CONVOLUTIONS} regressed.\n")
    for words in ("crash", "torch", "9.9"):
        assert words in ended.stdout
    markdown = summary.read_text("utf-8")
    assert markdown.startswith(f"before\n\n## rocmprobe compare: {CONVOLUTIONS} regressed\n")
    assert faults(markdown) == []
    answer = cli("compare", old, new, "--json", env={"GITHUB_ACTIONS": "true"})
    assert answer.returncode == 1
    assert {(each["before"], each["after"]) for each in json.loads(answer.stdout)["changed"]} == {
        ("pass", "crash")
    }
    table = cli("compare", old, new, "--csv")
    assert "marvin" not in ended.stdout + markdown + answer.stdout + table.stdout


def test_many_changes_are_cut_on_the_terminal_and_complete_in_json(tmp_path: Path) -> None:
    def broken(outcome: dict[str, Any]) -> None:
        outcome.update(id=outcome["id"] + "x" * (outcome["setting"] == "x"), state="error")

    many = [{**each, "id": f"{each['id']}-{copied}"} for copied in range(3) for each in CPU["outcomes"]]
    old, new = written(tmp_path, changed(outcomes=many), changed(broken, of={**CPU, "outcomes": many}))
    printed = cli("compare", old, new, env={"COLUMNS": "200"}).stdout
    assert f"States ({len(many)})" in printed
    assert printed.count("regressed") == 101
    assert len(json.loads(cli("compare", old, new, "--json").stdout)["changed"]) == len(many)


@pytest.mark.parametrize(("arguments", "words"), [
    (("good",), "name two or more runs"), (("good", "good", "--csv", "--json"), "at most one of"),
    (("good", "none"), "cannot be read"), (("good", "later"), "schema_version is 99"),
    (("good", "empty"), "contains no outcomes"), (("none", "none", "none"), "cannot be read"),
])  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    runs = {"good": CPU, "later": {**CPU, "schema_version": 99}, "empty": {**CPU, "outcomes": []}}
    paths = dict(zip(runs, written(tmp_path, *runs.values())), none=tmp_path / "none.json")
    ended = cli("compare", *(paths.get(each, each) for each in arguments))
    assert (ended.returncode, ended.stdout) == (2, "")
    *skipped, last = ended.stderr.splitlines()
    assert words in last
    assert all("skipped: " in line for line in skipped)
    assert len(skipped) == (2 if arguments[0] == "none" else 0)


@pytest.mark.parametrize("odd", [None, True, "x", -1, 0, 1e300, 1e-300, 2**70, [], {}])
def test_odd_numbers_in_a_file_break_nothing(tmp_path: Path, odd: Any) -> None:
    def strange(outcome: dict[str, Any]) -> None:
        outcome["timings"] = dict.fromkeys(outcome["timings"], odd)
        outcome["memory"] = dict.fromkeys(outcome["memory"], odd)

    for pair in ((CPU, changed(strange)), (changed(strange), CPU), (changed(strange), changed(strange))):
        ended = cli("compare", *written(tmp_path, *pair), "--json")
        assert ended.returncode in (0, 1, 2), ended.stderr
        assert "Traceback" not in ended.stderr


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
