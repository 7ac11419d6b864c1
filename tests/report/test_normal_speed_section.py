"""The section on normal speed: verdicts with their reasons, and the plot over batch sizes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import sample
from rendering import render
from rows import every_row

from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import Fact, Gpu, Machine, Outcome, Results
from rocmprobe.model.roofline import work
from rocmprobe.report.page.normal_speed import normal_speed

PROBLEM = parse_problem("conv2d-fp32-n4-c128-i28x28-k128-f3x3-p1")
FAST = {
    "gemm": 1.0, "gemm_flops": 5.8e12, "copy": 1.0, "copy_bytes": 3.8e11,
    "fwd": work(PROBLEM, "fwd").flops / 5e12,
}  # fmt: skip
CURVE = {"batches": [1, 2, 4, 8], "samples_per_second": [80.0, 150.0, 260.0, 400.0]}
MEMORY = {"largest_batch": 8, "refused_batch": 16, "ended_by": "memory"}


def swept(dtype: str = "float32", device: str = "cuda:0", **fields: Any) -> Outcome:
    found = sample.outcome(
        "default", "batch-sizes", "train", "pass", device=device, isa=("gfx1010", "gfx1010"),
        **{"numerics": CURVE, "memory": MEMORY, **fields},
    )  # fmt: skip
    return dataclasses.replace(found, id=f"{device}/torch/default/batch-sizes/{dtype}", dtype=dtype)


def run(*more: Outcome, timings: Any = FAST, name: str = "AMD Radeon RX 5700", **fields: Any) -> Results:
    values = {"name": name, "native_isa": "gfx1010", "effective_isa": "gfx1010", "vendor": "amd", "cus": 36}
    gpu = Gpu(**{key: Fact(value, "KFD") for key, value in values.items()})
    timed = sample.outcome(
        "default", "throughput", "conv", "pass", problem=PROBLEM, isa=("gfx1010", "gfx1010"), timings=timings
    )
    values = {"simulated": None, "telemetry": (), "findings": (), "recommendation": None, **fields}
    outcomes = (timed, *more)
    return dataclasses.replace(sample.rdna1(), machine=Machine((gpu,)), outcomes=outcomes, **values)


def test_a_normal_card():
    section = normal_speed(run())
    assert section is not None
    (device,) = section.judged
    assert device.table is not None
    product, copied, layer = device.table.rows
    assert product[:4] == ("matrix product, float32", "", "normal", "5.8 TFLOP/s")
    assert product[4:] == ("73 % of 7.95 TFLOP/s", "60 to 73 % (RX 5700 XT, RX 5500 XT)")
    assert copied[2:5] == ("normal", "380 GB/s", "85 % of 448 GB/s")
    assert layer[1:5] == ("fwd", "normal", "5 TFLOP/s", "63 % of 7.95 TFLOP/s")
    assert (device.slow, device.reasons) == ("", ())
    assert {row[0] for row in device.figures.rows} >= {"RX 5700", "RX 5700 XT"}
    assert (section.caption, section.dtypes, section.plots) == ("", None, ())


def test_a_slow_one_says_by_how_much_and_why(tmp_path):
    results = run(timings={**FAST, "gemm_flops": 1e12})
    page = render(results, tmp_path / "page").html
    assert "<td>slow</td><td>1 TFLOP/s</td><td>13 % of 7.95 TFLOP/s</td><td>60 to 73 % (RX 5700 XT," in page
    assert "One speed is slow. This run saw these usual causes:" in page
    assert "rocBLAS has no tuned kernels for this chip" in page
    assert "<code>PYTORCH_TUNABLEOP_ENABLED=1</code>" in page


def test_a_card_without_a_peak_has_no_verdict(tmp_path):
    section = normal_speed(run(name="some board"))
    assert section is not None
    assert section.judged[0].table is None
    assert section.judged[0].peak.startswith("No peak is known for some board: there is no figure to compare")
    assert "Speed against other cards" in render(run(name="some board"), tmp_path / "page").html


def test_one_plot_for_each_device_with_a_line_for_each_dtype(tmp_path):
    results = run(swept(), swept("float16"), swept(device="cuda:1"))
    section = normal_speed(results)
    assert section is not None
    titles = [title for title, _ in section.plots]
    assert titles == [f"Training throughput, images/s by batch size (cuda:{n})" for n in (0, 1)]
    assert "float32, default 80 to 400 images/s; float16, default 80 to 400 images/s" in section.plots[0][1]
    assert section.batches[0] == (
        "float32, default: at most 400 images/s, with a batch of 8. The largest batch was 8: the next one "
        "did not fit."
    )
    page = render(results, tmp_path / "page").html
    assert page.count('aria-label="Training throughput') == 2


#: What a file that anybody wrote may hold in place of a curve.
ODD = (
    {"batches": "1, 2"}, {"batches": [1], "samples_per_second": [5.0]}, {"batches": [1, 2]},
    {"batches": [0, -1], "samples_per_second": [1.0, 2.0]},
    {"batches": [1, 2], "samples_per_second": [math.nan, "fast"]},
    {"batches": [1, 10**400], "samples_per_second": [1.0, 2.0]},
)  # fmt: skip


@every_row("numerics", ODD)
def test_no_plot_of_what_is_no_curve(numerics):
    section = normal_speed(run(swept(numerics=numerics)))
    assert section is not None
    assert section.plots == ()


def test_simulated_speeds_are_called_so():
    cpu = normal_speed(run(swept(), simulated="machine"))
    assert cpu is not None
    assert cpu.caption.startswith("Simulated: the speeds are those of the CPU")
    assert cpu.judged == ()


def test_no_section_without_measurements():
    assert normal_speed(sample.healthy_cpu()) is None
    assert normal_speed(dataclasses.replace(sample.rdna1(), simulated=None, outcomes=())) is None
