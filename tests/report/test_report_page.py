"""The page's text and structure, without a browser; and pages of odd and of large results."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
import sample
from markupsafe import Markup
from rendering import Rendered, render, rows, unpacked
from rich.console import Console

from rocmprobe.judge.summary import summarize
from rocmprobe.knowledge.causes import cause
from rocmprobe.model.results import Fact, Machine, Outcome, Results
from rocmprobe.model.results_file import read_results
from rocmprobe.model.states import STATES
from rocmprobe.report import ladder, tables
from rocmprobe.report.page import html
from rocmprobe.report.page.bars import chart
from rocmprobe.report.terminal.ending import render_run
from rocmprobe.report.terminal.markdown import markdown


def test_worst_state_wins_in_a_cell(tmp_path: Path) -> None:
    problem = sample.PROBLEMS[0]
    states = ("pass", "hang", "slow")
    outcomes = tuple(
        sample.outcome(
            "default", "convolution", "conv", state, problem=problem, direction="fwd", message=state
        )
        for state in states
    )
    page = render(dataclasses.replace(sample.healthy_cpu(), outcomes=outcomes), tmp_path).html
    matrix = page[page.index('<table class="matrix">') :]
    cells = re.findall(r'<td><a class="state (\w+)"[^>]*title="([^"]*)"', matrix)
    assert cells == [("bad", "hang: hang")]


def test_every_state_has_its_pytest_outcome(tmp_path: Path) -> None:
    expected = {
        "pass": "Passed", "slow": "Passed", "xpass": "XPassed", "xfail": "XFailed", "wrong": "Failed",
        "error": "Failed", "crash": "Failed", "hang": "Failed", "flaky": "Failed", "aborted": "Failed",
        "blocked": "Skipped", "n/a": "Skipped", "skipped": "Skipped", "probe-error": "Error",
    }  # fmt: skip
    outcomes = tuple(
        sample.outcome(
            "default", "convolution", "conv", state, problem=sample.PROBLEMS[0], message=f"why {state}"
        )
        for state in expected
    )
    outcomes = tuple(dataclasses.replace(each, id=f"case {each.state}") for each in outcomes)
    page = render(dataclasses.replace(sample.healthy_cpu(), outcomes=outcomes), tmp_path).html
    found = {row.state: row.result for row in rows(page)}
    assert found == expected
    assert all(row.reason == f"why {row.state}" for row in rows(page))


def test_same_id_twice_gives_two_rows(tmp_path: Path) -> None:
    twice = (sample.rdna1().outcomes[0],) * 2
    page = render(dataclasses.replace(sample.rdna1(), outcomes=twice), tmp_path).html
    assert [row.name.endswith(" #2") for row in rows(page)] == [False, True]


def test_results_are_embedded_whole(rdna1: Rendered, hostile: Rendered) -> None:
    for rendered in (rdna1, hostile):
        assert unpacked(rendered.html, "rocmprobe-results") == json.loads(rendered.results.read_text("utf-8"))


def test_texts_for_issues_are_embedded(rdna1: Rendered) -> None:
    texts = unpacked(rdna1.html, "rocmprobe-issues")
    assert list(texts) == ["Issue text", "Markdown"]
    assert set(texts) == set(re.findall(r'data-issue="([^"]*)"', rdna1.html))
    assert "Convolution through MIOpen is broken" in texts["Markdown"]


def test_page_asks_for_nothing_outside_itself(rdna1: Rendered) -> None:
    assert re.findall(r"<(?!a\b)\w[^>]*\s(?:src|href)=", rdna1.html) == []
    assert "<link" not in rdna1.html


@pytest.mark.parametrize(
    "change", ["partial", "unfinished", "no recommendation", "no outcomes", "nothing at all"]
)
def test_runs_that_stopped_early_still_make_a_page(change: str, tmp_path: Path) -> None:
    results = sample.rdna1()
    changes: dict[str, dict] = {
        "partial": {"partial": True},
        "unfinished": {"finished": None, "partial": True},
        "no recommendation": {"recommendation": None, "findings": (), "partial": True},
        "no outcomes": {"outcomes": ()},
        "nothing at all": {
            "outcomes": (), "trials": (), "findings": (), "settings": (), "problems": (),
            "machine": Machine(), "recommendation": None, "partial": True, "started": "",
        },
    }  # fmt: skip
    page = render(dataclasses.replace(results, **changes[change]), tmp_path).html
    assert ("Partial run" in page) == ("partial" in changes[change])
    assert 'id="results-table"' in page


def test_shell_block_quotes_values_and_leaves_out_what_is_no_name(tmp_path: Path) -> None:
    results = sample.rdna1()
    recommendation = results.recommendation
    assert recommendation
    configuration = dataclasses.replace(recommendation.configuration, env={"A": "x; rm y", "B C": "1"})
    recommendation = dataclasses.replace(recommendation, configuration=configuration)
    page = render(dataclasses.replace(results, recommendation=recommendation), tmp_path).html
    assert str(Markup.escape("export A='x; rm y'")) in page
    assert "export B C" not in page


def test_findings_explain_their_cause_once(tmp_path: Path) -> None:
    results = sample.rdna1()
    twice = (*results.findings[:1] * 2, results.findings[-1])
    page = render(dataclasses.replace(results, findings=twice), tmp_path).html
    about = cause("miopen-no-solver")
    assert page.count(str(Markup.escape(about.explanation[:60]))) == 1
    assert page.count(f'href="{about.links[0]}"') == 1
    assert page.count("About this cause") == 1, "nothing is known of the other"


def test_warnings_stand_above_the_verdict(tmp_path: Path) -> None:
    results = sample.rdna1()
    machine = results.machine
    gpu = dataclasses.replace(machine.gpus[0], busy_percent=Fact(97, "gpu_busy_percent"))
    variables = {
        **machine.variables, "MIOPEN_FIND_MODE": Fact("1", "environment"),
        "HIP_VISIBLE_DEVICES": Fact("0", "environment"),
    }  # fmt: skip
    machine = dataclasses.replace(machine, gpus=(gpu,), variables=variables)
    page = render(dataclasses.replace(results, machine=machine, partial=True), tmp_path).html
    above = page[page.index("<body>") : page.index('<header class="verdict')]
    titles = re.findall(r'class="banner (\w+)"', above)
    assert titles == ["simulated", "partial", "override", "dirty", "busy"]
    assert "passed to every trial: HIP_VISIBLE_DEVICES." in above
    assert "those of “as-found”: MIOPEN_FIND_MODE." in above
    assert "97 % busy" in above


@pytest.mark.parametrize(
    ("states", "caption"),
    [
        (
            ("pass", "slow", "crash", None),
            "everything up to Elementwise works; GEMM is the first layer that fails.",
        ),
        (("error", "blocked"), "Copy is the first layer that fails."),
        (("pass", "n/a", "wrong"), "everything up to Copy works; GEMM is the first layer that fails."),
        (
            ("pass", None, "skipped", "hang"),
            "Copy works; im2col fails. Lower layers without a result: Elementwise, GEMM.",
        ),
        ((None, "probe-error", "wrong"), "GEMM fails. Lower layers without a result: Copy, Elementwise."),
        (("pass", "pass", "n/a"), "every layer that applies works."),
        (("pass", None), "no layer fails, but not every layer could be tested."),
    ],
)
def test_the_ladder_names_no_rung_that_was_not_learned(states: tuple, caption: str) -> None:
    names = ("Copy", "Elementwise", "GEMM", "im2col")
    rungs = [ladder.Rung(name, STATES.get(state), "", "") for name, state in zip(names, states)]
    assert ladder.ladder_caption(rungs) == f"Setting “default”: {caption}"


def test_a_table_has_no_empty_column() -> None:
    answers = {each: {"verdict": "native", "setting": "default", "env": {}} for each in ("float32/training",)}
    assert tables.per_rows(answers).header == ("dtype", "purpose", "verdict", "setting")
    answers["float16/training"] = {"verdict": "native-with-settings", "setting": "a", "env": {"A": "1"}}
    assert [row[-1] for row in tables.per_rows(answers).rows] == ["", "A=1"]


def test_settings_that_are_level_are_said_to_be(tmp_path: Path) -> None:
    results = sample.rdna1()
    assert results.recommendation
    rows = ({"setting": "bypass", "seconds": 0.2, "level": True}, {"setting": "cpu", "level": False})
    cost = "speed is the same as bypass (difference within noise)"
    changed = dataclasses.replace(results.recommendation, alternatives=rows, cost=cost)
    results = dataclasses.replace(results, recommendation=changed)
    page = render(results, tmp_path).html
    table = page[page.index('id="h-alternatives"') :]
    assert "<th" in table
    assert re.findall(r">(level|yes|no)<", table[: table.index("</table>")]) == ["level", "yes", "no"]
    for paper in (page, markdown(summarize(results))):
        assert cost in paper


def test_the_longest_bar_of_a_chart_fills_the_width() -> None:
    label, rows = chart("times", [("fast", "first", 1.0, "1 s"), ("slow", "second", 2**1000, "long")])
    assert (label, [row.bar.note for row in rows]) == ("times", ["1 s", "long"])
    assert [row.bar.length for row in rows] == [pytest.approx(0, abs=1e-9), 100.0]


def test_wrong_results_show_where_they_are_off(tmp_path: Path) -> None:
    lines = (
        "rms_range is 0.07",
        "error map: 2 row(s) over 2 channel(s)",
        "     0 ..#+",
        "     1 ....",
        "a log",
    )
    wrong = sample.outcome(
        "default", "convolution", "conv", "wrong", problem=sample.PROBLEMS[0], direction="fwd", evidence=lines
    )
    results = sample.rdna1()
    page = render(dataclasses.replace(results, outcomes=(wrong, *results.outcomes)), tmp_path).html
    [drawn] = re.findall(r"<figcaption><a href=\"#o0\">[^<]*</a></figcaption><pre[^>]*>([^<]*)</pre>", page)
    assert drawn == "     0 ..#+\n     1 ...."


def test_devices_get_a_ladder_and_a_matrix_each(tmp_path: Path) -> None:
    first: Results = sample.rdna1()
    second: tuple[Outcome, ...] = sample.healthy_cpu().outcomes
    page = render(dataclasses.replace(first, outcomes=(*first.outcomes, *second)), tmp_path).html
    assert page.count('<ol class="ladder">') == page.count('<table class="matrix">') == 2
    assert "Tests from layer to layer on cuda:0" in page
    assert "Tests from layer to layer on cpu" in page


def test_a_page_of_a_run_that_goes_on_says_so_and_reloads_itself() -> None:
    page = html.page(summarize(dataclasses.replace(sample.rdna1(), finished=None, partial=True), live=True))
    assert '<meta http-equiv="refresh"' in page
    assert "The run goes on" in page
    assert "--resume" not in page.partition("<h2")[0]


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
