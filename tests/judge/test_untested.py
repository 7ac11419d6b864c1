"""What was not tested is not judged: a GPU that torch cannot use, a part of a run, a run that was stopped."""

from __future__ import annotations

import dataclasses

from rows import every_row
from synthetic import blocked_by_convolution, natively, run

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.recommendation.recommend import recommend
from rocmprobe.model.results import Fact, Gpu, Machine

AMD = Gpu(Fact("gfx1010"), Fact("gfx1010"), Fact("RX 5700 XT"), vendor=Fact("amd"), index=Fact(0))
HIDDEN = dataclasses.replace(AMD, index=Fact(None, "hidden under HIP_VISIBLE_DEVICES=-1"))
IN_PROCESSOR = dataclasses.replace(AMD, name=Fact("Raphael"), apu=Fact(True))
NVIDIA = Gpu(name=Fact("RTX 3060"), vendor=Fact("nvidia"))
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
        ("cpu", [NVIDIA], f"Your RTX 3060{ON_CPU}", "detect"),
        ("rocm", [NVIDIA], "Your RTX 3060 was not tested: this torch is built for ROCm.", "detect"),
        ("rocm", [HIDDEN], "Your RX 5700 XT was not tested: it is hidden under HIP_VISIBLE_DEVICES=-1.",
         "detect"),
        ("rocm", [AMD], "Your RX 5700 XT was not tested: this torch does not see it.", "detect"),
    ],
)  # fmt: skip
@every_row("device", ["auto", "all"])
def test_a_gpu_that_torch_cannot_use_is_not_judged_by_the_cpu(device, kind, gpus, sentence, command):
    found = judge(on_cpu(kind, *gpus, device=device)).recommendation
    assert (found.verdict, found.sentence) == ("gpu-not-tested", sentence)
    assert found.configuration.setting is None
    assert found.configuration.command == f"rocmprobe {command}"
    assert not found.verify


def test_without_a_gpu_the_result_is_said_to_be_about_the_cpu():
    found = recommend(on_cpu("cpu"))
    assert (found.verdict, found.configuration.setting) == ("native", "default")
    assert found.sentence == (
        "No GPU found: this result is about your CPU. Native convolution works: oneDNN is right on all "
        "float32 problems checked. Change nothing."
    )


def test_a_cpu_that_was_requested_is_judged_and_named():
    found = recommend(on_cpu("cpu", AMD, device="cpu"))
    assert found.verdict == "native"
    assert found.sentence.startswith("This result is about your CPU, not about your RX 5700 XT. Native conv")
    assert recommend(on_cpu("cpu", device="cpu")).sentence.startswith("Native convolution works")


def only(*checks, changes={}, **fields):  # noqa: B006 - read only
    results = run(changes, **fields)
    results = dataclasses.replace(results, options={**results.options, "only": checks})
    kept = tuple(each for each in results.outcomes if each.check in checks)
    return dataclasses.replace(results, outcomes=kept)


@every_row(
    ("checks", "changes", "sentence"),
    [
        (["gemm", "copy"], {}, "3 of 3 passed; convolution was not tested."),
        (["gemm", "copy"], {"*/gemm/float16": "wrong"}, "2 of 3 passed; convolution was not tested."),
        (["throughput"], {}, "13 of 13 passed; convolution was not tested."),
        (["training-step"], {}, "13 of 13 passed; convolution was not tested."),
        (["gemm"], {"*": "blocked"}, "No check could run; convolution was not tested."),
    ],
)
def test_a_run_without_convolution_is_not_judged(checks, changes, sentence):
    found = recommend(only(*checks, changes=changes))
    assert (found.verdict, found.sentence) == ("not-judged", sentence)
    assert found.configuration.setting is None
    assert {row["verdict"] for row in found.per.values()} == {"not-judged"}


def test_convolution_alone_is_judged_where_every_setting_fails():
    assert recommend(only("convolution", changes={"*": "wrong"})).verdict == "none"


def test_convolution_alone_says_that_training_was_not_tested():
    found = recommend(only("convolution"))
    assert found.sentence.endswith("checked. Batch norm and a training step were not tested.")


def test_a_way_that_was_left_out_is_not_judged():
    results = run({"*/convolution/*": "wrong"})
    options = {**results.options, "skip": ["*/bypass*", "*/cpu/*"]}
    kept = tuple(each for each in results.outcomes if each.setting in ("default", "vendor-off"))
    found = recommend(dataclasses.replace(results, outcomes=kept, options=options))
    assert (found.verdict, found.sentence) == (
        "not-judged",
        "The first native convolution gives wrong results. The bypass and the CPU were not tested.",
    )


class TestStopped:
    def stopped(self, changes, *settings):
        results = run(changes, partial=True)
        kept = tuple(each for each in results.outcomes if each.setting in settings)
        return recommend(dataclasses.replace(results, outcomes=kept))

    def test_what_fails_is_said_and_the_way_that_was_not_reached(self):
        found = self.stopped({**natively("hang"), **blocked_by_convolution()}, "default")
        assert (found.verdict, found.sentence) == (
            "not-judged",
            "The first native convolution hangs. The run was stopped before the bypass was tested.",
        )

    def test_a_dtype_of_which_too_little_was_tested_has_no_setting(self):
        found = self.stopped({"default/convolution/*fp16*": "wrong"}, "default")
        assert found.verdict == "native"
        assert "Too little was tested to say what is right for float16." in found.sentence
        assert "None" not in found.sentence

    def test_before_any_convolution(self):
        results = only("copy", "gemm", partial=True)
        results = dataclasses.replace(results, options={})
        assert recommend(results).sentence == (
            "3 of 3 passed. The run was stopped before convolution was tested."
        )

    def test_what_works_so_far_is_no_reason_to_change_nothing(self):
        found = self.stopped({}, "default")
        assert found.sentence == (
            "Native convolution works: MIOpen is right on all float32 problems checked. "
            "The run was stopped before all checks were done."
        )

    def test_a_run_that_tested_all_ways_is_judged(self):
        assert recommend(run({"*/convolution/*": "wrong"}, partial=True)).verdict == "none"
