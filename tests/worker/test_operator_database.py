"""The sweep over PyTorch's operators: what it finds, what it leaves out, and how a run keeps going."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rows import every_row
from runs import CHECKOUT, Run, environment, machine_file, rocmprobe, run

from rocmprobe.checks.opinfo import DTYPES, group, skip_reason
from rocmprobe.text.tables import table

SWEPT = ("--only", "elementwise", "--only", "*/operator/float32/e*", "--level", "standard")


def operators(made: Run) -> dict[str, Any]:
    return {each.operator: each for each in made.outcomes.values() if each.check == "operator"}


def test_every_row_of_the_table_has_a_reason_and_a_source() -> None:
    for row in table("operators")["unjudged"]:
        assert row["names"]
        assert row["reason"]
        assert row["source"]
        assert set(row.get("dtypes", DTYPES)) <= set(DTYPES)


@every_row(
    ("name", "dtype", "reason"),
    [
        ("rand_like", "float32", "random"),
        ("empty_strided", "float32", "uninitialised"),
        ("nn.functional.grid_sample", "float16", "pixel"),
        ("nn.functional.grid_sample", "float32", None),
        ("nonzero", "float16", None),
    ],
)
def test_what_is_left_out(name: str, dtype: str, reason: str | None) -> None:
    found = skip_reason(name, dtype)
    assert found is None if reason is None else found is not None and reason in found


@every_row(
    ("name", "expected"),
    [
        ("nn.functional.pad.reflect", "nn"),
        ("nonzero", "n"),
        ("T", "t"),
        ("torch.ops.aten.x", "t"),
        ("_x", "_"),
    ],
)
def test_the_group_of_an_operator(name: str, expected: str) -> None:
    assert group(name) == expected


@pytest.mark.thorough
def test_without_expecttest_the_sweep_is_not_applicable(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    blocked = tmp_path / "blocked"
    (blocked / "expecttest").mkdir(parents=True)
    (blocked / "expecttest" / "__init__.py").write_text('raise ImportError("No module named expecttest")')
    made = run(
        tmp_path / "out", "--device", "cpu", "--level", "standard", "--only", "operator",
        "--only", "elementwise", env={"PYTHONPATH": str(blocked)},
    )  # fmt: skip
    found = [each for each in made.outcomes.values() if each.check == "operator"]
    assert {each.state for each in found} == {"n/a"}
    assert "needs the packages expecttest and numpy" in found[0].evidence[0]


@pytest.mark.thorough
def test_each_failure_costs_one_operator(tmp_path: Path) -> None:
    """On a machine on which one operator computes wrong numbers, one raises, one crashes and one hangs.

    One test, because several would make this slow run once in each process.
    """
    pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    machine = machine_file(
        tmp_path / "machine.toml",
        {"library": "hip", "effect": "wrong", "operator": "^erf$"},
        {"library": "hip", "effect": "raise", "operator": "^erfc$", "message": "no kernel image"},
        {"library": "hip", "effect": "signal", "signal": "SIGSEGV", "operator": "^erfinv$"},
        {"library": "hip", "effect": "hang", "operator": "^exp2$"},
        first_call=3, steady=60,
    )  # fmt: skip
    faulty = run(tmp_path / "out", "--simulate", machine, *SWEPT)
    found = operators(faulty)
    bad = {name: each.state for name, each in found.items() if each.state != "pass"}
    assert bad == {"erf": "wrong", "erfc": "error", "erfinv": "crash", "exp2": "hang"}
    assert {"eq", "expand", "eye"} <= found.keys() - bad.keys()
    # A group shares a process until it ends.
    passed = [each.trial for each in found.values() if each.works]
    assert len(set(passed)) < len(passed) / 2
    [finding] = [each for each in faulty.results.findings if each.id == "controls"]
    assert finding.severity == "warning"
    assert all(name in finding.title for name in bad)

    page = (faulty.folder / "report.html").read_text("utf-8")
    section = page.partition('<section aria-labelledby="h-operators">')[2].partition("</section>")[0]
    assert "Operators with wrong results or errors on this card" in section
    assert len(re.findall("<code>rocmprobe repro ", section)) == 4
    ended = rocmprobe("repro", faulty.folder / "results.json", found["erf"].id)
    assert ended.returncode == 0, ended.stderr
    script = tmp_path / "script.py"
    script.write_text(ended.stdout, "utf-8")
    again = subprocess.run(
        [sys.executable, str(script), "cpu"], capture_output=True, text=True, env=environment(), check=False
    )
    # The CPU has no such fault.
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith("pass output 0")


def test_the_benchmark_found_no_false_alarm() -> None:
    import json

    for name in ("operators", "operators_torch_1.13"):
        figures = json.loads((CHECKOUT / f"benchmarks/results/{name}.json").read_text())
        assert figures["runs"] >= 1
        assert figures["false_alarms"] == []
        assert max(figures["largest_share_of_limit"].values()) <= 1
