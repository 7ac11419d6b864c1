"""Which dtype the recommendation names as the fastest correct one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Optional

import synthetic
from rows import every_row

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.recommendation.dtype_speed import dtype_speeds, fastest
from rocmprobe.model.results import Outcome, Results

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


@every_row(("half", "spread", "said", "best"), SAID)
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
