"""The setting that a run recommends: correct first, then stable, little changed and fast."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import FP16, FP32, STATUS, TIMED, blocked_by_convolution, everywhere, natively, recommend, run
from tiers import examples

from rocmprobe.judge.judgement import judge
from rocmprobe.model.results import Outcome

DEAD = {**natively(STATUS), **blocked_by_convolution()}
ONLY_CPU = {**everywhere("error"), **everywhere("blocked", "training-step/*")}
ONLY_NO_WINOGRAD = {"*/convolution/*": STATUS, "no-winograd/convolution/*": "pass"}
NAIVE = {**natively(STATUS), "naive-only/convolution/*": "pass"}
UNTIMED = {"*/throughput/*": "blocked"}
UNSTABLE = {"state": "pass", "numerics": {"repeatable": False}}
CHANGES = ("vendor-off", "bypass", "bypass+vendor-off")
NO_OFF = {f"{name}/convolution/*": "wrong" for name in CHANGES}
NO_BYPASS = {f"{name}/convolution/*": "wrong" for name in CHANGES[1:]}
BACKWARD = {"default/convolution/*/bwd-*": "wrong", "default/training-step/*": "blocked"}
#: Only under default. A case that fails there has no result under similar settings.
MATRIX = {"default/problem-matrix/*": "crash"}
ONLY_BATCH_NORM = {
    "*/training-step/*": "n/a", "*/autocast-step/*": "n/a", "default/batch-norm/float32": "error",
}  # fmt: skip
SLOW_OFF = {"vendor-off": (2.8, 3.0, 3.2)}
FAST_OFF = {"vendor-off": (0.2, 0.2, 0.2)}
SLOW_BYPASS = dict.fromkeys(CHANGES[1:], (2.8, 3.0, 3.2))
NOISY = {"default": (0.4, 1.0, 2.0), "vendor-off": (0.1, 0.3, 0.9)}
MIB = 2**20


def chosen(results):
    return recommend(results).configuration.setting


def rule(words, setting, changes={}, /, **fields):  # noqa: B006 - read only
    """A row: the rule, the setting that is recommended, and the run."""
    return pytest.param(setting, changes, fields, id=words)


@pytest.mark.parametrize(
    ("setting", "changes", "fields"),
    [
        # Correct.
        rule("all works", "default"),
        rule("all works on a CPU", "default", backend="onednn"),
        rule("all works on cuDNN", "default", backend="cudnn"),
        rule("nothing works", None, {"*/convolution/*": "wrong"}),
        rule("blocked proves nothing", None, {"*": "blocked"}),
        rule("only the CPU works", "cpu", ONLY_CPU),
        rule("one setting works", "no-winograd", ONLY_NO_WINOGRAD),
        rule("a slow or unexpected pass is a pass", "default",
             {"default/convolution/*": "slow", f"default/convolution/{FP32}/*": "xpass"}),
        rule("n/a proves nothing", "bypass", {**DEAD, "default/*": "n/a"}, seconds=SLOW_OFF),
        rule("default was blocked", "find-fast", {"default/convolution/*": "blocked"},
             seconds={"find-fast": (0.1, 0.1, 0.1)}),
        rule("a step fails under the bypass alone", "bypass+vendor-off",
             {**DEAD, "bypass/training-step/*": "error"}, seconds=SLOW_OFF),
        rule("a problem to which a setting does not apply", None,
             {**ONLY_NO_WINOGRAD, f"no-winograd/convolution/{FP32}/bwd-data": "n/a"}),
        rule("inference needs forward only", "default", BACKWARD, purpose="inference"),
        rule("inference needs no batch norm for training", "default", ONLY_BATCH_NORM, purpose="inference"),
        rule("without a training step, batch norm counts", "vendor-off", ONLY_BATCH_NORM),
        rule("a training step proves batch norm", "no-winograd",
             {**ONLY_BATCH_NORM, "no-winograd/training-step/*": "pass"}),
        rule("batch norm works nowhere", None,
             {**ONLY_BATCH_NORM, "*/batch-norm/float32": "error", "cpu/*": "blocked"}),
        rule("a setting without the failed problems", "vendor-off", MATRIX,
             seconds={"find-fast": (0.1, 0.1, 0.1)}),
        rule("the bypass answers for settings that use it", "vendor-off",
             {**DEAD, "default/problem-matrix/*": "blocked", "bypass/problem-matrix/*": "wrong"},
             seconds=SLOW_OFF),
        rule("an override if nothing else works on the GPU", "override-gfx1030",
             {"*/convolution/*": STATUS, "override-gfx1030/convolution/*": "pass", "cpu/*": "pass"},
             wanted="all"),
        rule("no override if the bypass works", "bypass",
             {"*/convolution/*": STATUS, "override-gfx1030/convolution/*": "pass",
              "bypass/convolution/*": "pass"}, wanted="all"),
        rule("the user's databases if nothing else works", "as-found",
             {"*/convolution/*": STATUS, "as-found/convolution/*": "pass"}, wanted="all"),
        # Stable.
        rule("reproducible before unstable", "bypass", {**DEAD, "vendor-off/convolution/*": UNSTABLE}),
        rule("reproducible before fast", "bypass", {**DEAD, "vendor-off/convolution/*": UNSTABLE},
             seconds=FAST_OFF),
        rule("no unstable change of a working machine", "default", {"vendor-off/convolution/*": UNSTABLE},
             seconds=FAST_OFF),
        rule("all are unstable", "vendor-off",
             {**DEAD, "*off/convolution/*": UNSTABLE, "bypass*/convolution/*": UNSTABLE}),
        rule("an unstable GPU before the CPU", "vendor-off",
             {**DEAD, **NO_BYPASS, "vendor-off/convolution/*": UNSTABLE}),
        rule("an unstable default is left alone", "default", {"default/convolution/*": UNSTABLE}),
        rule("flaky is a failure", "bypass", {**DEAD, "vendor-off/convolution/*": "flaky"}),
        # Little changed.
        rule("the smaller change of two as fast", "vendor-off", DEAD),
        rule("the larger change if only that works", "bypass", {**DEAD, "vendor-off/convolution/*": "wrong"}),
        rule("two changes of one size as fast", "no-igemm", {"default/convolution/*": STATUS},
             wanted="no-igemm,no-winograd"),
        rule("the faster of two changes of one size", "no-winograd", {"default/convolution/*": STATUS},
             wanted="no-igemm,no-winograd", seconds={"no-winograd": (0.7, 0.7, 0.7)}),
        rule("a little faster is no reason for a larger change", "no-igemm",
             {"default/convolution/*": STATUS}, wanted="no-igemm,no-winograd,vendor-off",
             seconds={"vendor-off": (0.7, 0.7, 0.7)}),
        rule("a memory format is more than a flag", "benchmark", {"default/convolution/*": STATUS},
             backend="cudnn", wanted="channels-last,benchmark"),
        rule("the own environment was a little faster", "default", wanted="as-found",
             seconds={"as-found": (0.7, 0.7, 0.7)}),
        # Fast.
        rule("bypass is faster", "bypass", DEAD, seconds=SLOW_OFF),
        rule("vendor-off is faster", "vendor-off", DEAD, seconds=SLOW_BYPASS),
        rule("three times faster than a working default", "vendor-off",
             seconds={"vendor-off": (0.29, 0.3, 0.31)}),
        rule("a simulated machine has no speed", "default", seconds=FAST_OFF, simulated="somewhere"),
        rule("noisy times change no working machine", "default", seconds=NOISY),
        rule("noisy times are no reason for a larger change", "vendor-off", DEAD,
             seconds={"vendor-off": (1.6, 2.0, 2.3), "bypass": (0.8, 1.0, 1.2)}),
        rule("times apart from each other are", "bypass", DEAD,
             seconds={"vendor-off": (1.9, 2.0, 2.3), "bypass": (0.8, 1.0, 1.2)}),
        rule("the CPU is last, however fast", "vendor-off", DEAD, seconds={"cpu": (0.001, 0.001, 0.001)}),
        rule("no setting was timed", "vendor-off", {**DEAD, **UNTIMED}),
        rule("times with nonsense", "vendor-off",
             {**DEAD, "*/throughput/*": {"state": "pass", "timings": {"fwd_bwd": "fast"}}}),
        rule("times of no length", "vendor-off",
             {**DEAD, "*/throughput/*": {"state": "pass", "timings": {"fwd_bwd": 0, "fwd_bwd_p10": -1.0}}}),
        rule("a measurement that crashes is a failure", "bypass",
             {**DEAD, "vendor-off/throughput/*": "crash"}),
        rule("all were timed", "bypass", DEAD, seconds={"bypass": (0.1, 0.1, 0.1)}),
        *(rule(f"{name} was not timed", "vendor-off", {**DEAD, f"{name}/throughput/*": "blocked"},
               seconds={"bypass": (0.1, 0.1, 0.1)}) for name in CHANGES),
        rule("a slow setting that was timed", "naive-only", NAIVE),
        rule("a slow setting without a time", "vendor-off", {**NAIVE, **UNTIMED}),
        rule("a slow setting of a simulated machine", "vendor-off", NAIVE, simulated="somewhere"),
        rule("a slow setting of a partial run", "vendor-off", NAIVE, partial=True),
        rule("the bypass before a slow setting", "bypass",
             {**NAIVE, **UNTIMED, "vendor-off/convolution/*": "wrong"}),
        rule("a slow setting before the CPU", "naive-only", {**NAIVE, **UNTIMED, **NO_OFF}),
        rule("a slow setting that is slow", "vendor-off", NAIVE, seconds={"naive-only": (30.0, 30.0, 30.0)}),
    ],
)  # fmt: skip
def test_the_setting_that_is_recommended(setting, changes, fields):
    results = run(changes, **fields)
    found = recommend(results)
    verdicts = {None: "none", **{each.name: each.verdict for each in results.settings}}
    assert (found.configuration.setting, found.verdict) == (setting, verdicts[setting])


@pytest.mark.parametrize(
    "state", ["wrong", "error", "crash", "hang", "flaky", "aborted", "blocked", "probe-error"]
)
def test_one_outcome_that_did_not_pass_is_enough(state):
    assert chosen(run({f"default/convolution/{FP32}/bwd-weights": state})) != "default"


NO_HALF = {"*/convolution/*fp16*": "wrong"}


@pytest.mark.parametrize(
    ("answer", "setting", "changes", "fields"),
    [
        ("float32/inference", "default", BACKWARD, {}),
        ("float16/training", "no-winograd", {**NO_HALF, "no-winograd/convolution/*": "pass"}, {}),
        # A training step alone proves nothing about float16.
        ("float16/training", None, {"*/convolution/*fp16*": "n/a"}, {}),
        ("float16/training", "bypass", {"[!b]*/training-step/*": "wrong"}, {}),
        ("float16/inference", "default", {"default/training-step/*": "wrong"}, {}),
        # A program in float16 computes in float32, too.
        ("float16/training", "vendor-off", MATRIX, {}),
        ("float32/inference", "default", {"default/problem-matrix/*/bwd-*": "wrong"}, {}),
        ("float32/training", "vendor-off", {"default/problem-matrix/*/bwd-*": "wrong"}, {}),
        # Native settings of a simulated machine are equally fast.
        ("float16/training", "no-winograd", {**NO_HALF, "gemm-only/*": "pass", "no-winograd/*": "pass"},
         {"seconds": {"gemm-only": (0.1, 0.1, 0.1)}, "simulated": "somewhere"}),
    ],
)  # fmt: skip
def test_the_setting_for_a_dtype_and_purpose(answer, setting, changes, fields):
    per = recommend(run(changes, **fields)).per
    assert per.get(answer, {"setting": None})["setting"] == setting


def with_outcome(check, state, problem=FP32, dtype="float32"):
    """All works on a CPU, and ``check`` ran under default in addition."""
    results = run(backend="onednn")
    like = next(each for each in results.outcomes if (each.check, each.setting) == ("convolution", "default"))
    more = dataclasses.replace(
        like, id=f"cpu/default/{check}/{problem}", check=check, state=state, problem=problem, direction=None,
        dtype=dtype,
    )  # fmt: skip
    return dataclasses.replace(results, outcomes=(*results.outcomes, more))


@pytest.mark.parametrize(
    ("check", "state", "dtype", "working"),
    [
        ("gradient-flow", "pass", "float32", {"float32/training", "float16/training"}),
        # One setting for all dtypes is preferred.
        ("gradient-flow", "wrong", "float32", set()),
        ("gradient-flow", "error", "float32", set()),
        ("gradient-flow", "wrong", "float16", {"float32/training"}),
        ("memory", "error", "float32", set()),
        ("memory", "crash", "float32", set()),
        # A prediction that does not hold speaks against nothing.
        ("memory", "wrong", "float32", {"float32/training", "float16/training"}),
    ],
)
def test_gradients_and_memory_count_for_training_in_their_dtype(check, state, dtype, working):
    results = judge(with_outcome(check, state, FP16 if dtype == "float16" else FP32, dtype))
    per = results.recommendation.per
    assert {key for key in per if per[key]["setting"] == "default"} == {
        "float32/inference", "float16/inference", *working,
    }  # fmt: skip
    severity = "info" if (check, state) == ("memory", "wrong") else "error"
    expected = [] if state == "pass" else [(check, severity)]
    if (dtype == "float32" and check == "gradient-flow") or severity == "info":
        assert [(each.id, each.severity) for each in results.findings] == expected
    # No setting is taken in which the failing check did not run.
    asked = {each.setting for each in results.outcomes if each.check == check}
    taken = results.recommendation.configuration.setting
    assert taken in asked or results.recommendation.verdict != "native-with-settings"


def with_memory(results, state="pass", dtype="float32", above=0, workspace=0, **peaks):
    """``peaks``: bytes by setting; a setting's name with _ for -."""
    asked = tuple(
        Outcome(
            f"cuda:0/{name.replace('_', '-')}/memory/{TIMED}", "cuda:0",
            name.replace("_", "-"), "memory", "conv", state, problem=TIMED, dtype=dtype,
            memory={
                "peak_bytes": peak, "above_output_bytes": above or peak,
                "forward_workspace_bytes": workspace,
            },
        )
        for name, peak in peaks.items()
    )  # fmt: skip
    return dataclasses.replace(results, outcomes=(*results.outcomes, *asked))


