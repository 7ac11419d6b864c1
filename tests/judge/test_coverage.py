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


SIZES = "larger sizes: tested up to batch 2, 64 channels, 28x28 pixels, 216 KiB per tensor"
OFTEN = {
    "*/problem-matrix/*": {"numerics": {"calls": 20}},
    "*/training-step/*": {"numerics": {"repetitions": 600}},
}
GRADIENTS = "of float32 convolution the gradient of the input and the gradient of the weights"
ONLY_OFF = {**natively(STATUS), "vendor-off/convolution*/*fp16*": "blocked"}
PLAIN = {"*/convolution-kinds/*": "skipped", "*/problem-matrix/*": "skipped"}


@every_row(
    ("results", "words"),
    [
        pytest.param(run(), f"{SIZES} (your own sizes: `rocmprobe run --shapes model.json`)", id="sizes"),
        pytest.param(options(run(), shapes={"problems": []}), SIZES, id="the program's own sizes"),
        pytest.param(run(), "rare failures: each case ran once", id="cases that ran once"),
        pytest.param(run(OFTEN), "rare failures: each case ran once, some 600 times", id="often"),
        pytest.param(options(run(OFTEN), level="long"),
                     "rare failures: with 95 % probability, this run finds failure rates above 15 % in "
                     "problem-matrix (20 runs) and 0.5 % in training-step (600 runs), and each other case "
                     "ran once", id="failure rates at level long"),
        pytest.param(options(run(), level="long"), "rare failures: each case ran once", id="once, long"),
        pytest.param(run(), "convolution in bfloat16", id="a dtype"),
        pytest.param(run({"*fp16*": "n/a"}), "convolution in float16 and bfloat16", id="two dtypes"),
        pytest.param(run(ONLY_OFF), "convolution in float16 and bfloat16", id="of the setting"),
        pytest.param(run({"*/bwd-*": "n/a"}), GRADIENTS, id="gradients"),
        pytest.param(run(), "1-d convolution", id="a kind"),
        pytest.param(run(PLAIN), "1-d, 3-d, transposed and depthwise convolution", id="kinds"),
        pytest.param(run({"*/training-step/*": "n/a", "*/batch-norm/*": "n/a"}),
                     "batch norm and a training step", id="layers"),
        pytest.param(run(), "memory", id="memory"),
        pytest.param(run({"*/throughput/*": "blocked"}), "speed", id="speed"),
        pytest.param(run(), "the problems of level standard and long", id="levels above quick"),
        pytest.param(options(run(), level="standard"), "the problems of level long", id="level long"),
        pytest.param(run(simulated="m"), "the GPU itself: the machine was simulated", id="simulated"),
    ],
)  # fmt: skip
def test_what_is_not_covered(results, words):
    assert words in recommend(results).not_covered


@every_row(
    ("results", "beginning"),
    [
        (run(), "of float32"), (run(), "batch norm"), (run(), "speed"), (run(), "training:"),
        (options(run(), level="long"), "the problems of level"),
    ],
)  # fmt: skip
def test_what_is_covered(results, beginning):
    assert [words for words in recommend(results).not_covered if words.startswith(beginning)] == []


def test_inference_and_other_devices_are_named():
    assert any(words.startswith("training:") for words in recommend(run(purpose="inference")).not_covered)
    results = run({"*/problem-matrix/*": "skipped"})
    smaller = "larger sizes: tested up to batch 2, 32 channels, 28x28 pixels, 196 KiB "
    assert recommend(results).not_covered[0].startswith(smaller)
    second = dataclasses.replace(results.outcomes[0], id="cuda:1/x", device="cuda:1")
    results = dataclasses.replace(results, outcomes=(*results.outcomes, second))
    assert "cuda:1: the recommendation is about cuda:0" in recommend(results).not_covered


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
