"""What was not tested is not judged: a GPU that torch cannot use, a part of a run, a run that was stopped."""

from __future__ import annotations

import dataclasses

from rows import every_row
from synthetic import blocked_by_convolution, natively, recommend, run

from rocmprobe.judge.judgement import judge
from rocmprobe.model.results import Fact, Gpu, Machine

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
