"""Sections of the page: settings by their codes, throughput, memory and sensors."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st
from runs import named_machine

from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.alarms import telemetry_findings
from rocmprobe.judge.summary import summarize
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.model.results import Results, Setting
from rocmprobe.model.results_file import from_json
from rocmprobe.model.telemetry import DeviceTelemetry, Series, summary
from rocmprobe.report.codes import short_codes
from rocmprobe.report.page import html
from rocmprobe.report.page.memory import memory
from rocmprobe.report.page.telemetry_section import telemetry
from rocmprobe.report.page.throughput import throughput
from rocmprobe.simulate.machines import load_machine


@pytest.mark.parametrize(
    ("name", "code"),
    [("default", "De"), ("vendor-off", "VO"), ("bypass+vendor-off", "BVO"), ("cpu", "CPU"), ("§", "?")],
)
def test_initials_or_the_beginning(name: str, code: str) -> None:
    assert short_codes([name]) == {name: code}


def test_the_settings_of_the_package_have_short_codes() -> None:
    codes = short_codes(setting.name for setting, _, _ in all_settings())
    assert max(map(len, codes.values())) <= 4


@given(st.lists(st.text(), unique=True))
def test_no_two_are_the_same(names: list[str]) -> None:
    codes = short_codes(names)
    assert list(codes) == names
    assert len(set(codes.values())) == len(names)


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


FIRST = sample.PROBLEMS[0]
MIB = 1 << 20
PEAKS = {
    "default": {"peak_bytes": 6 * MIB, "least_bytes": 3 * MIB},
    "vendor-off": {"peak_bytes": 17 * MIB, "predicted_bytes": 16 * MIB},
    "bypass": {"peak_bytes": 10 * MIB, "predicted_bytes": 9 * MIB},
}


def memory_outcomes(**changes: Any) -> Results:
    made = []
    for setting, peaks in PEAKS.items():
        kept = {"saved_bytes": 2 * MIB, "predicted_saved_bytes": 2 * MIB}
        common: dict[str, Any] = {"problem": FIRST, "device": "cpu"}
        state = changes.get(setting, "pass")
        made.append(sample.outcome(setting, "memory", "conv", state, memory={**kept, **peaks}, **common))
    return dataclasses.replace(sample.healthy_cpu(), outcomes=tuple(made))


def test_measured_beside_predicted() -> None:
    found = memory(memory_outcomes())
    assert found
    [(label, table)] = found.tables
    assert label == FIRST.text
    assert table.header == ("setting", "peak", "kept for backward")
    kept = "2 MiB; predicted 2 MiB"
    assert table.rows == (
        ("default", "6 MiB; at least 3 MiB", kept),
        ("vendor-off", "17 MiB; predicted 16 MiB", kept),
        ("bypass", "10 MiB; predicted 9 MiB", kept),
    )


def test_what_did_not_pass_says_so() -> None:
    found = memory(memory_outcomes(bypass="wrong"))
    assert found
    assert found.tables[0][1].rows[-1][1].endswith(" wrong: 10 MiB; predicted 9 MiB")


def test_nothing_measured_is_no_table() -> None:
    assert memory(dataclasses.replace(memory_outcomes(), outcomes=())) is None


@pytest.mark.parametrize("odd", [float("nan"), "12", None, 10**400, -1, True])
def test_odd_numbers_do_no_harm(odd: Any) -> None:
    broken = tuple(
        dataclasses.replace(outcome, memory=dict.fromkeys(outcome.memory, odd))
        for outcome in memory_outcomes().outcomes
    )
    assert memory(dataclasses.replace(memory_outcomes(), outcomes=broken))


HOT = load_machine(named_machine("hot-weak-fan")).telemetry


def section(results: Results) -> str:
    """Return the section of the page, or "" if the page has none."""
    found = re.search(
        r'<section aria-labelledby="h-telemetry">.*?</section>', html.page(summarize(results)), re.S
    )
    return found[0] if found else ""


def of(results: Results, *devices: DeviceTelemetry) -> Results:
    made = dataclasses.replace(results, telemetry=devices)
    return dataclasses.replace(made, findings=(*made.findings, *telemetry_findings(Evidence(made))))


def test_extremes_and_alarms() -> None:
    shown = section(of(dataclasses.replace(sample.rdna1(), simulated=None), *HOT))
    assert "The fan runs at 33 % while junction is at 104 °C" in shown
    cells = re.sub(r"<[^>]+>", "|", shown)
    assert re.search(r"fan, driven at\|+0 %\|+33 %\|+33 %", cells)
    assert re.search(r"temperature, junction\|+44 °C\|+104 °C\|+104 °C\|+105 °C", cells)
    assert "Made up" not in shown


def test_nothing_where_nothing_was_sampled_and_simulation_says_so() -> None:
    assert section(sample.healthy_cpu()) == ""
    assert section(of(sample.rdna1())) == ""
    assert "Synthetic data: this machine is simulated." in section(sample.rdna1())


def test_a_gpu_that_slept_is_said_to() -> None:
    asleep = summary("0000:0b:00.0", "RX 5600 XT", "", [(float(second), {}) for second in range(9)], {})
    shown = section(of(sample.healthy_cpu(), asleep))
    assert "9 samples over 8 s, 9 of them while it was asleep" in shown
    assert "<table" not in shown


def test_alarms_stand_with_their_own_gpu() -> None:
    other = dataclasses.replace(HOT[0], device="0000:0c:00.0", values={
        name: series for name, series in HOT[0].values.items() if not name.startswith(("temperature", "fan"))
    })  # fmt: skip
    found = telemetry(of(sample.healthy_cpu(), *HOT, other))
    assert found is not None
    assert [len(device.alarms) for device in found.devices] == [2, 0]


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e300, -1e300])
def test_numbers_that_cannot_be_shown_do_not_break_the_page(value: float) -> None:
    series = Series(value, value, value, (value, 50.0, 60.0, value))
    row = {"device": "<b>", "name": "<script>", "started": "", "samples": 4, "seconds": [0, value, 2, None],
           "values": {"power_w": dataclasses.asdict(series), "<i>": dataclasses.asdict(series)},
           "limits": {"power_w": {"value": value, "source": ""}}}  # fmt: skip
    shown = section(of(sample.healthy_cpu(), from_json(DeviceTelemetry, row)))
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
