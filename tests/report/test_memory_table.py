"""The table of memory: measured beside predicted."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import sample
from rendering import render

from rocmprobe.model.results import Results
from rocmprobe.report.page.memory import memory

PROBLEM = sample.PROBLEMS[0]
MIB = 1 << 20
PEAKS = {
    "default": {"peak_bytes": 6 * MIB, "least_bytes": 3 * MIB},
    "vendor-off": {"peak_bytes": 17 * MIB, "predicted_bytes": 16 * MIB},
    "bypass": {"peak_bytes": 10 * MIB, "predicted_bytes": 9 * MIB},
}


def results(**changes: Any) -> Results:
    made = []
    for setting, peaks in PEAKS.items():
        kept = {"saved_bytes": 2 * MIB, "predicted_saved_bytes": 2 * MIB}
        common: dict[str, Any] = {"problem": PROBLEM, "device": "cpu"}
        state = changes.get(setting, "pass")
        made.append(sample.outcome(setting, "memory", "conv", state, memory={**kept, **peaks}, **common))
    return dataclasses.replace(sample.healthy_cpu(), outcomes=tuple(made))


def test_measured_beside_predicted() -> None:
    found = memory(results())
    assert found
    [(label, table)] = found.tables
    assert label == PROBLEM.text
    assert table.header == ("setting", "peak", "kept for backward")
    kept = "2 MiB; predicted 2 MiB"
    assert table.rows == (
        ("default", "6 MiB; at least 3 MiB", kept),
        ("vendor-off", "17 MiB; predicted 16 MiB", kept),
        ("bypass", "10 MiB; predicted 9 MiB", kept),
    )


def test_what_did_not_pass_says_so() -> None:
    found = memory(results(bypass="wrong"))
    assert found
    assert found.tables[0][1].rows[-1][1].endswith(" wrong: 10 MiB; predicted 9 MiB")


def test_nothing_measured_is_no_table() -> None:
    assert memory(dataclasses.replace(results(), outcomes=())) is None


@pytest.mark.parametrize("odd", [float("nan"), "12", None, 10**400, -1, True])
def test_odd_numbers_do_no_harm(odd: Any) -> None:
    broken = tuple(
        dataclasses.replace(outcome, memory=dict.fromkeys(outcome.memory, odd))
        for outcome in results().outcomes
    )
    assert memory(dataclasses.replace(results(), outcomes=broken))


def test_the_page_holds_it(tmp_path: Path) -> None:
    page = render(results(), tmp_path).html
    assert '<table class="memory">' in page
    assert "17 MiB; predicted 16 MiB" in page
