"""The effect of gradients and memory on the recommendation."""

from __future__ import annotations

import dataclasses

from rows import every_row
from synthetic import FP16, FP32, recommend, run

from rocmprobe.judge.judgement import judge
from rocmprobe.model.results import Results


def with_outcome(check: str, state: str, problem: str = FP32, dtype: str = "float32") -> Results:
    """All is right on a CPU but for one more question to ``default``."""
    results = run(backend="onednn")
    like = next(
        each for each in results.outcomes if each.check == "convolution" and each.setting == "default"
    )
    name = f"cpu/default/{check}/{problem}"
    more = dataclasses.replace(
        like, id=name, check=check, state=state, problem=problem, direction=None, dtype=dtype
    )
    return dataclasses.replace(results, outcomes=(*results.outcomes, more))


def setting(results: Results, answer: str = "float32/training") -> object:
    found = recommend(results)
    assert found
    return found.per[answer]["setting"]


@every_row(
    ("check", "state"),
    [("gradient-flow", "wrong"), ("gradient-flow", "error"), ("memory", "error")],
)
def test_a_setting_that_fails_there_does_not_train(check: str, state: str) -> None:
    assert setting(with_outcome(check, "pass")) == "default"
    assert setting(with_outcome(check, state)) != "default"
    assert setting(with_outcome(check, state), "float32/inference") == "default"


def test_what_memory_says() -> None:
    # A prediction of memory that does not hold is told and speaks against nothing.
    results = judge(with_outcome("memory", "wrong"))
    assert setting(results) == "default"
    assert [(each.id, each.severity) for each in results.findings] == [("memory", "info")]
    assert setting(with_outcome("memory", "crash")) != "default"


def test_gradients_that_fail_speak_for_their_dtype() -> None:
    # Gradients that fail are found and no setting that was not asked is taken.
    results = judge(with_outcome("gradient-flow", "wrong"))
    assert ("gradient-flow", "error") in [(each.id, each.severity) for each in results.findings]
    assert results.recommendation is not None
    asked = {each.setting for each in results.outcomes if each.check == "gradient-flow"}
    taken = results.recommendation.configuration.setting
    assert taken in asked or results.recommendation.verdict != "native-with-settings"

    # Gradients speak for their dtype.
    results = with_outcome("gradient-flow", "wrong", FP16, "float16")
    assert setting(results) == "default"
    assert setting(results, "float16/training") != "default"
