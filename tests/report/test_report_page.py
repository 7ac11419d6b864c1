"""The page's text and structure, without a browser."""

from __future__ import annotations

import dataclasses
import html as stdlib_html
import io
import json
import platform
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
import sample
from rendering import Rendered, render
from rich.console import Console

from rocmprobe.model import (
    BadInput,
    Estimate,
    Fact,
    Machine,
    Outcome,
    Results,
    StepTime,
    TrainingTime,
    read_results,
)  # fmt: skip
from rocmprobe.report import html
from rocmprobe.report.terminal import render_run


class Outline(HTMLParser):
    """Elements in document order, with their attributes and the text right inside them."""

    VOID = frozenset({"meta", "img", "br", "input", "source", "link"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self._open: list[list[str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        text: list[str] = []
        self.elements.append((tag, {name: value or "" for name, value in attrs}, text))
        if tag not in self.VOID:
            self._open.append(text)

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag not in self.VOID:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].append(data)

    def texts(self, tag: str) -> list[str]:
        return ["".join(text).strip() for name, _, text in self.elements if name == tag]


def undated(page: str) -> str:
    return re.sub(r"Report generated on \S+ at \S+", "", page)


def test_first_screen_stands_in_order_above_the_pytest_html_table(rdna1: Rendered) -> None:
    page = rdna1.html
    marks = [
        "SIMULATED", "ISA override", "Convolution through MIOpen is broken",
        "export HSA_OVERRIDE_GFX_VERSION=10.3.0", "rocmprobe.bypass.install()",
        "rocmprobe run --verify results.json", "medium: High: 15 of 15", "convolution in bfloat16",
        'id="h-identity"', 'id="h-findings"', 'id="h-advice"', "AMD&#39;s own wheels for gfx1010",
        'class="ladder"', 'class="matrix"', 'id="h-per"', 'id="h-throughput"', 'id="h-start-up"',
        'id="h-validation"', 'id="h-memory"', 'id="h-alternatives"', 'id="h-unlearned"',
        'id="h-evidence"', 'id="h-environment"', 'id="rocmprobe-results"', 'id="results-table"',
    ]  # fmt: skip
    body = page[page.index("<body>") :]
    places = [body.index(mark) for mark in marks]
    assert places == sorted(places)


def test_matrix_has_a_cell_for_each_problem_direction_and_setting(rdna1: Rendered) -> None:
    page = rdna1.html
    matrix = page[page.index('<table class="matrix">') :]
    outline = Outline(matrix[: matrix.index("</table>")])
    cells = [attrs for tag, attrs, _ in outline.elements if tag == "a"]
    assert len(cells) == len(sample.PROBLEMS) * 3 * 4
    assert sum("bad" in cell["class"] for cell in cells) == len(sample.PROBLEMS) * 3 * 2
    assert outline.texts("th")[2:6] == ["default", "gemm-only", "vendor-off", "bypass"]
    for cell in cells:
        assert f'id="{cell["href"][1:]}"' in page


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


def test_many_settings_make_a_compact_matrix(tmp_path: Path) -> None:
    outcomes = tuple(
        sample.outcome(
            f"setting-{n}", "convolution", "conv", "pass", problem=sample.PROBLEMS[0], direction="fwd"
        )
        for n in range(9)
    )
    page = render(dataclasses.replace(sample.healthy_cpu(), outcomes=outcomes), tmp_path).html
    assert '<table class="matrix compact">' in page


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
    found = {}
    for tests in pytest_html_data(page)["tests"].values():
        [test] = tests
        found[test["state"]] = test["result"]
        assert f"why {test['state']}" in test["log"]
    assert found == expected


def pytest_html_data(page: str) -> dict:
    blob = re.search(r'data-jsonblob="([^"]*)"', page)
    assert blob
    return json.loads(stdlib_html.unescape(blob[1]))


def test_same_id_twice_gives_two_rows(tmp_path: Path) -> None:
    twice = (sample.rdna1().outcomes[0],) * 2
    page = render(dataclasses.replace(sample.rdna1(), outcomes=twice), tmp_path).html
    assert len(pytest_html_data(page)["tests"]) == 2


def test_environment_is_that_of_the_run_and_nothing_names_this_machine(rdna1: Rendered) -> None:
    page, junit = rdna1.html, rdna1.junit.read_text("utf-8")
    environment = pytest_html_data(page)["environment"]
    assert environment["PyTorch"] == "1.13.1+rocm5.2"
    assert not {"Python", "Platform", "Packages", "Plugins"} & set(environment)
    secrets = [sys.prefix, sys.executable, tempfile.gettempdir() + "/", str(Path(html.__file__).parent)]
    secrets += [platform.node()] if len(platform.node()) > 3 else []
    for text in (page, junit):
        assert not [secret for secret in secrets if secret in text]


def test_same_page_twice(rdna1: Rendered, tmp_path: Path) -> None:
    again = render(sample.rdna1(), tmp_path)
    assert undated(again.html) == undated(rdna1.html)
    assert again.junit.read_text("utf-8") == rdna1.junit.read_text("utf-8")


def test_results_are_embedded_whole(rdna1: Rendered, hostile: Rendered) -> None:
    for rendered in (rdna1, hostile):
        embedded = re.search(
            r'<script type="application/json" id="rocmprobe-results">(.*?)</script>', rendered.html
        )
        assert embedded
        assert json.loads(embedded[1]) == json.loads(rendered.results.read_text("utf-8"))
        assert not set("<>&\u2028\u2029") & set(embedded[1])


def test_page_asks_for_nothing_outside_itself(rdna1: Rendered) -> None:
    for tag, attrs, _ in Outline(rdna1.html).elements:
        assert not attrs.get("src"), tag
        assert tag != "link"
        if tag != "a":
            assert not attrs.get("href")


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


STARTS = (
    "steady", "cold_starts", "warm_starts",
    *(f"{kind}_first_call{end}" for kind in ("cold", "warm") for end in ("", "_min", "_max")),
)  # fmt: skip


def test_odd_numbers_do_no_harm(tmp_path: Path) -> None:
    odd = [float("nan"), float("inf"), -1, 0, 1e308, "12", None, True, 10**400]
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


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -1, 0, 1e-320, 1e308, 10**400])
def test_odd_times_of_a_program_do_no_harm(tmp_path: Path, odd: float) -> None:
    problem = sample.PROBLEMS[0].text
    counts = {"fwd": 1, "bwd-data": 1, "bwd-weights": 1}
    steps = dict.fromkeys(("seconds", "seconds_p10", "seconds_p90", "rest_seconds"), odd)
    steps.update(made=9, alike=9, device="cpu", threads=1)
    recorded = {"problem": problem, "counts": counts, "step_counts": counts}
    step = StepTime("cpu", "default", "step", 3, 3, odd, odd, odd, odd, odd, odd)
    training = TrainingTime("your model", "cpu", "default", "float32", "", 4, *[odd] * 9, own=True)
    alone = sample.outcome(
        "default", "throughput", "conv", "pass", problem=sample.PROBLEMS[0],
        timings={"bwd_data": 1.0, **dict.fromkeys(("bwd_data_mean", "bwd_weights", "bwd_weights_mean"), odd)},
    )  # fmt: skip
    trained = sample.outcome(
        "default", "train-resnet", "train", "pass", numerics={"losses": {"0": odd}}, timings={"step": odd}
    )
    results = dataclasses.replace(
        sample.healthy_cpu(), outcomes=(alone, trained), step_times=(step,),
        estimate=Estimate(9, 9, None, (training,)),
        options={"shapes": {"problems": [recorded], "steps": steps}},
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=200)
    rendered = render(results, tmp_path)
    render_run(read_results(rendered.results), {}, console)
    assert 'id="h-program"' in rendered.html
    assert 'id="h-models"' in rendered.html


def test_gpu_without_known_values_is_said_to_be_unknown(tmp_path: Path) -> None:
    machine = dataclasses.replace(sample.rdna1_machine(), facts={}, variables={})
    gpu = dataclasses.replace(machine.gpus[0], name=Fact(), vram_bytes=Fact("many", "a guess"))
    page = render(
        dataclasses.replace(sample.rdna1(), machine=dataclasses.replace(machine, gpus=(gpu,))), tmp_path
    )
    assert "<dt>VRAM</dt><dd>unknown</dd>" in page.html


def test_shell_block_quotes_values_and_leaves_out_what_is_no_name(tmp_path: Path) -> None:
    results = sample.rdna1()
    recommendation = results.recommendation
    assert recommendation
    configuration = dataclasses.replace(recommendation.configuration, env={"A": "x; rm y", "B C": "1"})
    recommendation = dataclasses.replace(recommendation, configuration=configuration)
    page = render(dataclasses.replace(results, recommendation=recommendation), tmp_path).html
    assert stdlib_html.escape("export A='x; rm y'").replace("&#x27;", "&#39;") in page
    assert "export B C" not in page


def test_user_configuration_of_pytest_does_not_reach_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rdna1: Rendered
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise RuntimeError('a conftest of the user was loaded')\n")
    inside = tmp_path / "$HOME :: [odd] ünïcode"
    inside.mkdir()
    monkeypatch.chdir(inside)
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    monkeypatch.setenv("PYTEST_ADDOPTS", "--another-option -x")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.setenv("BUILD_NUMBER", "ci-marker-4711")
    monkeypatch.setenv("JENKINS_URL", "ci-marker-4711")
    rendered = render(sample.rdna1(), inside / "out")
    assert undated(rendered.html) == undated(rdna1.html)
    assert sorted(path.name for path in inside.iterdir()) == ["out"]
    assert sorted(path.name for path in (inside / "out").iterdir()) == [
        "junit.xml",
        "report.html",
        "results.json",
    ]


def test_bad_file_is_the_users_to_mend(tmp_path: Path) -> None:
    broken = tmp_path / "results.json"
    broken.write_text("{")
    with pytest.raises(BadInput, match=r"results\.json: not JSON"):
        html.write(broken, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_report_needs_no_torch() -> None:
    program = (
        "import sys, rocmprobe.report.html, rocmprobe.report.terminal\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    root = Path(html.__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True)


def test_large_run_stays_small(tmp_path: Path) -> None:
    results: Results = sample.repeated(sample.rdna1(), 600)
    rendered = render(results, tmp_path)
    assert len(pytest_html_data(rendered.html)["tests"]) == 600
    assert rendered.page.stat().st_size < 2_000_000


def test_devices_get_a_ladder_and_a_matrix_each(tmp_path: Path) -> None:
    first: Results = sample.rdna1()
    second: tuple[Outcome, ...] = sample.healthy_cpu().outcomes
    page = render(dataclasses.replace(first, outcomes=(*first.outcomes, *second)), tmp_path).html
    assert page.count('<ol class="ladder">') == page.count('<table class="matrix">') == 2
    assert "Ladder on cuda:0" in page
    assert "Ladder on cpu" in page


def test_the_checks_of_the_ladder_have_a_folded_table_by_dtype(tmp_path: Path) -> None:
    lstm = [
        dataclasses.replace(
            sample.outcome(setting, "lstm", "primitives", state), id=f"cpu/torch/{setting}/lstm/{dtype}",
            dtype=dtype, device="cpu",
        )
        for setting in ("default", "vendor-off")
        for dtype, state in (("float32", "pass"), ("float16", "n/a"))
    ]  # fmt: skip
    results = sample.healthy_cpu()
    several = [each for each in results.outcomes if each.rung == "multi-gpu"]
    rest = [each for each in results.outcomes if each.rung != "multi-gpu"]
    several = [dataclasses.replace(each, state="n/a") for each in several]
    page = render(dataclasses.replace(results, outcomes=(*rest, *several, *lstm)), tmp_path / "checks").html
    table = page[page.index('<table class="checks">') :]
    table = table[: table.index("</table>")]
    assert re.search(r'rowspan="2" class="problem">lstm<', table)
    assert table.index("float32") < table.index("float16")
    assert 'class="by-layer"' in page
    # What does not apply to this machine does not keep the ladder from holding.
    assert "every rung that applies holds" in page
