"""The page's section on the sensors of a run."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import sample
from runs import named_machine

from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.alarms import telemetry_findings
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Results
from rocmprobe.model.results_file import from_json
from rocmprobe.model.telemetry import DeviceTelemetry, Series, summary
from rocmprobe.report.page import html
from rocmprobe.report.page.telemetry_section import telemetry
from rocmprobe.simulate.machines import load_machine

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
