"""When a card is as fast as others, what explains a slow one, and when nothing can be said."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

import pytest
import synthetic
from rows import every_row

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.normal_speed import SEEN, SLOW, NormalSpeed, normal_speeds
from rocmprobe.knowledge.gpus import all_targets
from rocmprobe.knowledge.reference_speeds import explanations, peak_of, published, published_for
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import Fact, Gpu, Machine, Results
from rocmprobe.model.roofline import work
from rocmprobe.model.telemetry import Limit, summary
from rocmprobe.text.tables import table

THREE = "conv2d-fp32-n4-c128-i56x56-k128-f3x3-p1"
ONE = "conv2d-fp32-n8-c512-i28x28-k512-f1x1"
DEPTHWISE = "conv2d-fp32-n4-c96-i56x56-k96-f3x3-p1-g96"
STRIDED = "conv2d-fp32-n4-c128-i56x56-k128-f3x3-s2-p1"
#: 58 microseconds at the peak, and 2.
SMALL, TINY = "conv2d-fp32-n4-c64-i56x56-k32-f3x3-p1", "conv2d-fp32-n1-c64-i14x14-k64-f3x3-p1"
#: An RX 5700 by its product: 36 units at 1725 MHz, 256 bits at 14 Gbit/s.
FP32, MEMORY = 36 * 128 * 1.725e9, 448e9


def gpu(
    name: str = "AMD Radeon RX 5700", native: str = "gfx1010", effective: str = "gfx1010", **facts: Any
) -> Gpu:
    values = {"name": name, "native_isa": native, "effective_isa": effective, "vendor": "amd", "cus": 36}
    return Gpu(**{key: Fact(value, f"source of {key}") for key, value in {**values, **facts}.items()})


def run(
    gemm: float = 0.7 * FP32, copied: float = 0.85 * MEMORY, convolution: float = 0.6 * FP32,
    problem: str = THREE, card: Optional[Gpu] = None, **fields: Any,
) -> Results:  # fmt: skip
    """A run that reached these operations and bytes a second."""
    dtype = parse_problem(problem).dtype
    timings: dict[str, float] = {"gemm": 1.0, "gemm_flops": gemm, "copy": 1.0, "copy_bytes": copied}
    for key in ("fwd", "fwd_bwd"):
        timings[key] = work(parse_problem(problem), key).flops / convolution
    changes: Mapping[str, Any] = {"*/throughput/*": {"timings": timings, "problem": problem, "dtype": dtype}}
    machine = Machine((card or gpu(),), {"torch.kind": Fact("rocm", "torch")})
    found = synthetic.run(changes, machine=machine)
    only = tuple(each for each in found.outcomes if each.setting == "default" or each.check != "throughput")
    return dataclasses.replace(found, outcomes=only, **fields)


def judged(results: Results, name: str) -> NormalSpeed:
    """Return the speed of that name; "PROBLEM fwd_bwd" names a direction, without one it is forward."""
    name, _, direction = name.partition(" fwd_") if " fwd_" in name else (name, "", "")
    wanted = f"fwd_{direction}" if direction else "fwd"
    found = (each for each in normal_speeds(judge(results)) if each.name == name)
    return next(each for each in found if each.direction in ("", wanted))


#: What was reached as a share of the peak, and the verdict. RDNA1: products 60 to 73 %, memory 85 %; 3x3
#: layers 35 to 97 % forward and 32 to 71 % with backward, 1x1 layers 35 and 32 %.
VERDICTS = (
    ("matrix product", {"gemm": 0.7 * FP32}, "normal", (0.60, 0.74)),
    ("matrix product", {"gemm": 0.46 * FP32}, "normal", (0.60, 0.74)),
    ("matrix product", {"gemm": 0.44 * FP32}, "slow", (0.60, 0.74)),
    ("copy", {"copied": 0.80 * MEMORY}, "normal", (0.85, 0.86)),
    ("copy", {"copied": 0.50 * MEMORY}, "slow", (0.85, 0.86)),
    (THREE, {"convolution": 0.30 * FP32}, "normal", (0.34, 0.97)),
    (THREE, {"convolution": 1.20 * FP32}, "normal", (0.34, 0.97)),
    (THREE, {"convolution": 0.20 * FP32}, "slow", (0.34, 0.97)),
    (f"{THREE} fwd_bwd", {"convolution": 0.22 * FP32}, "slow", (0.31, 0.72)),
    (ONE, {"convolution": 0.30 * FP32, "problem": ONE}, "normal", (0.34, 0.36)),
    (DEPTHWISE, {"convolution": 0.01 * FP32, "problem": DEPTHWISE}, "", None),
    (STRIDED, {"convolution": 0.01 * FP32, "problem": STRIDED}, "", None),
    (TINY, {"convolution": 0.01 * FP32, "problem": TINY}, "", None),
)


@every_row(("name", "reached", "verdict", "span"), VERDICTS)
def test_the_verdict_by_the_share_that_others_reached(name, reached, verdict, span):
    found = judged(run(**reached), name)
    assert found.verdict == verdict
    shares = [each.share for each in found.others]
    assert bool(shares) is (span is not None)
    if span:
        assert span[0] <= min(shares) <= max(shares) <= span[1]
        assert (found.share < SLOW * min(shares)) is (verdict == "slow")


def test_a_layer_that_memory_limits_has_its_share_of_that():
    found = judged(run(problem=DEPTHWISE, convolution=1e12), DEPTHWISE)
    todo = work(parse_problem(DEPTHWISE), "fwd")
    assert found.memory_bound
    assert found.peak == pytest.approx(MEMORY * todo.intensity)
    assert found.share == pytest.approx(1e12 / found.peak)


@every_row(
    ("card", "dtype"),
    [
        (gpu("AMD Radeon RX 9070", "gfx1201", "gfx1201"), "float32"),
        (gpu("unknown", native="gfx9999", effective="gfx9999"), "float32"),
        (gpu("AMD Radeon RX 7900 XTX", "gfx1100", "gfx1100"), "bfloat16"),
        (gpu("NVIDIA", vendor="nvidia"), "float32"),
        (gpu(), "float64"),
    ],
)
def test_never_normal_without_a_basis(card, dtype):
    problem = THREE.replace("fp32", {"bfloat16": "bf16", "float64": "fp64"}.get(dtype, "fp32"))
    found = normal_speeds(judge(run(card=card, problem=problem)))
    assert [each.verdict for each in found if each.kind != "copy"] in ([], ["", "", ""])


def test_times_of_the_simulating_cpu_are_not_judged():
    results = run(simulated="machine")
    assert normal_speeds(results) == ()


def watched(clock: float, temperature: float = 70.0, power: float = 100.0, used: float = 1e9) -> Any:
    cool = {"core_clock_mhz": 1700.0, "temperature_junction_c": 70.0, "busy_percent": 99.0, "power_w": 100.0}
    reading = {
        "core_clock_mhz": clock, "temperature_junction_c": temperature, "busy_percent": 99.0,
        "power_w": power, "vram_used_bytes": used, "fan_percent": 95.0, "fan_rpm": 3000.0,
    }  # fmt: skip
    first = cool if temperature > 100 else reading
    samples = [(2.0 * at, {**first, "vram_used_bytes": used} if at < 5 else reading) for at in range(12)]
    limits = {"temperature_junction_c": 105.0, "power_w": 150.0, "vram_used_bytes": 8e9}
    told = {name: Limit(value, "hwmon") for name, value in limits.items()}
    return (summary("0000:0b:00.0", "RX 5700", "2026-01-01T00:00:00Z", samples, told),)


#: What a slow run shows, and the names of the explanations for its product.
EXPLAINED = (
    ("nothing but the chip", {}, {"untuned-library"}),
    ("an override", {"card": gpu(effective="gfx1030")}, {"override"}),
    ("heat", {"telemetry": watched(1400.0, temperature=104.0)}, {"heat", "untuned-library"}),
    ("its power cap", {"telemetry": watched(1700.0, power=149.0)}, {"power-cap", "untuned-library"}),
    ("a low clock", {"telemetry": watched(800.0)}, {"low-clock", "untuned-library"}),
    ("full memory", {"telemetry": watched(1700.0, used=7.8e9)}, {"memory-taken", "untuned-library"}),
    ("a healthy sensor", {"telemetry": watched(1700.0)}, {"untuned-library"}),
)


@every_row(("what", "shown", "names"), EXPLAINED)
def test_a_slow_product_is_explained_by_what_was_seen(what, shown, names):
    found = judged(run(gemm=0.2 * FP32, **shown), "matrix product")
    assert found.verdict == "slow"
    assert {each.name for each in found.explanations} == names


@every_row(("problem", "name"), [(THREE.replace("fp32", "fp16"), "half-precision"), (SMALL, "small-layer")])
def test_a_slow_layer_is_explained_by_its_dtype_and_size(problem, name):
    found = judged(run(problem=problem, convolution=1e9), problem)
    assert found.verdict == "slow"
    assert name in {each.name for each in found.explanations}
    assert name not in {each.name for each in judged(run(convolution=1e9), THREE).explanations}


def test_the_speed_of_the_cpu_is_no_speed_of_the_card():
    results = run()
    (timed,) = [each for each in results.outcomes if each.check == "throughput"]
    on_cpu = dataclasses.replace(timed, setting="cpu")
    others = [each for each in results.outcomes if each is not timed]
    assert normal_speeds(judge(dataclasses.replace(results, outcomes=(*others, on_cpu)))) == ()


def test_a_normal_speed_needs_no_explanation():
    assert not any(each.explanations for each in normal_speeds(judge(run(card=gpu(effective="gfx1030")))))


class TestPeaks:
    def test_by_units_and_clocks_of_the_driver(self):
        card = gpu(
            max_core_clock_mhz=1750, max_memory_clock_mhz=875, memory_bus_bits=256, name="another board"
        )
        peak = peak_of(card)
        assert peak.flops == {
            name: 36 * 128 * 1.75e9 * by for name, by in (("float32", 1), ("float16", 2), ("bfloat16", 1))
        }
        assert peak.bytes == 256 / 8 * 875e6 * 16
        assert peak.sources == (
            "source of cus", "source of max_core_clock_mhz", "source of memory_bus_bits",
            "source of max_memory_clock_mhz",
        )  # fmt: skip

    def test_by_the_product_without_the_clocks(self):
        peak = peak_of(gpu())
        assert (peak.of("gemm", "float32"), peak.of("copy", "float32")) == (FP32, MEMORY)
        assert peak.of("gemm", "float64") is None

    @every_row("value", [None, 0, -3, "1750", True, 1e9, float("nan")])
    def test_no_nonsense_clock(self, value):
        assert peak_of(gpu(name="another board", max_core_clock_mhz=value)).flops == {}


class TestTable:
    def test_the_published_medians_of_the_issue(self):
        rates = {
            (each.network, each.dtype, each.direction): each.ms
            for each in published()
            if "5700" in each.product
        }
        assert rates["resnet50", "float32", "fwd_bwd"] == 116.0
        assert rates["vgg16", "float32", "fwd"] == 48.4
        assert rates["vgg16", "float16", "fwd_bwd"] == 1338.4

    def test_shares_of_one_network_repeat_from_chip_to_chip(self):
        """This is why a figure of one card can serve another, and what SLOW rests on."""
        for network in ("resnet50", "vgg16"):
            for direction in ("fwd", "fwd_bwd"):
                shares = [
                    each.share
                    for each in published()
                    if (each.network, each.dtype, each.direction) == (network, "float32", direction)
                ]
                assert len(shares) == 2
                assert max(shares) / min(shares) < 1.1

    @every_row("row", published())
    def test_every_figure_is_possible_and_has_its_source(self, row):
        assert 0 < row.share < 1
        assert "http" in row.source or "github" in row.source
        assert row.date[:2] == "20"
        assert row.software
        assert row.conditions

    def test_the_table_names_what_exists(self):
        known = {each.gfx for each in all_targets()}
        names = {name for target in all_targets() for name in target.names.values()}
        for row in table("reference_speeds")["chip"]:
            assert set(row["gfx"]) <= known
            assert row["source"]
        for row in table("reference_speeds")["product"]:
            assert row["name"] in names
        assert {each.name for each in explanations()} == set(SEEN)
        assert all("http" in each.source or "finding" in each.source for each in explanations())

    def test_figures_are_those_of_the_family(self):
        assert {each.gfx for each in published_for("gfx1010", "gemm", "float32")} == {"gfx1010", "gfx1012"}
        assert {each.gfx for each in published_for("gfx1012", "copy", "float32")} == {"gfx1012"}
        assert {each.gfx for each in published_for("gfx1010", "copy", "float32")} == {"gfx1012"}
        assert published_for("gfx942", "gemm", "float32") == ()
