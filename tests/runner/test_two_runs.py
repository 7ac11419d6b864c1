"""Two runs at once on one device: both finish right, and neither disturbs the other's measurements."""

from __future__ import annotations

from pathlib import Path

from runs import PROBLEM, Background, machine_file, spans

from rocmprobe.detect.sensors import read_conditions
from rocmprobe.detect.tree import Tree
from rocmprobe.model import read_results


def test_measurements_of_two_runs_never_overlap(tmp_path: Path) -> None:
    machine = machine_file(tmp_path / "machine.toml", measure=0.05)
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    pair = [
        Background(
            tmp_path / name, "--simulate", machine, "--only", "throughput", "--settings", "vendor-off",
            "--problem", PROBLEM, env=env,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    for run in pair:
        run.process.communicate(timeout=300)
        results = read_results(run.folder / "results.json")
        assert not results.partial
        assert {outcome.state for outcome in results.outcomes} == {"pass"}
        # Of the CPU that stands in; a virtual one may have neither clock nor sensor.
        readable = set(read_conditions(Tree(Path("/")), None))
        for conditions in (outcome.conditions for outcome in results.outcomes):
            assert readable <= set(conditions.get("before", {})) & set(conditions.get("after", {}))
    measured = [spans(run.folder, check="throughput") for run in pair]
    assert all(len(of_one) == 2 for of_one in measured)
    assert all(begun < ended for of_one in measured for begun, ended in of_one)
    assert all(
        ended <= other_begun or other_ended <= begun
        for begun, ended in measured[0]
        for other_begun, other_ended in measured[1]
    )
