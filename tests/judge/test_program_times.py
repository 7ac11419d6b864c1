"""Times of a program's problems, and how its counts weigh in the recommendation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import synthetic
from rows import every_row
from synthetic import recommend

from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.recommendation.speed import times as times_of
from rocmprobe.judge.times import timed_problems
from rocmprobe.model.results import Outcome, Results, Setting
from rocmprobe.model.results_file import to_json
from rocmprobe.model.shapes import Recorded, Shapes
from rocmprobe.report.page.shapes_table import program

FIRST = synthetic.TIMED
SECOND = "conv2d-fp32-n4-c128-i28x28-k128-f1x1"
TRAINED = {"fwd": 2, "bwd-data": 1, "bwd-weights": 2}


def times(fwd: float, bwd_data: float, bwd_weights: float) -> dict[str, float]:
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
    name = f"{pattern.device}/torch/{setting}/throughput/{problem}"
    return dataclasses.replace(pattern, id=name, setting=setting, problem=problem, timings=timings)


BOTH = {FIRST: times(1.0, 2.0, 3.0), SECOND: times(0.25, 9.0, 9.0)}


CHANNELS_LAST = Setting("channels-last", "the memory format", "native-with-settings", channels_last=True)


def under_channels_last(results: Results) -> Results:
    return dataclasses.replace(results, settings=(*results.settings, CHANNELS_LAST))


def test_channels_last_counts_under_its_setting() -> None:
    # A program that has one problem in both formats and another in channels-last alone.
    first, second = f"{FIRST}-nhwc", f"{SECOND}-nhwc"
    whole = {name: 10 * count for name, count in TRAINED.items()}
    of = Shapes((Recorded(FIRST, whole), Recorded(first, whole), Recorded(second, TRAINED)))
    quick = {first: times(0.5, 1.0, 1.5), second: times(0.125, 1.0, 1.0)}
    results = under_channels_last(
        timed({"default": {**BOTH, first: BOTH[FIRST], second: BOTH[SECOND]}, "channels-last": quick}, of)
    )
    ranked = times_of(Evidence(results), ["default", "channels-last"], "float32", "training")
    assert ranked["default"] == 2 * (2 * 100 + 2 * 0.25 + 9 + 2 * 9)
    assert ranked["channels-last"] == 2 * (2 * 50 + 2 * 0.125 + 1 + 2 * 1)

    # Where no program has both a format is that of the setting.
    quick = {f"{FIRST}-nhwc": times(0.5, 1.0, 1.5)}
    results = under_channels_last(timed({"default": BOTH, "channels-last": quick}, shapes()))
    assert ("cpu", "channels-last", FIRST) in timed_problems(results)
    assert len(timed_problems(results)) == 3


#: The first is the faster one by the geometric mean, the second by the time of the program.
FAST_ONCE = {FIRST: times(40.0, 40.0, 40.0), SECOND: times(0.001, 0.001, 0.001)}
FAST_OFTEN = {FIRST: times(1.0, 1.0, 1.0), SECOND: times(1.6, 1.6, 1.6)}
DEAD = {"state": "error", "failure": "miopen-status"}


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
