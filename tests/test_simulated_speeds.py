"""Times that the file of a simulated machine gives, in place of those of the CPU."""

from __future__ import annotations

import pytest
from rows import every_row

from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.roofline import measure_roof, work
from rocmprobe.simulate.machines import load_machine
from rocmprobe.simulate.speeds import Speeds, speeds_of, with_times

PROBLEM = "conv2d-fp32-n4-c128-i28x28-k128-f3x3-p1"
OWN = Speeds(
    5e12,
    4e11,
    4e12,
    launch=1e-5,
    steps={"resnet": 0.01},
    step=0.01,
    sample=0.001,
    fits=4,
    dtypes=("float32",),
)


def case(check: str, dtype: str = "float32", setting: str = "default") -> Case:
    problem = PROBLEM if check == "throughput" else None
    return Case("cuda:0", "torch", setting, check, dtype, problem)


def measured(**more: float) -> CheckResult:
    timings = {
        f"{key}{end}": 1.0 for key in ("fwd", "fwd_bwd", "gemm", "copy") for end in ("", "_p10", "_p90")
    }
    return CheckResult(timings={**timings, "gemm_flops": 2e9, "copy_bytes": 1e9, "fwd_repeats": 7, **more})


def test_throughput_has_the_rates_of_the_machine():
    found = with_times(measured(naive_fwd=1.0), case("throughput"), (OWN,)).timings
    rates = measure_roof(found)
    assert rates is not None
    assert (rates.flops, rates.bytes) == (pytest.approx(5e12), pytest.approx(4e11))
    assert found["fwd"] == pytest.approx(work(parse_problem(PROBLEM), "fwd").flops / 4e12 + 1e-5)
    assert found["fwd_bwd"] == pytest.approx(3 * found["fwd"])
    assert found["fwd_p10"] < found["fwd"] < found["fwd_p90"]
    assert found["fwd_repeats"] == 7
    assert "naive_fwd" not in found
    assert "bwd_data" not in found


def test_training_has_the_steps_of_the_machine():
    result = CheckResult(timings={"step": 1.0, "first_step": 2.0})
    found = with_times(result, case("train-resnet"), (OWN,))
    assert found.timings == {"step": 0.01}
    assert with_times(result, case("train-unet"), (OWN,)) == result


def test_batch_sizes_end_where_the_machine_is_full():
    found = with_times(CheckResult(), case("batch-sizes"), (OWN,))
    assert found.numerics["batches"] == [1, 2, 4]
    assert found.numerics["samples_per_second"] == [
        pytest.approx(n / (0.01 + 0.001 * n), rel=1e-4) for n in (1, 2, 4)
    ]
    assert found.memory == {"largest_batch": 4, "refused_batch": 8, "ended_by": "memory"}


@every_row(
    ("result", "asked"),
    [
        (measured(), case("throughput", "float16")),
        (CheckResult("error", "it fails"), case("throughput")),
        (CheckResult(timings={"first_call": 1.0}), case("start-up")),
        (CheckResult(), case("train-resnet")),
    ],
)
def test_everything_else_stays_as_it_was_measured(result, asked):
    assert with_times(result, asked, (OWN,)) == result


def test_the_first_row_that_fits_counts():
    slow = Speeds(1e12, 4e11, 1e12, settings=("bypass",))
    for setting, rate in (("bypass", 1e12), ("default", 5e12)):
        found = measure_roof(with_times(measured(), case("throughput", setting=setting), (slow, OWN)).timings)
        assert found is not None
        assert found.flops == pytest.approx(rate)


GOOD = {"gemm": 1e12, "copy": 1e11, "convolution": 1e12}


@every_row(
    "row",
    [
        {"gemm": 1e12}, {**GOOD, "gemm": 0.0}, {**GOOD, "copy": "fast"}, {**GOOD, "dtypes": ["fp32"]},
        {**GOOD, "steps": {"alexnet": 1.0}}, {**GOOD, "speed": 1.0},
    ],
)  # fmt: skip
def test_a_wrong_row_is_refused(row):
    with pytest.raises((TypeError, ValueError)):
        speeds_of(row)
    assert speeds_of(GOOD) == Speeds(1e12, 1e11, 1e12)


def test_a_machine_with_speeds_says_that_its_times_are_its_own():
    assert load_machine("rx5700-published-speeds").machine.value("simulation.times")
    assert load_machine("bn-dead").machine.value("simulation.times") is None
