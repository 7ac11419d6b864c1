"""The verdict in words: headline, what it rests on, and what was not tested."""

from __future__ import annotations

import dataclasses
import re

import pytest
import synthetic
from rows import every_row
from synthetic import STATUS, Change, blocked_by_convolution, everywhere, natively, recommend, run

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.recommendation.verdict import headline
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Configuration, Fact, Gpu, Machine, Recommendation, Setting


@pytest.mark.parametrize(
    ("changes", "headline", "said"),
    [
        ({}, "Convolution works in MIOpen. Change nothing.", "Change nothing."),
        (
            {"*/convolution/*fp16*": "wrong", "no-winograd/*": "pass"},
            "Change nothing for float32. For float16, set MIOPEN_DEBUG_CONV_WINOGRAD=0.",
            "float32 convolution needs no change. The findings ask for other changes.",
        ),
        (
            synthetic.natively("wrong", "convolution/*fp16*"),
            "Change nothing for float32. For float16, switch MIOpen off.",
            "For float16, use the setting “PyTorch's own kernels”.",
        ),
        (
            {**synthetic.natively("wrong", "convolution/*fp16*"), "default/softmax/*": "wrong"},
            "Change nothing for float32. For float16, switch MIOpen off. Failing: softmax.",
            "Failing with it: softmax. For float16, use the setting “PyTorch's own kernels”.",
        ),
        (
            {"*/convolution/*fp16*": "wrong"},
            "Change nothing for float32. For float16, nothing works.",
            "No configuration gives correct results in float16.",
        ),
        (
            {"default/softmax/*": "wrong"},
            "Convolution works in MIOpen. Failing: softmax.",
            "Convolution needs no change. The findings ask for other changes. Failing with it: softmax.",
        ),
        (
            {"*/convolution-kinds/conv_transpose2d*": "wrong"},
            "Convolution works in MIOpen. Failing: transposed 2-d convolution.",
            "Failing with it: transposed 2-d convolution.",
        ),
        (
            everywhere("error", "gemm/float32"),
            "Use the CPU. On the GPU, matrix products fail.",
            "Use the CPU: only the CPU gave correct results",
        ),
        (
            {"*/convolution/*": "wrong", "no-winograd/*": "pass", "gemm-only/*fp16*": "pass"},
            "Set MIOPEN_DEBUG_CONV_WINOGRAD=0. Convolution then works in MIOpen.",
            "MIOpen gives correct results with MIOPEN_DEBUG_CONV_WINOGRAD=0.",
        ),
    ],
)
def test_the_headline_names_every_change(changes: dict[str, Change], headline: str, said: str) -> None:
    machine = dataclasses.replace(synthetic.card("gfx1100", "gfx1100"), variables={})
    judged = judge(synthetic.run(changes, machine=machine, simulated="somewhere"))
    assert judged.recommendation
    assert said in judged.recommendation.sentence
    assert summarize(judged).headline == headline


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        (("convolution",), " Only convolution was tested."),
        (("convolution", "training-step"), " Matrix products were not tested."),
    ],
)
def test_the_headline_says_that_no_layer_below_was_tested(checks: tuple[str, ...], said: str) -> None:
    results = synthetic.run()
    outcomes = tuple(each for each in results.outcomes if each.check in checks)
    assert summarize(judge(dataclasses.replace(results, outcomes=outcomes))).headline.endswith(said)


def test_torch_flags_are_not_counted_as_variables() -> None:
    flags = {"cudnn.benchmark": True, "cudnn.deterministic": True}
    setting = Setting(
        "both", "", "native-with-settings", env={"MIOPEN_FIND_MODE": "2", "AMD_LOG_LEVEL": "1"}, torch=flags
    )
    results = judge(synthetic.run({}))
    answer = {"verdict": setting.verdict, "setting": "both", "env": dict(setting.env)}
    found = Recommendation(
        setting.verdict,
        "",
        Configuration("both", dict(setting.env)),
        per={f"float32/{results.purpose}": answer},
    )
    changed = dataclasses.replace(results, settings=(setting,), recommendation=found)
    assert headline(changed) == "Set 2 variables and 2 torch flags. Convolution then works in MIOpen."


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
        pytest.param(run(ONLY_OFF), "convolution in bfloat16", id="of the setting for each dtype"),
        pytest.param(
            run({**ONLY_OFF, "*/convolution*/*fp16*": "blocked"}),
            "convolution in float16 and bfloat16",
            id="no setting has float16",
        ),
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


AMD = Gpu(Fact("gfx1010"), Fact("gfx1010"), Fact("RX 5700 XT"), vendor=Fact("amd"), index=Fact(0))
HIDDEN = dataclasses.replace(AMD, index=Fact(None, "hidden under HIP_VISIBLE_DEVICES=-1"))
IN_PROCESSOR = dataclasses.replace(AMD, name=Fact("Raphael"), apu=Fact(True))
ON_CPU = " was not tested: this torch is built for the CPU."


def on_cpu(kind, *gpus, device="auto", **fields):
    facts = {"torch.kind": Fact(kind, "torch/version.py"), "torch.version": Fact("2.4.0", "torch")}
    results = run(backend="onednn", machine=Machine(gpus, facts), **fields)
    return dataclasses.replace(results, options={**results.options, "device": device})


