"""What a program would take under each setting, and what its counts do to the recommendation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

import synthetic
from rows import every_row

from rocmprobe.judge import assessment
from rocmprobe.judge.recommendation.recommend import recommend
from rocmprobe.judge.recommendation.step_time import step_times
from rocmprobe.model.results import Outcome, Results, Setting, StepTime
from rocmprobe.model.results_file import to_json
from rocmprobe.model.shapes import Recorded, Shapes, Steps
from rocmprobe.report.page.shapes_table import program, sentence

FIRST = synthetic.TIMED
SECOND = "conv2d-fp32-n4-c128-i28x28-k128-f1x1"
TRAINED = {"fwd": 2, "bwd-data": 1, "bwd-weights": 2}
STEPS = Steps(
    made=10, alike=9, device="cpu", threads=2, seconds=30.0, seconds_p10=29.0, seconds_p90=31.0,
    rest_seconds=5.0,
)  # fmt: skip


def times(fwd: float, bwd_data: float, bwd_weights: float) -> dict[str, float]:
    """Means are twice the medians, deciles 0.5 and 4 times: all tell apart."""
    medians = {"fwd": fwd, "bwd_data": bwd_data, "bwd_weights": bwd_weights, "fwd_bwd": 1.0}
    kinds = {"": 1.0, "_mean": 2.0, "_p10": 0.5, "_p90": 4.0}
    repeats = {f"{key}_repeats": synthetic.REPEATS for key in medians}
    return repeats | {
        f"{key}{kind}": factor * value for key, value in medians.items() for kind, factor in kinds.items()
    }


def shapes(steps: Optional[Steps] = STEPS, second: Mapping[str, int] = TRAINED) -> Shapes:
    whole = {name: 10 * count for name, count in TRAINED.items()}
    return Shapes((Recorded(FIRST, whole, TRAINED), Recorded(SECOND, second, {"fwd": 1})), steps)


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
    name = f"{pattern.device}/torch/{setting}/throughput/{problem}"
    return dataclasses.replace(pattern, id=name, setting=setting, problem=problem, timings=timings)


BOTH = {FIRST: times(1.0, 2.0, 3.0), SECOND: times(0.25, 9.0, 9.0)}


def told(results: Results) -> dict[str, StepTime]:
    return {each.setting: each for each in step_times(results)}


def test_the_sum_of_counts_and_means_and_the_rest_as_recorded() -> None:
    found = told(timed({"default": BOTH}, shapes()))["default"]
    # 2 * 1 + 1 * 2 + 2 * 3 of the first, 1 * 0.25 of the second: 10.25, by medians.
    assert found.convolution_seconds == 2 * 10.25
    assert found.seconds == 5 + 2 * 10.25
    assert (found.seconds_p10, found.seconds_p90) == (5 + 0.5 * 10.25, 5 + 4 * 10.25)
    assert (found.per, found.convolutions, found.timed, found.reason) == ("step", 6, 6, "")


def test_what_leaves_no_sum() -> None:
    # What was not timed leaves no sum.
    some = told(timed({"default": {FIRST: BOTH[FIRST]}}, shapes()))["default"]
    assert (some.convolutions, some.timed) == (6, 5)
    assert (some.seconds, some.convolution_seconds) == (None, None)
    assert some.reason == f"{SECOND} could not be timed"

    # A program without steps and inference.
    whole = told(timed({"default": BOTH}, shapes(None)))["default"]
    assert (whole.per, whole.seconds) == ("program", None)
    assert whole.convolution_seconds == 2 * (10 * 10.0 + 2 * 0.25 + 3 * 9.0)
    assert whole.reason == "no training step was recorded"
    forward = told(timed({"default": BOTH}, shapes(), purpose="inference"))["default"]
    assert (forward.per, forward.convolution_seconds) == ("program", 2 * (20 * 1.0 + 2 * 0.25))
    assert forward.reason == "the run is for inference"

    # A run without shapes predicts nothing.
    results = synthetic.run()
    assert step_times(results) == ()
    assert program(results) is None
    assert sentence(results) == ""


@every_row(
    ("steps", "words"),
    [
        (dataclasses.replace(STEPS, device="cuda", rest_seconds=None), "on cuda, but this run uses cpu"),
        (dataclasses.replace(STEPS, device="several", rest_seconds=None), "recorded on several devices"),
        (dataclasses.replace(STEPS, rest_seconds=None), "in several threads at once"),
        (dataclasses.replace(STEPS, device="cuda", rest_seconds=None), "while the program runs"),
        (dataclasses.replace(STEPS, device=None), "compute no convolution"),
    ],
)
def test_without_its_rest_a_step_is_not_predicted(steps: Steps, words: str) -> None:
    backend = "miopen" if "program runs" in words else "onednn"
    results = timed({"default": BOTH}, shapes(steps), backend=backend)
    found = told(results)["default"]
    assert (found.seconds, found.convolution_seconds) == (None, 2 * 10.25)
    assert words in found.reason
    assert words in sentence(
        dataclasses.replace(results, recommendation=recommend(results), step_times=(found,))
    )


CHANNELS_LAST = Setting("channels-last", "the memory format", "native-with-settings", channels_last=True)


def under_channels_last(results: Results) -> Results:
    return dataclasses.replace(results, settings=(*results.settings, CHANNELS_LAST))


def test_channels_last_counts_under_its_setting() -> None:
    # A program that has one problem in both formats and another in channels-last alone.
    first, second = f"{FIRST}-nhwc", f"{SECOND}-nhwc"
    whole = {name: 10 * count for name, count in TRAINED.items()}
    of = Shapes((Recorded(FIRST, whole, TRAINED), Recorded(first, whole, TRAINED),
                 Recorded(second, TRAINED, {"fwd": 1})), STEPS)  # fmt: skip
    quick = {first: times(0.5, 1.0, 1.5), second: times(0.125, 1.0, 1.0)}
    results = under_channels_last(
        timed({"default": {**BOTH, first: BOTH[FIRST], second: BOTH[SECOND]}, "channels-last": quick}, of)
    )
    found = told(results)
    assert found["default"].convolution_seconds == 2 * (10.0 + 10.0 + 0.25)
    assert found["channels-last"].convolution_seconds == 2 * (5.0 + 5.0 + 0.125)
    ranked = assessment.times(results, ["default", "channels-last"], "float32", "training")
    assert ranked["default"] == 2 * (2 * 100 + 2 * 0.25 + 9 + 2 * 9)
    assert ranked["channels-last"] == 2 * (2 * 50 + 2 * 0.125 + 1 + 2 * 1)

    # Where no program has both a format is that of the setting.
    quick = {f"{FIRST}-nhwc": times(0.5, 1.0, 1.5)}
    results = under_channels_last(timed({"default": BOTH, "channels-last": quick}, shapes()))
    assert ("cpu", "channels-last", FIRST) in assessment.timed_problems(results)
    assert len(assessment.timed_problems(results)) == 3


#: The first is the faster one by the geometric mean, the second by the time of the program.
FAST_ONCE = {FIRST: times(4.0, 4.0, 4.0), SECOND: times(0.1, 0.1, 0.1)}
FAST_OFTEN = {FIRST: times(1.0, 1.0, 1.0), SECOND: times(1.6, 1.6, 1.6)}
DEAD = {"state": "error", "cause": "miopen-status"}


@every_row(("weighted", "setting"), [(False, "vendor-off"), (True, "bypass")])
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


def test_what_a_step_weighs() -> None:
    # Two that differ in their means alone: one is spared most of the time.
    spiky = {key: 20 * value if key.endswith("_mean") else value for key, value in FAST_OFTEN[FIRST].items()}
    results = timed({"vendor-off": {FIRST: FAST_OFTEN[FIRST]}, "bypass": {FIRST: spiky}}, shapes())
    found = assessment.times(results, ["vendor-off", "bypass"], "float32", "training")
    assert found["bypass"] == 20 * found["vendor-off"] == 20 * 2 * 50

    # The dtype that a program computes most in comes first.
    half = FIRST.replace("fp32", "fp16")
    results = timed({"default": BOTH}, shapes())
    assert next(iter(recommend(results).per)) == "float32/training"  # type: ignore[union-attr]
    heavy = Shapes((*shapes().problems, Recorded(half, dict.fromkeys(TRAINED, 1000), TRAINED)), STEPS)
    found = recommend(timed({"default": BOTH}, heavy))
    assert found is not None
    assert next(iter(found.per)) == "float16/training"
    assert "all float16 problems" in found.sentence
    # Its counts are all 0: then speed is that of a run without shapes.
    never = {"fwd": 0, "bwd-data": 0, "bwd-weights": 0}
    of = Shapes((Recorded(FIRST, never, never),))
    results = timed({"default": {FIRST: BOTH[FIRST]}}, of)
    found = recommend(results)
    assert found is not None
    assert found.verdict == "native"
    assert told(results)["default"].convolution_seconds == 0.0


def test_the_page_shows_settings_and_problems() -> None:
    results = timed({"default": BOTH, "bypass": BOTH}, shapes())
    results = dataclasses.replace(results, recommendation=recommend(results), step_times=step_times(results))
    found = program(results)
    assert found is not None
    assert "9 of 10 steps were alike" in found.caption
    assert [row[0] for row in found.settings.rows] == ["default", "bypass"]
    assert found.settings.rows[0][1:6] == ("25.5 s (10.1 s to 46 s)", "20.5 s", "80 %", "0.85×", "6 of 6")  # noqa: RUF001
    assert [row[:3] for row in found.problems.rows] == [
        (FIRST, "2 / 1 / 2", "20 / 10 / 20"), (SECOND, "1 / 0 / 0", "2 / 1 / 2"),
    ]  # fmt: skip
    assert [row[3:] for row in found.problems.rows] == [("pass", "20 s", "98 %"), ("pass", "500 ms", "2 %")]
    assert "a step of your program takes 25.5 s" in sentence(results)


ONE = Shapes((Recorded(FIRST, TRAINED, TRAINED),), STEPS)


def test_for_inference_the_page_shows_forward_alone_and_states_of_channels_last() -> None:
    forward = {"fwd": 1.0, "fwd_mean": 2.0, "fwd_p10": 1.0, "fwd_p90": 3.0}
    by_setting = {"channels-last": {f"{FIRST}-nhwc": forward}}
    results = under_channels_last(timed(by_setting, ONE, purpose="inference"))
    found = program(dataclasses.replace(results, step_times=step_times(results)))
    assert found is not None
    assert found.setting == "channels-last"
    assert "all forward convolutions" in found.caption
    assert found.problems.header[1] == "in all"
    assert found.problems.rows == ((FIRST, "2 / 0 / 0", "2 / 1 / 2", "pass", "4 s", "100 %"),)
