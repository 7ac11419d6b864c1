"""What sensors are reported for, and that a quiet or healthy card is reported for nothing."""

from __future__ import annotations

import dataclasses
from unittest.mock import patch

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.alarms import FINDINGS, alarms, telemetry_findings
from rocmprobe.model import telemetry
from rocmprobe.model.results_file import from_json, to_json
from rocmprobe.model.telemetry import DeviceTelemetry, Limit, summary

RUN = synthetic.run()
LIMITS = {
    "temperature_edge_c": 100.0, "temperature_junction_c": 105.0, "temperature_memory_c": 105.0,
    "power_w": 150.0, "vram_used_bytes": 6e9,
}  # fmt: skip
COOL = {
    "temperature_edge_c": 70.0, "temperature_junction_c": 82.0, "temperature_memory_c": 78.0,
    "fan_rpm": 1500.0,
    "fan_percent": 45.0, "power_w": 120.0, "core_clock_mhz": 1700.0, "memory_clock_mhz": 750.0,
    "vram_used_bytes": 2e9, "busy_percent": 99.0,
}  # fmt: skip
HOT = {**COOL, "temperature_junction_c": 104.0, "temperature_edge_c": 88.0}
FULL_FAN = {"fan_percent": 95.0, "fan_rpm": 3100.0}


def watched(*readings, limits=LIMITS, device="0000:0b:00.0", every=1.0) -> DeviceTelemetry:
    samples = [(number * every, reading) for number, reading in enumerate(readings)]
    told = {name: Limit(value, "temp2_crit") for name, value in limits.items()}
    return summary(device, "RX 5600 XT", "2026-01-01T00:00:00Z", samples, told)


def found(*devices: DeviceTelemetry):
    results = dataclasses.replace(RUN, telemetry=devices)
    return {finding.id: finding for finding in telemetry_findings(Evidence(results))}


def test_a_fan_at_33_per_cent_and_104_degrees() -> None:
    finding = found(watched(*[COOL] * 5, *[{**HOT, "fan_percent": 33.0}] * 10))["weak-fan"]
    assert (finding.severity, finding.cause, finding.layer) == ("warning", "thermal-throttling", "hardware")
    assert finding.title == "The fan runs at 33 % while junction is at 104 °C"
    assert finding.evidence[0] == (
        "junction 104 °C in 10 samples between second 5 and 14; the limit is 105 °C"
    )
    assert "fan curve" in finding.advice
    assert "setpoweroverdrive" in finding.advice


