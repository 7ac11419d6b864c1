"""The page of odd and of large results: numbers that are none, and what no page could hold."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import pytest
import sample
from rendering import render, rows, unpacked
from rich.console import Console

from rocmprobe.judge.summary import summarize
from rocmprobe.model.results_file import read_results
from rocmprobe.report.page import html
from rocmprobe.report.terminal.ending import render_run

STARTS = (
    "steady", "cold_starts", "warm_starts",
    *(f"{kind}_first_call{end}" for kind in ("cold", "warm") for end in ("", "_min", "_max")),
)  # fmt: skip


def test_odd_numbers_do_no_harm(tmp_path: Path) -> None:
    odd = [-1, 0, 1e308, "12", None, True, 2**80]
    outcomes = tuple(
        sample.outcome(
            "bypass", check, "conv", "pass", problem=sample.PROBLEMS[0], direction="fwd",
            timings={"fwd": value, "fwd_bwd": value, "p10": value, **dict.fromkeys(STARTS, value)},
            memory={"peak_bytes": value},
            numerics={"rms_range": value, "rms_range_limit": value},
        )
        for value in odd for check in ("throughput", "memory", "convolution", "start-up")
    )  # fmt: skip
    page = render(dataclasses.replace(sample.healthy_cpu(), outcomes=outcomes), tmp_path).html
    assert 'id="h-validation"' in page


@pytest.mark.parametrize("odd", [-1, 0, 1e-320, 1e308, 2**80])
def test_odd_times_of_a_program_do_no_harm(tmp_path: Path, odd: float) -> None:
    problem = sample.PROBLEMS[0].text
    counts = {"fwd": 1, "bwd-data": 1, "bwd-weights": 1}
    recorded = {"problem": problem, "counts": counts}
    alone = sample.outcome(
        "default", "throughput", "conv", "pass", problem=sample.PROBLEMS[0],
        timings={"bwd_data": 1.0, **dict.fromkeys(("bwd_data_mean", "bwd_weights", "bwd_weights_mean"), odd)},
    )  # fmt: skip
    trained = sample.outcome(
        "default", "train-resnet", "train", "pass", numerics={"losses": {"0": odd}}, timings={"step": odd}
    )
    results = dataclasses.replace(
        sample.healthy_cpu(), outcomes=(alone, trained),
        options={"shapes": {"problems": [recorded]}},
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=200)
    rendered = render(results, tmp_path)
    render_run(summarize(read_results(rendered.results)), {}, console)
    assert 'id="h-program"' in rendered.html


@pytest.mark.thorough
def test_standard_run_stays_small(tmp_path: Path) -> None:
    rendered = render(sample.repeated(sample.rdna1(), 1545), tmp_path)
    assert len(rows(rendered.html)) == 1545
    assert rendered.page.stat().st_size < 2_000_000


@pytest.mark.thorough
def test_above_the_cap_it_is_said_what_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cap = 320_000
    monkeypatch.setattr(html, "CAP", cap)
    results = sample.repeated(sample.rdna1(), 300)
    rendered = render(results, tmp_path)
    banner = re.search(r'class="banner shortened".*', rendered.html)
    assert banner
    assert "results.json itself" in banner[0]
    assert rendered.page.stat().st_size < cap
    assert "disabled" in re.search(r'<button[^>]*id="save-json"[^>]*>', rendered.html)[0]  # type: ignore[index]
    assert rendered.junit.read_text("utf-8").count("<testcase ") == 300


def test_endless_lines_are_clipped_and_the_data_keeps_them(tmp_path: Path) -> None:
    endless = "x" * 10_000_000
    results = sample.rdna1()
    first = next(each for each in results.outcomes if each.state == "error")
    changed = dataclasses.replace(first, evidence=(endless, *first.evidence))
    findings = (dataclasses.replace(results.findings[0], title=endless),)
    rendered = render(dataclasses.replace(results, outcomes=(changed,), findings=findings), tmp_path)
    assert "[9998000 characters left out]" in rendered.html
    assert rendered.page.stat().st_size < 2_000_000
    assert rendered.junit.stat().st_size < 2_000_000
    assert unpacked(rendered.html, "rocmprobe-results")["findings"][0]["title"] == endless
