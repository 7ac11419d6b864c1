"""Two runs at once on one device: both finish right, and neither disturbs the other's measurements."""

from __future__ import annotations

from pathlib import Path

from runs import PROBLEM, Background, journal, machine_file

from rocmprobe.model import read_results


def measured(folder: Path) -> list[tuple[float, float]]:
    """From when to when each throughput case had the device."""
    begun: dict[str, float] = {}
    spans = []
    for record in journal(folder):
        if record["record"] == "intent" and record["question"]["check"] == "throughput":
            begun[record["case"]] = record["at"]
        elif record["record"] == "outcome" and record["outcome"]["id"] in begun:
            spans.append((begun[record["outcome"]["id"]], record["at"]))
    return spans


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
    spans = [measured(run.folder) for run in pair]
    assert all(len(of_one) == 2 for of_one in spans)
    assert all(begun < ended for of_one in spans for begun, ended in of_one)
    assert all(
        ended <= other_begun or other_ended <= begun
        for begun, ended in spans[0]
        for other_begun, other_ended in spans[1]
    )