WEAK = {**HOT, "fan_percent": 33.0}
STILL = {**COOL, "temperature_junction_c": 91.0, "fan_rpm": 0.0}
SLOW = {**HOT, **FULL_FAN, "core_clock_mhz": 1400.0}
CASES = {
    "clock falls at the limit": ((*[COOL] * 5, *[SLOW] * 8), {"thermal-throttling"}),
    "the driver says so": (([{**HOT, **FULL_FAN, "throttled_heat": 1.0}] * 8), {"thermal-throttling"}),
    "at the limit, as fast as ever": ((*[COOL] * 5, *[{**HOT, **FULL_FAN}] * 8), {"temperature-limit"}),
    "clock falls while idle": (
        (*[COOL] * 5, *[{**SLOW, "busy_percent": 5.0}] * 8), {"temperature-limit"},
    ),
    "weak and slow": (
        (*[COOL] * 5, *[{**SLOW, "fan_percent": 30.0}] * 8), {"thermal-throttling", "weak-fan"},
    ),
    "fan stands still": (([{**HOT, "fan_rpm": 0.0, "fan_percent": 0.0}] * 8), {"fan-stopped"}),
    "fan driven, does not turn": (
        ([{**COOL, "temperature_junction_c": 92.0, "fan_rpm": 0.0}] * 8), {"fan-stopped"},
    ),
    "memory": (([{**COOL, "temperature_memory_c": 101.0}] * 8), {"memory-hot"}),
    "memory of others": (([{**COOL, "vram_used_bytes": 5e9}] * 8), {"vram-taken"}),
    "memory filled": ((*[COOL] * 4, *[{**COOL, "vram_used_bytes": 5.9e9}] * 4), {"vram-full"}),
    "at the power cap": (([{**COOL, "power_w": 149.0}] * 8), {"power-cap"}),
    "a peak": ((*[COOL] * 8, *[{**HOT, "fan_percent": 33.0}] * 2, *[COOL] * 8), set()),
    "peaks of a fan that stands still": (
        [{**STILL, "fan_rpm": 0.0 if number in (3, 9, 15) else 900.0} for number in range(20)], set(),
    ),
    "peaks of heat": (([COOL, COOL, WEAK] * 8), set()),
    "heat between samples asleep": (([WEAK, WEAK, {}] * 4), set()),
    "the driver alone": (([{**COOL, "throttled_heat": 1.0}] * 8), set()),
    "asleep": (([{}] * 8), set()),
    "quiet mode": (
        ([{**COOL, "temperature_junction_c": 62.0, "fan_rpm": 0.0, "fan_percent": 0.0}] * 8), set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_reported(case: str) -> None:
    readings, expected = CASES[case]
    assert set(found(watched(*readings))) == expected
    assert expected <= set(FINDINGS)


def test_heat_counts_for_its_while() -> None:
    # Samples far apart count for their while.
    assert set(found(watched(*[{**HOT, "fan_percent": 33.0}] * 3, every=60.0))) == {"weak-fan"}

    # Heat of 20 seconds in 2 hours and of 500 in a day.
    hours = [COOL] * 3607 + [WEAK] * 20 + [COOL] * 3573
    stood = [COOL] * 3607 + [STILL] * 20 + [COOL] * 3573
    day = [COOL] * 3607 + [WEAK] * 21 + [COOL] * 3573
    assert set(found(watched(*hours))) == {"weak-fan"}
    assert set(found(watched(*stood))) == {"fan-stopped"}
    seen = watched(*day, every=24.0)
    assert set(found(seen)) == {"weak-fan"}
    assert set(found(from_json(DeviceTelemetry, to_json(seen)))) == {"weak-fan"}
    told = found(seen)["weak-fan"].evidence[-1]
    assert told.endswith(f"7201 samples; only the {len(seen.seconds)} saved samples are counted here")

    # Peaks that fall on the moments that are kept are no stretch.
    readings = [STILL if number % 24 == 0 else COOL for number in range(7200)]
    assert not found(watched(*readings))


heat = st.fixed_dictionaries({
    "temperature_junction_c": st.sampled_from((85.0, 91.0, 95.0)),
    "temperature_memory_c": st.sampled_from((80.0, 99.0, 100.0, 104.0)),
    "fan_rpm": st.sampled_from((0.0, 900.0)),
})  # fmt: skip


@given(st.lists(st.tuples(heat, st.integers(1, 6)), min_size=1, max_size=12))
def test_what_is_kept_tells_as_much_as_all(stretches) -> None:
    readings = [reading for reading, times in stretches for _ in range(times)]
    every = found(watched(*readings, every=1.7))
    with patch.object(telemetry, "POINTS", 4):
        assert found(watched(*readings, every=1.7)).keys() == every.keys()


def test_limits_of_several_cards() -> None:
    # Several cards are told apart and the processor is not judged.
    weak = [{**HOT, "fan_percent": 33.0}] * 8
    two = found(watched(*weak), watched(*[COOL] * 8, device="0000:0c:00.0"), watched(*weak, device="cpu"))
    assert set(two) == {"weak-fan-0000:0b:00.0"}

    # Nothing without limits.
    assert not found(watched(*[HOT] * 8, limits={}))

    # Alarms of a moment.
    assert alarms({**HOT, "fan_percent": 33.0, "throttled_heat": 1.0}, LIMITS) == (
        "junction 104 °C, limit 105 °C", "slowed down for heat", "fan at 33 % only",
    )  # fmt: skip
    assert alarms({**HOT, "fan_rpm": 0.0}, LIMITS)[1:] == ("fan does not turn",)
    assert alarms(STILL, LIMITS) == ("fan does not turn",)
    assert alarms({**COOL, "vram_used_bytes": 5.9e9}, LIMITS) == ("GPU memory nearly full",)


calm = st.fixed_dictionaries(
    {},
    optional={
        "temperature_edge_c": st.floats(20, 84), "temperature_junction_c": st.floats(20, 89),
        "temperature_memory_c": st.floats(20, 99), "fan_rpm": st.floats(0, 4000),
        "fan_percent": st.floats(0, 100), "power_w": st.floats(0, 145), "core_clock_mhz": st.floats(0, 2500),
        "memory_clock_mhz": st.floats(0, 2500), "vram_used_bytes": st.floats(0, 4.7e9),
        "busy_percent": st.floats(0, 100), "throttled_heat": st.sampled_from((0.0, 1.0)),
        "throttled_power": st.sampled_from((0.0, 1.0)),
    },
)  # fmt: skip


@given(st.lists(calm, min_size=1, max_size=30))
def test_never_a_word_about_a_card_below_its_limits(readings) -> None:
    """Whatever fan, clocks and the driver's word do: 15 degrees below every limit nothing is told."""
    assert found(watched(*readings)) == {}
    assert all(alarms(reading, LIMITS) == () for reading in readings)
