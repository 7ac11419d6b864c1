"""A run held against a former one: states, exit code, and what is kept for --resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runs import PROBLEM, SMALL, Run, machine_file, resume, run

from rocmprobe import pytest_plugin
from rocmprobe.model.results import SCHEMA_VERSION, Outcome, Results
from rocmprobe.model.results_file import write_results
from rocmprobe.simulate.machines import load_machine

DEFAULT, OFF, GONE = (
    f"cuda:0/{setting}/convolution/{PROBLEM}/fwd" for setting in ("default", "vendor-off", "bypass")
)


def former(path: Path, machine: Path, states: Mapping[str, str]) -> Path:
    """Results of an earlier run on the same machine, which came to these ``states``."""
    outcomes = tuple(
        Outcome(name, "cuda:0", name.split("/")[1], "convolution", "conv", state)
        for name, state in states.items()
    )
    simulated = load_machine(str(machine))
    write_results(
        Results(SCHEMA_VERSION, "0", "2026-01-02T03:04:05Z", None, True, simulated.name, {},
                simulated.machine, (), (), (), outcomes),
        path,
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What worked fails, what failed works, and one question is not asked any more."""
    folder = tmp_path_factory.mktemp("baseline")
    machine = machine_file(folder / "machine.toml", {"library": "miopen", "effect": "raise"})
    old = former(folder / "old.json", machine, {DEFAULT: "pass", OFF: "error", GONE: "pass"})
    return run(folder / "new", "--simulate", machine, *SMALL, "--baseline", old, "--fail-on", "regressions")


def told(made: Run) -> list[tuple[str, str | None, str | None, str]]:
    assert made.results.changes is not None
    return [(each.id, each.before, each.after, each.kind) for each in made.results.changes.changed]


EXPECTED = [
    (DEFAULT, "pass", "error", "regression"), (OFF, "error", "pass", "mended"),
    (GONE, "pass", None, "missing"),
]  # fmt: skip


def test_what_changed_is_told_everywhere(made: Run) -> None:
    assert made.ended.returncode == 1, made.ended.stderr
    assert told(made) == EXPECTED
    assert made.states == {DEFAULT: "error", OFF: "xpass"}
    assert {"regressions", "unexpected-passes", "native-convolution"} <= {
        each.id for each in made.results.findings
    }
    printed = " ".join(made.ended.stdout.split())
    assert "compared with the run of 2026-01-02 03:04 UTC: 1 regressed, 1 fixed, 1 missing" in printed
    assert "2 cases in " in printed
    assert ": 1 passed, expected to fail, 1 failed" in printed
    page = (made.folder / "report.html").read_text("utf-8")
    assert "Changes since the baseline" in page
    assert "expected to fail, but works" in page
    assert 'name="expected" value="its state was error in the baseline' in (
        made.folder / "junit.xml"
    ).read_text("utf-8")


def test_a_run_that_is_taken_up_keeps_its_baseline(made: Run, tmp_path: Path) -> None:
    begun = ("run", "baseline", "plan")
    lines = (made.folder / "journal.jsonl").read_text("utf-8").splitlines()
    kept = [line for line in lines if json.loads(line)["record"] in begun]
    assert len(kept) == len(begun)
    (tmp_path / "journal.jsonl").write_text("\n".join(kept) + "\n", "utf-8")
    again = resume(tmp_path, "--fail-on", "regressions")
    assert again.ended.returncode == 1, again.ended.stderr
    assert told(again) == EXPECTED


def test_pytest_counts_an_unexpected_pass_as_one(made: Run) -> None:
    item: Any = SimpleNamespace(stash=pytest.Stash())
    report: Any = SimpleNamespace(when="call", passed=True)
    item.stash[pytest_plugin._OUTCOME] = made.outcomes[OFF]
    hook: Any = pytest_plugin.pytest_runtest_makereport(item, report)
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)
    assert report.wasxfail.startswith("reason: its state was error in the baseline")
