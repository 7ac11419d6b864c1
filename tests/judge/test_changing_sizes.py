"""What is made of the seconds that new input sizes cost: an hour of work, a finding, an answer of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import synthetic
from rows import every_row
from synthetic import diagnose, recommend

from rocmprobe.judge.findings.changing_sizes import NewSizes, new_sizes
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Outcome, Results
from rocmprobe.report.changing_sizes import changing_sizes
from rocmprobe.report.page import html
from rocmprobe.report.terminal.markdown import markdown


def measured(setting: str, new: float, known: float = 0.01, **fields: Any) -> Outcome:
    timings = {
        "new_size": new,
        "new_size_median": new,
        "new_size_max": 2 * new,
        "known_size": known,
        "sizes": 24,
    }
    outcome = Outcome(
        f"cuda:0/{setting}/changing-sizes/float32", "cuda:0", setting, "changing-sizes",
        "conv", "pass", timings=timings,
    )  # fmt: skip
    return replace(outcome, **fields)


def run(*outcomes: Outcome, changes: Any = ()) -> Results:
    results = synthetic.run(dict(changes))
    return replace(results, outcomes=(*results.outcomes, *outcomes))


def slow(results: Results) -> list[Any]:
    return [finding for finding in diagnose(results) if finding.id == "changing-sizes"]


def test_an_hour_of_work() -> None:
    each = NewSizes("cuda:0", "default", 36.0, 40.0, 0.4, 24)
    assert each.calls_an_hour == 100
    # Ten calls take 4 s, and 35.6 s more for the one with a new size.
    assert each.lost_minutes == pytest.approx(60 * 35.6 / 39.6)
    assert replace(each, known=50.0).lost_minutes == 0


@every_row(("new", "severity"), [(94.0, "warning"), (4.0, "info")])
def test_a_finding_names_the_setting_that_costs_the_least(new: float, severity: str) -> None:
    (finding,) = slow(run(measured("default", new), measured("find-fast", 0.2), measured("vendor-off", 0.1)))
    assert (finding.severity, finding.cause, finding.layer) == (severity, "cold-compile-slow", "miopen-find")
    assert finding.title.endswith(f"{new:g} s with MIOpen's defaults, and 0.1 s with PyTorch's own kernels")


@every_row(("default", "other"), [(0.9, 0.1), (4.0, 2.5), (94.0, None)])
def test_no_finding(default: float, other: float | None) -> None:
    others = [] if other is None else [measured("find-fast", other)]
    assert slow(run(measured("default", default), *others)) == []


def test_a_setting_that_is_wrong_or_was_not_right_in_the_check_is_no_answer() -> None:
    wrong = run(
        measured("default", 94.0), measured("find-fast", 0.1), measured("vendor-off", 0.2, state="wrong"),
        changes={"find-fast/convolution/*": "wrong"},
    )  # fmt: skip
    assert slow(wrong) == []
    assert "float32/changing-sizes" not in recommend(wrong).per  # type: ignore[union-attr]


def test_the_recommendation_has_an_answer_of_its_own_where_it_differs() -> None:
    found = recommend(run(measured("default", 94.0), measured("find-fast", 0.2)))
    assert found is not None
    assert found.per["float32/inference"]["setting"] == "default"
    assert found.per["float32/changing-sizes"] == {
        "verdict": "native-with-settings", "setting": "find-fast", "env": {"MIOPEN_FIND_MODE": "2"},
        "new_size_seconds": 0.2,
    }  # fmt: skip
    assert found.sentence.endswith(
        "For input sizes that keep changing, use the setting “find mode FAST”: a new size costs 0.2 s "
        "instead of 94 s."
    )
    (other,) = found.others.values()
    assert (other.setting, other.env["MIOPEN_FIND_MODE"]) == ("find-fast", "2")


@every_row("other", [0.08, 0.03])
def test_what_nobody_notices_is_no_reason(other: float) -> None:
    found = recommend(run(measured("default", 0.1), measured("find-fast", other)))
    assert found is not None
    assert "float32/changing-sizes" not in found.per
    assert "keep changing" not in found.sentence


def test_times_that_are_not_there_are_left_out() -> None:
    outcomes = (measured("default", 1.0, timings={"new_size": None, "sizes": 3}), measured("find-fast", 0.2))
    assert [each.setting for each in new_sizes(run(*outcomes).outcomes)] == ["find-fast"]


def test_the_report_shows_what_was_measured() -> None:
    # The report has a row for each setting.
    sizes = changing_sizes(run(measured("default", 36.0, 0.4), measured("find-fast", 0.72, 0.4)))
    assert sizes is not None
    assert sizes.table.rows[0] == ("default", "36 s", "72 s", "400 ms", "24", "100", "53.9")
    assert sizes.table.rows[1][5] == "5,000"
    text = markdown(summarize(run(measured("default", 36.0, 0.4), measured("find-fast", 0.72, 0.4))))
    assert "## Changing sizes" in text
    assert "| default | 36 s | 72 s | 400 ms | 24 | 100 | 53.9 |" in text
    assert "Changing sizes" not in markdown(summarize(run()))
    assert changing_sizes(run()) is None

    # The page has a section only where it was measured.
    with_sizes = html.page(summarize(run(measured("default", 36.0, 0.4))))
    assert 'id="h-sizes"' in with_sizes
    assert "36 s" in with_sizes[with_sizes.index('id="h-sizes"') :]
    assert 'id="h-sizes"' not in html.page(summarize(run()))