@every_row(
    ("kind", "gpus", "sentence", "command"),
    [
        ("cuda", [AMD], "Your RX 5700 XT was not tested: this torch is built for CUDA.", "install"),
        ("cpu", [AMD], f"Your RX 5700 XT{ON_CPU}", "install"),
        ("cpu", [IN_PROCESSOR, AMD], f"Your RX 5700 XT{ON_CPU}", "install"),
        ("rocm", [HIDDEN], "Your RX 5700 XT was not tested: it is hidden under HIP_VISIBLE_DEVICES=-1.",
         "detect"),
        ("rocm", [AMD], "Your RX 5700 XT was not tested: this torch does not detect it.", "detect"),
    ],
)  # fmt: skip
@every_row("device", ["auto", "all"])
def test_a_gpu_that_torch_cannot_use_is_not_judged_by_the_cpu(device, kind, gpus, sentence, command):
    found = judge(on_cpu(kind, *gpus, device=device)).recommendation
    assert (found.verdict, found.sentence) == ("gpu-not-tested", sentence)
    assert found.configuration.setting is None
    assert found.configuration.command == f"rocmprobe {command}"
    assert not found.verify


def test_what_was_not_tested_is_said():
    # Without a GPU the result is said to be about the CPU.
    found = recommend(on_cpu("cpu"))
    assert (found.verdict, found.configuration.setting) == ("native", "default")
    assert found.sentence == (
        "No GPU found: this result is about your CPU. Native convolution works: oneDNN gives correct "
        "results on all float32 problems tested. Change nothing."
    )

    # A CPU that was requested is judged and named.
    found = recommend(on_cpu("cpu", AMD, device="cpu"))
    assert found.verdict == "native"
    assert found.sentence.startswith("This result is about your CPU, not about your RX 5700 XT. Native conv")
    assert recommend(on_cpu("cpu", device="cpu")).sentence.startswith("Native convolution works")

    # Convolution alone is judged where every setting fails.
    assert recommend(only("convolution", changes={"*": "wrong"})).verdict == "none"

    # Convolution alone says that training was not tested.
    found = recommend(only("convolution"))
    assert found.sentence.endswith("tested. Batch norm and a training step were not tested.")

    # A way that was left out is not judged.
    results = run({"*/convolution/*": "wrong"})
    options = {**results.options, "skip": ["*/bypass*", "*/cpu/*"]}
    kept = tuple(each for each in results.outcomes if each.setting in ("default", "vendor-off"))
    found = recommend(dataclasses.replace(results, outcomes=kept, options=options))
    assert (found.verdict, found.sentence) == (
        "not-judged",
        "The first native convolution gives wrong results. The bypass and the CPU were not tested.",
    )


def only(*checks, changes={}, **fields):  # noqa: B006 - read only
    results = run(changes, **fields)
    results = dataclasses.replace(results, options={**results.options, "only": checks})
    kept = tuple(each for each in results.outcomes if each.check in checks)
    return dataclasses.replace(results, outcomes=kept)


@every_row(
    ("checks", "changes", "sentence"),
    [
        (["gemm", "copy"], {}, "3 passed; convolution was not tested."),
        (
            ["gemm", "copy"],
            {"*/gemm/float16": "wrong"},
            "2 passed, 1 failed (1 wrong); convolution was not tested.",
        ),
        (["throughput"], {}, "13 passed; convolution was not tested."),
        (["training-step"], {}, "13 passed; convolution was not tested."),
        (["gemm"], {"*": "blocked"}, "No check could run; convolution was not tested."),
    ],
)
def test_a_run_without_convolution_is_not_judged(checks, changes, sentence):
    found = recommend(only(*checks, changes=changes))
    assert (found.verdict, found.sentence) == ("not-judged", sentence)
    assert found.configuration.setting is None
    assert {row["verdict"] for row in found.per.values()} == {"not-judged"}


class TestStopped:
    def stopped(self, changes, *settings):
        results = run(changes, partial=True)
        kept = tuple(each for each in results.outcomes if each.setting in settings)
        return recommend(dataclasses.replace(results, outcomes=kept))

    def test_a_run_that_stopped_says_how_far_it_came(self):
        # What fails is said and the way that was not reached.
        found = self.stopped({**natively("hang"), **blocked_by_convolution()}, "default")
        assert (found.verdict, found.sentence) == (
            "not-judged",
            "The first native convolution hangs. The bypass, vendor-off and the CPU were not tested.",
        )

        # A dtype of which too little was tested has no setting.
        found = self.stopped({"default/convolution/*fp16*": "wrong"}, "default")
        assert found.verdict == "native"
        assert "Too little was tested to recommend a configuration for float16." in found.sentence
        assert "None" not in found.sentence

        # Before any convolution.
        results = only("copy", "gemm", partial=True)
        results = dataclasses.replace(results, options={})
        assert recommend(results).sentence == "3 passed; convolution was not tested."

        # What works so far is no reason to change nothing.
        found = self.stopped({}, "default")
        assert found.sentence == (
            "Native convolution works: MIOpen gives correct results on all float32 problems tested."
        )

        # A run that tested all ways is judged.
        assert recommend(run({"*/convolution/*": "wrong"}, partial=True)).verdict == "none"
