"""Each rank of the recommendation alone: right, stable, little changed, fast."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
from rows import every_row
from synthetic import FP32, STATUS, TIMED, blocked_by_convolution, natively, recommend, run
from tiers import examples

from rocmprobe.model.results import Outcome

DEAD = {**natively(STATUS), **blocked_by_convolution()}
UNSTABLE = {"state": "pass", "numerics": {"repeatable": False}}
FAST_OFF = {"vendor-off": (0.2, 0.2, 0.2)}
MIB = 2**20


def chosen(results):
    return recommend(results).configuration.setting


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


class TestStable:
    def test_bits_that_differ_decide_between_changes(self):
        # A change whose bits differ does not outrank one whose bits do not.
        assert chosen(run({**DEAD, "vendor-off/convolution/*": UNSTABLE})) == "bypass"
        assert chosen(run({**DEAD, "vendor-off/convolution/*": UNSTABLE}, seconds=FAST_OFF)) == "bypass"

        # A faster one whose bits differ changes no working machine.
        results = run({"vendor-off/convolution/*": UNSTABLE}, seconds=FAST_OFF)
        assert chosen(results) == "default"
        assert chosen(run(seconds=FAST_OFF)) == "vendor-off"

        # Where all differ speed decides.
        results = run({**DEAD, "*off/convolution/*": UNSTABLE, "bypass*/convolution/*": UNSTABLE})
        assert chosen(results) == "vendor-off"

        # The CPU does not come before a device whose bits differ.
        only = {f"{name}/convolution/*": "wrong" for name in ("bypass", "bypass+vendor-off")}
        assert chosen(run({**DEAD, **only, "vendor-off/convolution/*": UNSTABLE})) == "vendor-off"

    def test_a_working_machine_is_left_as_it_is_and_it_is_told(self):
        results = run({"default/convolution/*": UNSTABLE})
        assert chosen(results) == "default"
        assert (
            "not reproducible: repeated convolutions differed, within the limits"
            in recommend(results).confidence
        )
        assert "two runs" not in recommend(run()).confidence

        # Flaky is a failure.
        assert chosen(run({**DEAD, "vendor-off/convolution/*": "flaky"})) == "bypass"


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

    @every_row("nonsense", [None, True, "much", -1, float("nan"), float("inf")])
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

    @every_row(("factor", "setting"), [(2.0, "bypass"), (1.5, "vendor-off"), (1.05, "vendor-off")])
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


class TestChange:
    """The smaller change wins, unless all were timed and a larger one is much faster."""

    def test_of_two_that_are_alike_the_smaller_change(self):
        assert chosen(run(DEAD)) == "vendor-off"
        only = {"vendor-off/convolution/*": "wrong"}
        assert chosen(run({**DEAD, **only})) == "bypass"

    def test_of_changes_of_the_same_size_the_faster_one(self):
        dead = {"default/convolution/*": STATUS}
        two = "no-igemm,no-winograd"
        assert chosen(run(dead, wanted=two)) == "no-igemm"
        faster = {"no-winograd": (0.7, 0.7, 0.7)}
        assert chosen(run(dead, wanted=two, seconds=faster)) == "no-winograd"
        # But not than a smaller one.
        larger = {"vendor-off": (0.7, 0.7, 0.7)}
        assert chosen(run(dead, wanted=f"{two},vendor-off", seconds=larger)) == "no-igemm"
        # Another memory format is more than a variable.
        format_or_flag = run(
            {"default/convolution/*": STATUS}, backend="cudnn", wanted="channels-last,benchmark"
        )
        assert chosen(format_or_flag) == "benchmark"
        # Nor because the user's own environment happened to be faster.
        assert chosen(run(wanted="as-found", seconds={"as-found": (0.7, 0.7, 0.7)})) == "default"

    def test_one_correct_setting_without_a_time_leaves_the_order_to_the_change(self):
        assert chosen(run(DEAD, seconds={"bypass": (0.1, 0.1, 0.1)})) == "bypass"
        for name in ("vendor-off", "bypass", "bypass+vendor-off"):
            untimed = {**DEAD, f"{name}/throughput/*": "blocked"}
            assert chosen(run(untimed, seconds={"bypass": (0.1, 0.1, 0.1)})) == "vendor-off"

    @settings(max_examples=examples(20))
    @given(st.dictionaries(st.sampled_from(CHANGES), st.sampled_from((None, 0.01, 1.0, 30.0))))
    def test_times_of_a_partial_or_simulated_run_decide_nothing(self, times):
        """Whatever was timed, and whoever computed in that time."""
        changes = {f"{name}/throughput/*": "blocked" for name, each in times.items() if each is None}
        seconds = {name: (each,) * 3 for name, each in times.items() if each}
        for stopped in ({"partial": True}, {"simulated": "somewhere"}):
            results = run({**DEAD, **changes}, wanted=",".join(CHANGES), seconds=seconds, **stopped)
            assert chosen(results) == "vendor-off"
            assert [each["setting"] for each in recommend(results).alternatives][:2] == list(CHANGES[1:])

    def test_a_slow_setting_comes_last_where_its_speed_was_not_measured(self):
        broken = {**natively(STATUS), "naive-only/convolution/*": "pass"}
        untimed = {"*/throughput/*": "blocked"}
        assert chosen(run(broken)) == "naive-only"
        assert chosen(run({**broken, **untimed})) == "vendor-off"
        assert chosen(run(broken, simulated="somewhere")) == "vendor-off"
        assert chosen(run(broken, partial=True)) == "vendor-off"
        assert chosen(run({**broken, **untimed, "vendor-off/convolution/*": "wrong"})) == "bypass"
        # The CPU is no way for a GPU that computes.
        off = {f"{name}/convolution/*": "wrong" for name in CHANGES}
        assert chosen(run({**broken, **untimed, **off})) == "naive-only"
        # What was measured counts, not what the table says.
        assert chosen(run(broken, seconds={"naive-only": (30.0, 30.0, 30.0)})) == "vendor-off"


class TestOverride:
    def test_it_is_recommended_only_where_nothing_else_holds_on_the_gpu(self):
        broken = {"*/convolution/*": STATUS, "override-gfx1030/convolution/*": "pass"}
        assert chosen(run({**broken, "cpu/*": "pass"}, wanted="all")) == "override-gfx1030"
        assert chosen(run({**broken, "bypass/convolution/*": "pass"}, wanted="all")) == "bypass"


class TestThatAppliesToAll:
    def test_a_setting_that_does_not_apply_to_a_problem_is_no_configuration(self):
        only_no_winograd = {"*/convolution/*": STATUS, "no-winograd/convolution/*": "pass"}
        lacking = {"state": "n/a", "evidence": ("this library has no such function",)}
        last = f"no-winograd/convolution/{FP32}/bwd-data"
        assert chosen(run(only_no_winograd)) == "no-winograd"
        results = run({**only_no_winograd, last: lacking})
        assert chosen(results) is None
        told = next(row for row in recommend(results).alternatives if row["setting"] == "no-winograd")
        assert told["reason"].startswith("does not apply to cuda:0/no-winograd/convolution/")