class TestMemory:
    def peaks(self, results):
        found = recommend(results)
        return {row["setting"]: row["peak_bytes"] for row in found.alternatives}

    def test_it_is_told_and_decides_nothing(self):
        results = with_memory(run(DEAD), vendor_off=300 * MIB, bypass=100 * MIB)
        assert chosen(results) == "vendor-off"
        assert "peak memory: 3.00x of rocmprobe's bypass" in recommend(results).cost
        rows = self.peaks(results)
        assert (rows["bypass"], rows["bypass+vendor-off"], rows["cpu"]) == (100 * MIB, 100 * MIB, None)

        # More than was predicted is measured as well.
        beyond = with_memory(run(DEAD), state="wrong", vendor_off=300 * MIB, bypass=100 * MIB)
        assert self.peaks(beyond)["bypass"] == 100 * MIB

        # Of another dtype says nothing.
        half = with_memory(run(DEAD), dtype="float16", vendor_off=300 * MIB, bypass=100 * MIB)
        assert self.peaks(half)["bypass"] is None

    def test_for_inference_the_forward_counts(self):
        """The output is 100 MiB, and the backward takes 250 MiB more."""
        output, more = 100 * MIB, 350 * MIB

        def measured(purpose):
            return with_memory(run(DEAD, purpose=purpose), bypass=more, above=more - output)

        assert self.peaks(measured("training"))["bypass"] == more
        assert self.peaks(measured("inference"))["bypass"] == output

    @pytest.mark.parametrize("nonsense", [None, True, "much", -1, float("nan"), float("inf")])
    def test_what_is_no_amount_is_none(self, nonsense):
        assert self.peaks(with_memory(run(DEAD), bypass=nonsense))["bypass"] is None


