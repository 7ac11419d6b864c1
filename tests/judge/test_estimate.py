"""What a training of the user's size takes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import run

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.recommendation.estimate import TimedStep, estimate, training_time
from rocmprobe.model.results import Estimate, Outcome, Results
from rocmprobe.model.workload import Workload

TIMED = {"timings": {"step": 0.02, "step_p10": 0.01, "step_p90": 0.04},
         "numerics": {"batch": 4, "input": "3x32x32"}}  # fmt: skip


def model(check: str, setting: str, dtype: str = "float32", state: str = "pass", **fields: object) -> Outcome:
    case = f"cuda:0/torch/{setting}/{check}/{dtype}"
    return Outcome(
        case, "cuda:0", "torch", setting, check, "train", state, dtype=dtype, **{**TIMED, **fields}
    )  # type: ignore[arg-type]


def trained(*outcomes: Outcome, text: str = "images=1001 batch=4 epochs=3") -> Results:
    results = run()
    return dataclasses.replace(
        results, outcomes=(*results.outcomes, *outcomes), options={**results.options, "estimate": text}
    )


def of_models(results: Results) -> list[tuple[str, str]]:
    return [(each.id, each.severity) for each in results.findings if each.id.startswith("train-")]


def asked(results: Results) -> Estimate:
    found = estimate(results)
    assert found is not None
    return found


@given(
    st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 512),
    st.tuples(*[st.floats(1e-5, 10)] * 3).map(sorted),
)  # fmt: skip
def test_time_grows_by_the_number_of_batches_alone(
    images: int, epochs: int, batch: int, seconds: list[float]
) -> None:
    step = TimedStep("resnet", "cuda:0", "default", "float32", "3x32x32", batch, *seconds)
    time = training_time(step, Workload(images, epochs))
    assert time.epoch_low <= time.epoch <= time.epoch_high
    assert time.training == pytest.approx(epochs * time.epoch)
    batches = time.epoch / step.median
    assert (batches - 1.001) * batch < images <= (batches + 0.001) * batch


def test_every_network_that_trained_right_under_every_setting() -> None:
    found = asked(
        trained(
            model("train-resnet", "default"),
            model("train-unet", "bypass", "float16"),
            model("train-lstm", "default", state="wrong"),
            model("train-detector", "default", timings={}),
        )
    )
    assert [(each.name, each.setting, each.dtype) for each in found.times] == [
        ("resnet", "default", "float32"),
        ("unet", "bypass", "float16"),
    ]
    first = found.times[0]
    assert (first.epoch, first.epoch_low, first.epoch_high) == pytest.approx((5.02, 2.51, 10.04))
    assert first.training == pytest.approx(15.06)


def test_without_the_option_there_is_none() -> None:
    assert estimate(trained(model("train-resnet", "default"), text="")) is None

    # Of a simulated machine it says whose times these are.
    simulated = dataclasses.replace(trained(model("train-resnet", "default")), simulated="some-machine")
    assert "CPU that simulates it" in asked(simulated).left_out[0]


class TestRecommendation:
    def test_a_network_that_trains_wrong_speaks_against_its_setting_and_dtype(self) -> None:
        # A setting under which a network trains wrong is not right.
        recommendation = judge(trained(model("train-unet", "default", state="wrong"))).recommendation
        assert recommendation is not None
        assert recommendation.per["float32/training"]["setting"] != "default"
        assert recommendation.per["float16/training"]["setting"] != "default"
        assert recommendation.per["float32/inference"]["setting"] == "default"

        # Under autocast it counts for its dtype alone.
        wrong = model("train-unet", "default", "float16", "wrong")
        recommendation = judge(trained(wrong)).recommendation
        assert recommendation is not None
        assert recommendation.per["float32/training"]["setting"] == "default"
        assert recommendation.per["float16/training"]["setting"] != "default"

        # An LSTM does not change what convolution needs.
        found = judge(trained(model("train-lstm", "default", state="wrong")))
        assert found.recommendation is not None
        assert found.recommendation.configuration.setting == "default"
        assert of_models(found) == [("train-lstm", "error")]

    def test_each_network_that_fails_is_a_finding(self) -> None:
        found = judge(
            trained(
                model("train-unet", "default", state="wrong"),
                model("train-unet", "default", "float16", "wrong"),
                model("train-resnet", "default", "float16", "error"),
                model("train-detector", "bypass", state="wrong"),
            )
        )
        assert of_models(found) == [("train-unet", "error"), ("train-resnet", "warning")]
