"""What a recommendation rests on, and what it says that it does not."""

from __future__ import annotations

import dataclasses
import re

import pytest
from rows import every_row
from synthetic import STATUS, natively, recommend, run


def options(results, **more):
    return dataclasses.replace(results, options={**results.options, **more})


@every_row(
    ("results", "level"),
    [
        pytest.param(options(run(), level="standard"), "high", id="whole, broad and real"),
        pytest.param(run(), "medium", id="level quick"),
        pytest.param(options(run(), shapes={"problems": []}), "high", id="a program's own problems"),
        pytest.param(options(run(), level="long", only=["convolution"]), "medium", id="narrowed"),
        pytest.param(options(run(), level="long", problems=["x"]), "medium", id="problems by hand"),
        pytest.param(options(run(simulated="m"), level="standard"), "medium", id="simulated"),
        pytest.param(run(simulated="m"), "low", id="simulated and quick"),
        pytest.param(run(partial=True), "low", id="cut off and quick"),
        pytest.param(run({"default/convolution/*": "probe-error"}), "low", id="unanswered and quick"),
    ],
)
def test_the_word_for_it(results, level):
    assert recommend(results).confidence_level == level


def left_out(results):
    return recommend(results).not_covered


class TestNotCovered:
    def test_of_the_recommended_setting(self):
        # Sizes, of the dtype that is recommended.
        sizes = "larger sizes: tested up to batch 2, 64 channels, 28x28 pixels, 216 KiB per tensor"
        offer = " (your own sizes: `rocmprobe run --shapes model.json`)"
        assert left_out(run())[0] == sizes + offer
        assert left_out(options(run(), shapes={"problems": []}))[0] == sizes
        without = left_out(run({"*/problem-matrix/*": "skipped"}))[0]
        assert without.startswith("larger sizes: tested up to batch 2, 32 channels, 28x28 pixels, 196 KiB ")

        # How often the cases ran, and at level long the rates that this shows.
        assert left_out(run())[1] == "rare failures: each case ran once"
        often = {
            "*/problem-matrix/*": {"numerics": {"calls": 20}},
            "*/training-step/*": {"numerics": {"repetitions": 600}},
        }
        assert left_out(run(often))[1] == "rare failures: each case ran once, some 600 times"
        assert left_out(options(run(often), level="long"))[1] == (
            "rare failures: with 95 % probability, this run finds failure rates above 15 % in problem-matrix "
            "(20 runs) and 0.5 % in training-step (600 runs), and each other case ran once"
        )
        assert left_out(options(run(), level="long"))[1] == "rare failures: each case ran once"

        # Dtypes.
        assert "convolution in bfloat16" in left_out(run())
        assert "convolution in float16 and bfloat16" in left_out(run({"*fp16*": "n/a"}))

        # It is about the setting that is recommended.
        only = {**natively(STATUS), "vendor-off/convolution*/*fp16*": "blocked"}
        assert recommend(run(only)).configuration.setting == "vendor-off"
        assert "convolution in float16 and bfloat16" in left_out(run(only))

        # Directions.
        assert not any("gradient" in words for words in left_out(run()))
        forward = run({"*/bwd-*": "n/a"})
        assert "of float32 convolution the gradient of the input and the gradient of the weights" in left_out(
            forward
        )
        assert any(words.startswith("training:") for words in left_out(run(purpose="inference")))

        # Kinds.
        assert "1-d convolution" in left_out(run())
        plain = run({"*/convolution-kinds/*": "skipped", "*/problem-matrix/*": "skipped"})
        assert "1-d, 3-d, transposed and depthwise convolution" in left_out(plain)

        # What stands beside convolution.
        assert "batch norm and a training step" not in left_out(run())
        without = run({"*/training-step/*": "n/a", "*/batch-norm/*": "n/a"})
        assert "batch norm and a training step" in left_out(without)
        assert "memory" in left_out(run())
        assert "speed" in left_out(run({"*/throughput/*": "blocked"}))
        assert "speed" not in left_out(run())

    def test_of_the_whole_run(self):
        # Levels.
        assert "the problems of level standard and long" in left_out(run())
        assert "the problems of level long" in left_out(options(run(), level="standard"))
        assert not any("level" in words for words in left_out(options(run(), level="long")))

        # Other devices a cut and a machine that is not there.
        results = run(partial=True, simulated="m")
        second = dataclasses.replace(results.outcomes[0], id="cuda:1/x", device="cuda:1")
        results = dataclasses.replace(results, outcomes=(*results.outcomes, second))
        assert left_out(results)[-2:] == (
            "cuda:1: the recommendation is about cuda:0",
            "the GPU itself: the machine was simulated",
        )


def nothing_safe(changes, **fields):
    told = recommend(run(changes, **fields))
    assert told.verdict == "none"
    return told.sentence


def test_where_nothing_is_safe_it_says_so_and_why():
    told = nothing_safe({"*/convolution/*": STATUS, "*/elementwise/float32": "crash"})
    assert re.match(
        r"No safe configuration was found: float32 convolution failed under all \d+ tested setting\(s\)\. "
        r"The first failing check is elementwise in float32: it crashes\.",
        told,
    )
    assert "The CPU was not tried" not in told
    assert "The CPU was not tested." in nothing_safe({"*/convolution/*": STATUS}, wanted="vendor-off")


def test_what_was_not_asked_did_not_fail():
    told = nothing_safe({"*": "blocked"})
    assert (
        "float32 convolution was not tested, because a test that it depends on fails. No check could run."
        in told
    )

    # What holds is named where something else does not.
    told = nothing_safe({"*/training-step/*": "wrong", "find-*/convolution/*": STATUS})
    assert re.search(
        r"worked under \d+ of \d+ tested setting\(s\) \(the defaults, [\w, .+-]+\), "
        r"but training step failed\.",
        told,
    )
    assert "convolution failed" not in told
