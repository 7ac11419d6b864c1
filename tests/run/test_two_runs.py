"""Two runs at once on one device: both finish right, neither disturbs the other's measurements, and none
waits for longer than it must, or without a word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runs import PROBLEM, SMALL, Background, journal, machine_file, run

from rocmprobe.detect.sensors import read_conditions
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import read_results
from rocmprobe.run.locks import SIMULATED

THROUGHPUT = ("--only", "throughput", "--settings", "vendor-off", "--problem", PROBLEM)
#: Has a device for itself until it is told to end.
HOLDER = """
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from rocmprobe.run.locks import DeviceLock
lock = DeviceLock(sys.argv[1], Path("/runs/another"))
lock.take(alone=True)
print(flush=True)
sys.stdin.read()
lock.let_go()
"""


@contextmanager
def held(env: dict[str, str]) -> Iterator[int]:
    """Another process has the simulated machines for itself; waits until it has. Yields its number."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, SIMULATED], env={**os.environ, **env}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout
    assert holder.stdout.readline() == "\n"
    yield holder.pid
    holder.communicate(timeout=60)


def measured(folder: Path) -> list[tuple[float, float]]:
    """From when to when the run had its device for itself."""
    return [(record["at"], record["until"]) for record in journal(folder) if record["record"] == "alone"]


def test_measurements_of_two_runs_never_overlap(tmp_path: Path) -> None:
    machine = machine_file(tmp_path / "machine.toml", measure=0.05)
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    pair = [
        Background(tmp_path / name, "--simulate", machine, *THROUGHPUT, env=env) for name in ("one", "two")
    ]
    for each in pair:
        each.process.communicate(timeout=300)
        results = read_results(each.folder / "results.json")
        assert not results.partial
        assert {outcome.state for outcome in results.outcomes} == {"pass"}
        # Of the CPU that stands in; a virtual one may have neither clock nor sensor.
        readable = set(read_conditions(Tree(Path("/")), None))
        for conditions in (outcome.conditions for outcome in results.outcomes):
            assert readable <= set(conditions.get("before", {})) & set(conditions.get("after", {}))
    one, two = (measured(each.folder) for each in pair)
    assert len(one) == len(two) == 2
    assert all(begun < ended for begun, ended in one + two)
    assert all(
        ended <= other_begun or other_ended <= begun
        for begun, ended in one
        for other_begun, other_ended in two
    )


def test_who_waits_says_for_whom_and_does_not_count_the_time(tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    machine = machine_file(tmp_path / "machine.toml", measure=0.05)
    with held(env) as holder:
        waiting = Background(tmp_path / "out", "--simulate", machine, *THROUGHPUT, env=env)
        assert waiting.process.stdout
        said = next(line for line in waiting.process.stdout if line.startswith("waiting"))
    assert re.fullmatch(
        rf"waiting for run /runs/another \(pid {holder}\) on {SIMULATED} since \d\d:\d\d:\d\d\n", said
    )
    waiting.process.communicate(timeout=300)
    records = journal(waiting.folder)
    queued, granted = (record for record in records if record["record"] == "queued")
    assert [each["pid"] for each in queued["by"]] == [holder]
    assert queued["waited"] is None
    waited = granted["waited"]
    (begun,) = (
        each["at"] for each in records if each["record"] == "intent" and each["case"] == queued["case"]
    )
    ended, outcome = next(
        (each["at"], each["outcome"])
        for each in records
        if each["record"] == "outcome" and each["outcome"]["id"] == queued["case"]
    )
    assert outcome["state"] == "pass"
    own = sum(attempt["seconds"] for attempt in outcome["attempts"])
    assert own + waited < ended - begun


def test_a_question_that_hangs_keeps_no_other_run_from_measuring(tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    hangs = machine_file(tmp_path / "hangs.toml", {"library": "miopen", "effect": "hang"}, first_call=600)
    works = machine_file(tmp_path / "works.toml", measure=0.05)
    stuck = Background(tmp_path / "stuck", "--simulate", hangs, *SMALL, env=env)
    assert stuck.reaches(lambda: "waiting" in {record["record"] for record in journal(stuck.folder)})
    other = run(tmp_path / "other", "--simulate", works, *THROUGHPUT, env=env)
    assert set(other.states.values()) == {"pass"}
    assert len(measured(other.folder)) == 2
    assert stuck.process.poll() is None
    stuck.kill()


def test_a_measurement_over_its_budget_gives_its_device_up(tmp_path: Path) -> None:
    """Before its question is settled: a hang is tried again, and the canary asked."""
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    fault = {"library": "miopen", "effect": "hang", "phase": "steady"}
    hangs = machine_file(tmp_path / "hangs.toml", fault, steady=4)
    stuck = Background(
        tmp_path / "stuck", "--simulate", hangs, *THROUGHPUT, "--skip", "*/vendor-off/*", env=env
    )
    notes = "rocmprobe-locks-*/*.json"
    assert stuck.reaches(lambda: any('"alone": true' in note.read_text() for note in tmp_path.glob(notes)))
    with held(env):
        assert {record["record"] for record in journal(stuck.folder)} >= {"intent", "alone", "trial"}
        assert "outcome" not in {record["record"] for record in journal(stuck.folder)}
    stuck.process.communicate(timeout=300)
    outcomes = read_results(stuck.folder / "results.json").outcomes
    assert {each.setting: each.state for each in outcomes} == {"default": "hang"}
