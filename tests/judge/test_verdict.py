"""The verdict in words: headline, what it rests on, and what was not tested."""

from __future__ import annotations

import dataclasses
import re

import pytest
import synthetic
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


AMD = Gpu(Fact("gfx1010"), Fact("gfx1010"), Fact("RX 5700 XT"), vendor=Fact("amd"), index=Fact(0))
HIDDEN = dataclasses.replace(AMD, index=Fact(None, "hidden under HIP_VISIBLE_DEVICES=-1"))
IN_PROCESSOR = dataclasses.replace(AMD, name=Fact("Raphael"), apu=Fact(True))
ON_CPU = " was not tested: this torch is built for the CPU."


def on_cpu(kind, *gpus, device="auto", **fields):
    facts = {"torch.kind": Fact(kind, "torch/version.py"), "torch.version": Fact("2.4.0", "torch")}
    results = run(backend="onednn", machine=Machine(gpus, facts), **fields)
    return dataclasses.replace(results, options={**results.options, "device": device})


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("device", ["auto", "all"])
def test_a_gpu_that_torch_cannot_use_is_not_judged_by_the_cpu(device, kind, gpus, sentence, command):
    found = judge(on_cpu(kind, *gpus, device=device)).recommendation
    assert (found.verdict, found.sentence) == ("gpu-not-tested", sentence)
    assert found.configuration.setting is None
    assert found.configuration.command == f"rocmprobe {command}"
    assert not found.verify


def only(*checks, changes={}, **fields):  # noqa: B006 - read only
    results = run(changes, **fields)
    results = dataclasses.replace(results, options={**results.options, "only": checks})
    kept = tuple(each for each in results.outcomes if each.check in checks)
    return dataclasses.replace(results, outcomes=kept)


def stopped(changes, *settings, **options):
    """A run with outcomes of these settings only."""
    results = run(changes, partial=not options)
    kept = tuple(each for each in results.outcomes if each.setting in settings)
    return dataclasses.replace(results, outcomes=kept, options={**results.options, **options})


@pytest.mark.parametrize(
    ("results", "verdict", "sentence"),
    [
        pytest.param(run({"*/convolution/*": STATUS, "*/elementwise/float32": "crash"}), "none",
                     r"No safe configuration was found: float32 convolution failed under all \d+ tested "
                     r"setting\(s\)\. The first failing check is elementwise in float32: it crashes\."
                     r"(?!.*CPU)",
                     id="nothing is safe"),
        pytest.param(run({"*/convolution/*": STATUS}, wanted="vendor-off"), "none",
                     r"The CPU was not tested\.", id="nothing is safe without the CPU"),
        pytest.param(run({"*": "blocked"}), "none",
                     r"float32 convolution was not tested, because a test that it depends on fails\. "
                     r"No check could run\.", id="a blocked test did not fail"),
        pytest.param(run({"*/training-step/*": "wrong", "find-*/convolution/*": STATUS}), "none",
                     r"^((?!convolution failed).)*worked under \d+ of \d+ tested setting\(s\) \(the "
                     r"defaults, [\w, .+-]+\), but training step failed\.", id="some works"),
        pytest.param(on_cpu("cpu"), "native",
                     r"^No GPU found: this result is about your CPU\. Native convolution works: oneDNN gives "
                     r"correct results on all float32 problems tested\. Change nothing\.$", id="no GPU"),
        pytest.param(on_cpu("cpu", AMD, device="cpu"), "native",
                     r"^This result is about your CPU, not about your RX 5700 XT\. Native conv",
                     id="a CPU on request"),
        pytest.param(on_cpu("cpu", device="cpu"), "native", r"^Native convolution works", id="only a CPU"),
        pytest.param(only("convolution", changes={"*": "wrong"}), "none", "", id="convolution only, wrong"),
        pytest.param(only("convolution"), "native",
                     r"tested\. Batch norm and a training step were not tested\.$", id="convolution only"),
        pytest.param(stopped({"*/convolution/*": "wrong"}, "default", "vendor-off",
                             skip=["*/bypass*", "*/cpu/*"]),
                     "not-judged", r"^The first native convolution gives wrong results\. The bypass and the "
                     r"CPU were not tested\.$", id="ways that were skipped"),
        *(pytest.param(only(*checks, changes=changes), "not-judged",
                       f"^{re.escape(counts)}; convolution was not tested\\.$", id=counts)
          for checks, changes, counts in (
            (["gemm", "copy"], {}, "3 passed"),
            (["gemm", "copy"], {"*/gemm/float16": "wrong"}, "2 passed, 1 failed (1 wrong)"),
            (["throughput"], {}, "13 passed"), (["training-step"], {}, "13 passed"),
            (["gemm"], {"*": "blocked"}, "No check could run"),
        )),
        pytest.param(dataclasses.replace(only("copy", "gemm", partial=True), options={}), "not-judged",
                     r"^3 passed; convolution was not tested\.$", id="stopped before convolution"),
        pytest.param(stopped({**natively("hang"), **blocked_by_convolution()}, "default"), "not-judged",
                     r"^The first native convolution hangs\. The bypass, vendor-off and the CPU were not "
                     r"tested\.$", id="stopped after a failure"),
        pytest.param(stopped({"default/convolution/*fp16*": "wrong"}, "default"), "native",
                     r"Too little was tested to recommend a configuration for float16\.",
                     id="stopped before another setting had float16"),
        pytest.param(stopped({}, "default"), "native",
                     r"^Native convolution works: MIOpen gives correct results on all float32 problems "
                     r"tested\.$", id="stopped: no reason to change nothing"),
        pytest.param(run({"*/convolution/*": "wrong"}, partial=True), "none", "", id="stopped at the end"),
    ],
)  # fmt: skip
def test_the_verdict_on_what_was_tested(results, verdict, sentence):
    found = recommend(results)
    assert found.verdict == verdict
    assert re.search(sentence, found.sentence), found.sentence
    assert "None" not in found.sentence
    if verdict == "not-judged":
        assert found.configuration.setting is None
        assert {row["verdict"] for row in found.per.values()} <= {"not-judged"}
