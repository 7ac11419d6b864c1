"""The headline and the sentence: every change that the tested dtypes need, and no other."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic
from synthetic import Change, everywhere

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.recommendation.verdict import headline
from rocmprobe.judge.summary import summarize
from rocmprobe.model.results import Configuration, Recommendation, Setting


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
