"""The report's tables of what was timed: rates, and settings against each other."""

from __future__ import annotations

import dataclasses

import pytest
import sample

from rocmprobe.model.results import Setting
from rocmprobe.report.page.throughput import throughput

SETTINGS = (
    sample.DEFAULT,
    sample.GEMM_ONLY,
    Setting("channels-last", "the other memory format", "native-with-settings", channels_last=True),
    sample.VENDOR_OFF,
    sample.BYPASS,
    Setting("cpu", "the last resort", "cpu", device="cpu"),
)
PROBLEM = sample.PROBLEMS[1]
#: Seconds of forward by setting; the GEMM of ``sample.throughput`` makes 1.72 TFLOP/s, its copy 26.8 GB/s.
TOOK = {
    "default": 1e-3,
    "gemm-only": 4e-4,
    "channels-last": 5e-4,
    "vendor-off": 2e-3,
    "bypass": 8e-4,
    "cpu": 0.1,
}
NOTHING: dict[str, dict[str, float]] = {}


def timed(changes=NOTHING, took=TOOK, **fields):
    outcomes = []
    for name, seconds in took.items():
        text = f"{PROBLEM.text}-nhwc" if name == "channels-last" else PROBLEM.text
        outcome = sample.outcome(
            name, "throughput", "conv", "pass", problem=PROBLEM,
            timings={**sample.throughput(seconds, naive=name == "bypass"), **changes.get(name, {})},
        )  # fmt: skip
        outcomes.append(dataclasses.replace(outcome, problem=text))
    fields = {"settings": SETTINGS, "outcomes": tuple(outcomes), "simulated": None, **fields}
    return throughput(dataclasses.replace(sample.rdna1(), **fields))


def compared(shown, setting, passed="fwd"):
    (figures,) = shown.figures
    row = next(row for row in figures.compared.rows if row[:2] == (setting, passed))
    # The sign of a product as the letter that a keyboard has.
    return {name: cell.replace("\u00d7", "x") for name, cell in zip(figures.compared.header, row)}


def rated(shown, setting, passed="fwd"):
    (figures,) = shown.figures
    row = next(row for row in figures.rates.rows if row[:2] == (setting, passed))
    return dict(zip(figures.rates.header, row))


def test_every_setting_against_all_that_it_is_held_against():
    row = compared(timed(), "vendor-off")
    assert row == {
        "setting": "vendor-off", "pass": "fwd", "default": "2x", "best native": "5x",
        "library off": "itself", "naive im2col": "0.625x", "CPU": "0.02x",
    }  # fmt: skip
    assert compared(timed(), "channels-last")["default"] == "0.5x"
    assert compared(timed(), "cpu", "fwd + bwd")["default"] == "100x"


def test_only_rivals_that_were_timed_have_a_column():
    (figures,) = timed(took={"default": 1e-3, "gemm-only": 4e-4}).figures
    assert figures.compared.header == ("setting", "pass", "default", "best native")


def test_a_native_setting_under_which_a_convolution_failed_is_not_the_best():
    failed = sample.outcome(
        "gemm-only", "convolution", "conv", "wrong", problem=PROBLEM, direction="bwd-data", message="off"
    )
    results = dataclasses.replace(sample.rdna1(), settings=SETTINGS)
    outcomes = [
        sample.outcome(name, "throughput", "conv", "pass", problem=PROBLEM, timings=sample.throughput(took))
        for name, took in TOOK.items() if name != "channels-last"
    ]  # fmt: skip
    shown = throughput(dataclasses.replace(results, outcomes=(*outcomes, failed)))
    assert compared(shown, "default")["best native"] == "itself"


def test_each_gpu_has_a_best_of_its_own():
    """A convolution failed on the second one alone."""
    outcomes = [
        dataclasses.replace(
            sample.outcome(name, check, "conv", state, problem=PROBLEM, timings=timings), device=device
        )
        for device in ("cuda:0", "cuda:1")
        for name in ("default", "gemm-only")
        for check, state, timings in (
            ("convolution", "wrong" if (device, name) == ("cuda:1", "gemm-only") else "pass", {}),
            ("throughput", "pass", sample.throughput(TOOK[name])),
        )
    ]
    results = dataclasses.replace(sample.rdna1(), settings=SETTINGS, outcomes=tuple(outcomes))
    first, second = throughput(results).figures
    best = [figures.compared.rows[0][-1] for figures in (first, second)]
    assert first.compared.header[-1] == "best native"
    assert [cell.replace("\u00d7", "x") for cell in best] == ["2.5x", "itself"]