YARDSTICKS = {"gemm": 0.002, "gemm_flops": 2e8, "copy": 0.007, "copy_bytes": 1e8}
CHANGES = ("vendor-off", "bypass", "bypass+vendor-off")
FEW = run(DEAD, wanted=",".join(CHANGES))


def measured(results, factors, yardsticks):
    """Each setting's times, and with ``yardsticks`` what those took beside them, by its factor."""
    outcomes = []
    for each in results.outcomes:
        factor = factors.get(each.setting, 1.0)
        if each.check == "throughput" and each.timings:
            amounts = ("_repeats", "_flops", "_bytes")
            noisy = {**each.timings, **(YARDSTICKS if yardsticks else {})}
            timings = {name: v if name.endswith(amounts) else v * factor for name, v in noisy.items()}
            each = dataclasses.replace(each, timings=timings)  # noqa: PLW2901
        outcomes.append(each)
    return dataclasses.replace(results, outcomes=tuple(outcomes))


def level_with_the_best(results):
    return {row["setting"] for row in recommend(results).alternatives if row["level"]}


class TestLevel:
    """Of settings that no measurement tells apart the smallest change wins, whatever noise made of them."""

    @settings(max_examples=examples(10))
    @given(st.lists(st.floats(0.3, 3.0), min_size=3, max_size=3), st.randoms())
    def test_noise_that_the_yardsticks_show_changes_nothing(self, factors, chance):
        results = measured(FEW, dict(zip(CHANGES, factors)), yardsticks=True)
        # A run that was resumed has its outcomes in another order.
        mixed = chance.sample(results.outcomes, len(results.outcomes))
        first = results.outcomes[0]
        for outcomes in (results.outcomes, (first, *(each for each in mixed if each is not first))):
            found = dataclasses.replace(results, outcomes=tuple(outcomes))
            assert chosen(found) == "vendor-off"
            told = "not compared" not in recommend(found).cost
            assert level_with_the_best(found) == ({"bypass", "bypass+vendor-off"} if told else set())

    @settings(max_examples=examples(10))
    @given(st.lists(st.floats(0.8, 1.2), min_size=3, max_size=3))
    def test_noise_within_the_spread_of_few_repeats_changes_nothing(self, middles):
        spread = {name: (0.5, middle, 2.0) for name, middle in zip(CHANGES, middles)}
        results = run(DEAD, wanted=",".join(CHANGES), seconds=spread)
        few = tuple(
            dataclasses.replace(each, timings={**each.timings, "fwd_bwd_repeats": 6})
            if each.check == "throughput" else each
            for each in results.outcomes
        )  # fmt: skip
        assert chosen(dataclasses.replace(results, outcomes=few)) == "vendor-off"

    @pytest.mark.parametrize(
        ("factor", "setting"), [(2.0, "bypass"), (1.5, "vendor-off"), (1.05, "vendor-off")]
    )
    def test_a_difference_counts_that_no_noise_explains_and_that_is_worth_a_change(self, factor, setting):
        results = measured(FEW, {"vendor-off": factor}, yardsticks=False)
        assert chosen(results) == setting
        both = {"vendor-off", "bypass"} - {setting}
        assert (level_with_the_best(results) >= both) == (factor < 1.1)

    def test_noise_that_is_too_large_to_tell_is_said_and_nothing_is_compared(self):
        busy = measured(FEW, {"vendor-off": 35.0}, yardsticks=True)
        found = recommend(busy)
        assert found.cost.startswith(
            "speeds are not compared: the machine was busy (noise alone: up to a factor of 36)"
        )
        assert "level" not in found.cost
        assert "time " not in found.cost
        assert {row["level"] for row in found.alternatives} == {None}

        # A busy machine is no reason to change what works.
        results = run(wanted="default,vendor-off", seconds={"vendor-off": (0.1, 0.1, 0.1)})
        assert chosen(measured(results, {}, yardsticks=True)) == "vendor-off"
        assert chosen(measured(results, {"default": 4.0}, yardsticks=True)) == "default"

        # It is told.
        found = recommend(measured(FEW, {"bypass": 1.3}, yardsticks=True))
        assert "same as rocmprobe's bypass (difference within noise)" in found.cost
        apart = recommend(measured(FEW, {"vendor-off": 2.0}, yardsticks=False))
        assert "0.50x of PyTorch's own kernels" in apart.cost
        assert "level" not in apart.cost
