"""Speed: when one time is shorter than another, the fastest dtype, and the times of a program's problems."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import inf, nan
from typing import Any, Optional

import pytest
import synthetic
from hypothesis import assume, given
from hypothesis import strategies as st
from synthetic import recommend

from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.judgement import judge
from rocmprobe.judge.noise import SAME_TIME, Seconds, Yardsticks, drift, ratio, seconds, yardsticks
from rocmprobe.judge.recommendation.dtype_speed import dtype_speeds, fastest
from rocmprobe.judge.recommendation.speed import times as times_of
from rocmprobe.judge.times import timed_problems
from rocmprobe.model.results import Outcome, Results, Setting
from rocmprobe.model.results_file import to_json
from rocmprobe.model.shapes import Recorded, Shapes
from rocmprobe.report.page.shapes_table import program

OPPOSITE = {"shorter": "longer", "longer": "shorter", "same": "same", "too noisy": "too noisy"}
GEMM = {"gemm": 1.0, "gemm_flops": 1e9, "copy": 1.0, "copy_bytes": 1e9}


@st.composite
def times(draw):
    p10, median, p90 = sorted(draw(st.tuples(*[st.floats(1e-6, 1e3)] * 3)))
    return Seconds(median, p10, p90)


@pytest.mark.parametrize(
    ("own", "other", "moved", "told"),
    [
        ((1.0, 0.9, 1.1), (2.0, 1.8, 2.2), 1.0, "shorter"),
        ((2.0, 1.8, 2.2), (1.0, 0.9, 1.1), 1.0, "longer"),
        ((1.0, 0.99, 1.01), (1.0, 0.98, 1.02), 1.0, "same"),
        # Their medians are far apart, and so are their deciles.
        ((1.0, 0.5, 3.0), (2.0, 1.0, 4.0), 1.0, "too noisy"),
        # Apart by a fifth, while the device became a quarter faster.
        ((1.0, 1.0, 1.0), (1.2, 1.2, 1.2), 1.25, "too noisy"),
        ((1.0, 1.0, 1.0), (1.2, 1.2, 1.2), 1.15, "shorter"),
    ],
)
def test_the_rule(own, other, moved, told):
    assert ratio(Seconds(*own), Seconds(*other), moved).verdict == told


@given(times(), times(), st.floats(1.0, 3.0))
def test_the_verdict_is_the_same_from_both_sides_and_never_against_the_deciles(own, other, moved):
    # A hair's breadth at a bound may fall to either side.
    found, back = ratio(own, other, moved), ratio(other, own, moved)
    bounds = (1.0, SAME_TIME, 1 / SAME_TIME)
    assume(not any(edge == pytest.approx(bound) for edge in (found.least, found.most) for bound in bounds))
    assert back.verdict == OPPOSITE[found.verdict]
    assert found.least <= found.value * (1 + 1e-9)
    assert found.value <= found.most * (1 + 1e-9)
    if own.p10 <= other.p90 and other.p10 <= own.p90:
        assert found.verdict in ("same", "too noisy")


@given(times(), times(), st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_drift_only_adds_doubt(own, other, some, more):
    told = ratio(own, other, some * more).verdict
    assert told == "too noisy" or told == ratio(own, other, some).verdict


@pytest.mark.parametrize(
    "odd", [{"fwd": None}, {"fwd_p10": "x"}, {"fwd_p90": -1}, {"fwd": 9.0}, {"fwd_p90": True}]
)
def test_what_is_no_time_with_its_spread_is_not_compared(odd):
    assert seconds({"fwd": 1.0, "fwd_p10": 0.5, "fwd_p90": 2.0}, "fwd") == Seconds(1.0, 0.5, 2.0)
    assert seconds({"fwd": 1.0, "fwd_p10": 0.5, "fwd_p90": 2.0, **odd}, "fwd") is None


def test_drift_is_what_the_yardsticks_differ_by_at_most():
    assert drift(GEMM, {**GEMM, "gemm": 1.2, "copy": 0.5}) == pytest.approx(2.0)
    assert drift(GEMM, {**GEMM, "gemm": 2.0, "gemm_flops": 2e9}) == 1.0
    assert drift(GEMM, {}) == 1.0


@pytest.mark.parametrize("odd", [None, "fast", 0, -1.0, nan, inf, 10**400, [1]])
@pytest.mark.parametrize("name", ["gemm", "gemm_flops", "copy", "copy_bytes"])
def test_without_both_yardsticks_there_is_no_rate(name, odd):
    timings = {"gemm": 0.5, "gemm_flops": 2e9, "copy": 0.25, "copy_bytes": 1e9}
    assert yardsticks(timings) == Yardsticks(4e9, 4e9)
    assert yardsticks({**timings, name: odd}) is None


#: Seconds of a step in float32 by network.
BASE = {"resnet": 0.1, "unet": 0.2, "lstm": 0.05}
#: An RX 5700 in float16 (github.com/lamikr/pytorch-gpu-benchmark): resnet50 3.7, vgg16 6.8 times as long.
RX_5700 = {"resnet": 0.37, "unet": 1.36, "lstm": 0.055}


def trained(dtype: str, steps: Mapping[str, float], spread: float, state: str = "pass") -> list[Outcome]:
    return [
        Outcome(
            f"cuda:0/default/train-{network}/{dtype}", "cuda:0", "default", f"train-{network}",
            "train", state, native_isa="gfx1010", effective_isa="gfx1030", dtype=dtype,
            timings={"step": step, "step_p10": step / spread, "step_p90": step * spread, "step_repeats": 9},
        )
        for network, step in steps.items()
    ]  # fmt: skip


def run(
    half: Optional[Mapping[str, float]] = None, spread: float = 1.02, state: str = "pass",
    changes: Mapping[str, str] = {}, **fields: object,
) -> Results:  # fmt: skip
    found = synthetic.run(changes)
    outcomes = [*found.outcomes, *trained("float32", BASE, spread)]
    if half:
        outcomes += trained("float16", half, spread, state)
    return judge(dataclasses.replace(found, outcomes=tuple(outcomes), **fields))


def sentence(results: Results) -> str:
    assert results.recommendation is not None
    return results.recommendation.sentence


#: Seconds of a step in float16, the spread of all times, and how long a step takes in words.
SAID = (
    (RX_5700, 1.02, "1.1 to 6.8 times as long (3 networks) in float16", "float32"),
    ({"resnet": 0.06, "unet": 0.1, "lstm": 0.03}, 1.02, "0.5 to 0.6 times as long (3 networks) in float16",
     "float16"),
    ({"resnet": 0.06}, 1.02, "0.6 times as long (1 network) in float16", "float16"),
    (BASE, 1.02, "as long in float16", "float32"),
    ({"resnet": 0.104, "unet": 0.207, "lstm": 0.052}, 1.005, "as long in float16", "float32"),
    ({"resnet": 0.15, "unet": 0.3, "lstm": 0.08}, 1.5, "", "float32"),
)  # fmt: skip


@pytest.mark.parametrize(("half", "spread", "said", "best"), SAID)
def test_the_sentence_by_the_times_of_the_networks(half, spread, said, best):
    compared = f"Against float32, a training step takes {said}."
    noisy = "The times in float16 are too noisy to compare with float32."
    expected = f"{compared if said else noisy} The fastest correct dtype on this card is {best}."
    assert sentence(run(half, spread)).endswith(expected)


def test_nothing_is_said_where_half_precision_was_not_timed_or_is_wrong():
    assert "fastest correct dtype" not in sentence(run())
    assert "fastest correct dtype" not in sentence(run(RX_5700, state="wrong"))
    wrong = run({"resnet": 0.05, "unet": 0.1}, changes={"*/convolution/*fp16*": "wrong"})
    assert wrong.recommendation is not None
    assert wrong.recommendation.per["float16/training"]["verdict"] == "none"
    assert "fastest correct dtype" not in sentence(wrong)


def test_a_simulated_machine_has_no_speed():
    assert "fastest correct dtype" not in sentence(run(RX_5700, simulated="machine"))


def test_two_dtypes_are_compared_over_the_networks_that_both_have():
    one = run({"resnet": 0.06, "unet": 0.12})
    bfloat16 = trained("bfloat16", {"resnet": 0.055, "unet": 0.11, "lstm": 0.05}, 1.02)
    assert one.recommendation is not None
    per = {**one.recommendation.per, "bfloat16/training": one.recommendation.per["float16/training"]}
    found = dtype_speeds(dataclasses.replace(one, outcomes=(*one.outcomes, *bfloat16)), per)
    float16, other = found[1:]
    assert float16.time_over(frozenset(BASE)) < other.time_over(frozenset(BASE))
    assert fastest(found) is other


def test_each_dtype_is_timed_under_its_own_setting():
    results = run(RX_5700)
    assert results.recommendation is not None
    float32, float16 = dtype_speeds(results, results.recommendation.per)
    assert (float32.setting, float16.setting) == ("default", "default")
    assert fastest((float32, float16)) is float32
    assert fastest((float32,)) is None


FIRST = synthetic.TIMED
SECOND = "conv2d-fp32-n4-c128-i28x28-k128-f1x1"
TRAINED = {"fwd": 2, "bwd-data": 1, "bwd-weights": 2}


def timings_of(fwd: float, bwd_data: float, bwd_weights: float) -> dict[str, float]:
    """Means are twice the medians, deciles 0.5 and 4 times: all tell apart."""
    medians = {"fwd": fwd, "bwd_data": bwd_data, "bwd_weights": bwd_weights, "fwd_bwd": 1.0}
    kinds = {"": 1.0, "_mean": 2.0, "_p10": 0.5, "_p90": 4.0}
    repeats = {f"{key}_repeats": synthetic.REPEATS for key in medians}
    return repeats | {
        f"{key}{kind}": factor * value for key, value in medians.items() for kind, factor in kinds.items()
    }


def shapes(second: Mapping[str, int] = TRAINED) -> Shapes:
    whole = {name: 10 * count for name, count in TRAINED.items()}
    return Shapes((Recorded(FIRST, whole), Recorded(SECOND, second)))


def timed(
    by_setting: Mapping[str, Mapping[str, Mapping[str, float]]],
    of: Shapes,
    backend: str = "onednn",
    **options: Any,
) -> Results:
    """A run that timed these problems under these settings."""
    found = synthetic.run(backend=backend)
    pattern = next(each for each in found.outcomes if each.check == "throughput")
    kept = [each for each in found.outcomes if each.check != "throughput"]
    outcomes = [
        _outcome(pattern, setting, problem, timings)
        for setting, problems in by_setting.items()
        for problem, timings in problems.items()
    ]
    asked = {**found.options, "shapes": to_json(of), **options}
    return dataclasses.replace(found, outcomes=(*kept, *outcomes), options=asked)


def _outcome(pattern: Outcome, setting: str, problem: str, timings: Mapping[str, float]) -> Outcome:
    name = f"{pattern.device}/{setting}/throughput/{problem}"
    return dataclasses.replace(pattern, id=name, setting=setting, problem=problem, timings=timings)


BOTH = {FIRST: timings_of(1.0, 2.0, 3.0), SECOND: timings_of(0.25, 9.0, 9.0)}


CHANNELS_LAST = Setting("channels-last", "the memory format", "native-with-settings", channels_last=True)


def under_channels_last(results: Results) -> Results:
    return dataclasses.replace(results, settings=(*results.settings, CHANNELS_LAST))


def test_channels_last_counts_under_its_setting() -> None:
    # A program that has one problem in both formats and another in channels-last alone.
    first, second = f"{FIRST}-nhwc", f"{SECOND}-nhwc"
    whole = {name: 10 * count for name, count in TRAINED.items()}
    of = Shapes((Recorded(FIRST, whole), Recorded(first, whole), Recorded(second, TRAINED)))
    quick = {first: timings_of(0.5, 1.0, 1.5), second: timings_of(0.125, 1.0, 1.0)}
    results = under_channels_last(
        timed({"default": {**BOTH, first: BOTH[FIRST], second: BOTH[SECOND]}, "channels-last": quick}, of)
    )
    ranked = times_of(Evidence(results), ["default", "channels-last"], "float32", "training")
    assert ranked["default"] == 2 * (2 * 100 + 2 * 0.25 + 9 + 2 * 9)
    assert ranked["channels-last"] == 2 * (2 * 50 + 2 * 0.125 + 1 + 2 * 1)

    # Where no program has both a format is that of the setting.
    quick = {f"{FIRST}-nhwc": timings_of(0.5, 1.0, 1.5)}
    results = under_channels_last(timed({"default": BOTH, "channels-last": quick}, shapes()))
    assert ("cpu", "channels-last", FIRST) in timed_problems(results)
    assert len(timed_problems(results)) == 3


#: The first is the faster one by the geometric mean, the second by the time of the program.
FAST_ONCE = {FIRST: timings_of(40.0, 40.0, 40.0), SECOND: timings_of(0.001, 0.001, 0.001)}
FAST_OFTEN = {FIRST: timings_of(1.0, 1.0, 1.0), SECOND: timings_of(1.6, 1.6, 1.6)}
DEAD = {"state": "error", "failure": "miopen-status"}


@pytest.mark.parametrize(("weighted", "setting"), [(False, "vendor-off"), (True, "bypass")])
def test_counts_weigh_in_the_recommendation(weighted: bool, setting: str) -> None:
    rare = {"fwd": 1, "bwd-data": 1, "bwd-weights": 1}
    results = timed({"vendor-off": FAST_ONCE, "bypass": FAST_OFTEN}, shapes(second=rare), backend="miopen")
    if not weighted:
        flat = [
            dataclasses.replace(each, timings={**each.timings, "fwd_bwd": each.timings["fwd"]})
            if each.check == "throughput" else each
            for each in results.outcomes
        ]  # fmt: skip
        results = dataclasses.replace(
            results, outcomes=tuple(flat), options={**results.options, "shapes": None}
        )
    dead = tuple(
        dataclasses.replace(each, **DEAD)
        if each.check in ("convolution", "training-step")
        and each.setting not in ("vendor-off", "bypass", "cpu")
        else each
        for each in results.outcomes
    )
    found = recommend(dataclasses.replace(results, outcomes=dead))
    assert found is not None
    assert found.configuration.setting == setting
    assert ("the float32 convolutions of your program" in found.cost) == weighted


def test_what_a_program_weighs() -> None:
    # Two that differ in their means alone: one is spared most of the time.
    spiky = {key: 20 * value if key.endswith("_mean") else value for key, value in FAST_OFTEN[FIRST].items()}
    results = timed({"vendor-off": {FIRST: FAST_OFTEN[FIRST]}, "bypass": {FIRST: spiky}}, shapes())
    found = times_of(Evidence(results), ["vendor-off", "bypass"], "float32", "training")
    assert found["bypass"] == 20 * found["vendor-off"] == 20 * 2 * 50

    # The dtype that a program computes most in comes first.
    half = FIRST.replace("fp32", "fp16")
    results = timed({"default": BOTH}, shapes())
    assert next(iter(recommend(results).per)) == "float32/training"  # type: ignore[union-attr]
    heavy = Shapes((*shapes().problems, Recorded(half, dict.fromkeys(TRAINED, 1000))))
    found = recommend(timed({"default": BOTH}, heavy))
    assert found is not None
    assert next(iter(found.per)) == "float16/training"
    assert "all float16 problems" in found.sentence
    # Its counts are all 0: then speed is that of a run without shapes.
    never = {"fwd": 0, "bwd-data": 0, "bwd-weights": 0}
    of = Shapes((Recorded(FIRST, never),))
    results = timed({"default": {FIRST: BOTH[FIRST]}}, of)
    found = recommend(results)
    assert found is not None
    assert found.verdict == "native"


def test_the_page_shows_the_programs_problems() -> None:
    results = timed({"default": BOTH, "bypass": BOTH}, shapes())
    found = program(dataclasses.replace(results, recommendation=recommend(results)))
    assert found is not None
    assert found.setting == "default"
    assert found.caption == "Times cover all convolutions of the program."
    # By means: 20 * 2 + 10 * 4 + 20 * 6 of the first, 2 * 0.5 + 1 * 18 + 2 * 18 of the second.
    assert found.problems.rows == (
        (FIRST, "20 / 10 / 20", "pass", "3 min 20 s", "78 %"), (SECOND, "2 / 1 / 2", "pass", "55 s", "22 %"),
    )  # fmt: skip

    # A problem that could not be timed has no time. A run without shapes has no program.
    found = program(timed({"default": {FIRST: BOTH[FIRST]}}, shapes()))
    assert found is not None
    assert found.problems.rows[1] == (SECOND, "2 / 1 / 2", "not run", "", "")
    assert program(synthetic.run()) is None


def test_for_inference_the_page_shows_forward_alone_and_states_of_channels_last() -> None:
    forward = {"fwd": 1.0, "fwd_mean": 2.0, "fwd_p10": 1.0, "fwd_p90": 3.0}
    by_setting = {"channels-last": {f"{FIRST}-nhwc": forward}}
    of = Shapes((Recorded(FIRST, TRAINED),))
    found = program(under_channels_last(timed(by_setting, of, purpose="inference")))
    assert found is not None
    assert found.setting == "channels-last"
    assert "all forward convolutions" in found.caption
    assert found.problems.rows == ((FIRST, "2 / 1 / 2", "pass", "4 s", "100 %"),)