def test_a_problem_without_a_bar_has_its_numbers_and_no_panel():
    gone = dict.fromkeys(("fwd", "fwd_bwd"))
    shown = timed({"default": gone}, took={"default": 1e-3})
    assert (shown.panels, shown.legend) == ((), ())
    assert {row[1] for row in shown.figures[0].rates.rows} >= {"bwd-data"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"fwd": 1.01e-3, "fwd_p10": 1e-3, "fwd_p90": 1.02e-3}, "same"),
        ({"fwd": 1.3e-3, "fwd_p10": 9e-4, "fwd_p90": 2e-3}, "too noisy"),
        # A third slower, while the GEMM beside it was half as fast.
        ({"fwd": 1.3e-3, "fwd_p10": 1.3e-3, "fwd_p90": 1.3e-3, "gemm": 0.02}, "too noisy"),
        ({"fwd": 1.3e-3, "fwd_p10": 1.3e-3, "fwd_p90": 1.3e-3}, "1.3x"),
        ({"fwd_p10": None}, ""),
    ],
)
def test_noise_is_an_answer(changes, told):
    assert compared(timed({"gemm-only": changes}), "gemm-only")["default"] == told


def test_a_panel_for_each_pass_with_one_legend_of_all_settings():
    shown = timed()
    assert [panel.title for panel in shown.panels] == ["Forward", "Forward and backward"]
    assert dict(shown.legend) == {
        "De": "default", "By": "bypass", "VO": "vendor-off", "GO": "gemm-only", "CL": "channels-last",
        "CPU": "cpu",
    }  # fmt: skip
    for panel in shown.panels:
        ((_, bars),) = panel.problems
        assert [each.setting for each in bars] == [name for _, name in shown.legend]
        longest = max(bars, key=lambda each: each.bar.length)
        assert (longest.setting, longest.bar.high) == ("cpu", pytest.approx(100))
        assert [each.setting for each in bars if each.recommended] == ["bypass"]
    assert shown.left_out == ""


def test_what_is_too_noisy_is_said_once():
    shown = timed({"gemm-only": {"fwd": 1.3e-3, "fwd_p10": 9e-4, "fwd_p90": 2e-3}})
    ((_, bars),) = shown.panels[0].problems
    notes = {each.setting: each.bar.note for each in bars}
    assert notes["gemm-only"] == "1.3 ms"
    assert shown.caption.count("too noisy") == 1
    assert "too noisy" not in timed().caption


def test_settings_and_problems_without_bars_are_counted():
    named = {f"more-{number}": 1e-3 for number in range(3)}
    more = tuple(Setting(name, "one of many", "native-with-settings") for name in named)
    shown = timed(took={**TOOK, **named}, settings=(*SETTINGS, *more))
    assert len(shown.legend) == 6
    assert shown.left_out == "Only in the numbers: 3 more settings."


def test_the_yardsticks_of_the_cpu_say_nothing_of_the_gpu():
    slow = {"gemm": 10.0, "copy": 10.0}
    assert compared(timed({"cpu": slow}), "cpu")["default"] == "100x"


def test_rates_of_settings_and_of_the_yardsticks():
    assert rated(timed(), "default")["rate"] == "3.21 GFLOP/s"
    # Three times the operations, in 3.1 times the time.
    assert rated(timed(), "default", "fwd + bwd")["rate"] == "3.11 GFLOP/s"
    assert rated(timed(), "naive im2col")["median"] == "3.2 ms"
    assert rated(timed(), "GEMM", "yardstick")["rate"] == "1.72e+03 GFLOP/s"
    assert rated(timed(), "copy", "yardstick")["rate"] == "26.8 GB/s"


def test_results_without_yardsticks_have_no_row_of_them():
    shown = timed({name: {"gemm": None} for name in TOOK})
    assert "GEMM" not in {row[0] for row in shown.figures[0].rates.rows}


def test_clocks_and_temperatures_are_told():
    outcome = sample.outcome(
        "default", "throughput", "conv", "pass", problem=PROBLEM, timings=sample.throughput(1e-3),
        conditions=sample.CONDITIONS,
    )  # fmt: skip
    shown = throughput(dataclasses.replace(sample.rdna1(), outcomes=(outcome,)))
    assert "core clock 800 to 1560 MHz, edge 41 to 63 °C" in shown.caption
    assert "clock" not in timed().caption
