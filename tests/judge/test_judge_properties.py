"""Properties of judging: any outcomes, and changes of one outcome, fact, time or amount of memory."""

from __future__ import annotations

import dataclasses
import re

import mutations
import pytest
import sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import STATUS, assess, blocked_by_convolution, card, everywhere, natively, recommend, run
from tiers import examples
from unnamed import failures, unnamed_failures

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import summarize
from rocmprobe.knowledge.causes import causes, layers
from rocmprobe.model.results import SEVERITIES, UNJUDGED, VERDICTS, Fact
from rocmprobe.model.results_file import from_json, to_json
from rocmprobe.model.states import STATES

CAUSES = {cause.name for cause in causes()}
LAYERS = {layer.name for layer in layers()}
EVIDENCE = (
    "", "Memory access fault by GPU node-1", "rocBLAS error: Cannot read x", "HIP out of memory",
    "Code object build failed", "invalid device function", "MIOpen Error: stoul",
)  # fmt: skip


def has_remedy(finding):
    return re.match(r"https://|(rocmprobe|sudo|env|export|unset|pip|mv|rm|wsl|dkms|python) ", finding.remedy)


def chosen(results):
    return recommend(results).configuration.setting


@st.composite
def any_results(draw):
    """A run with any state and telling evidence in any place, on any backend."""
    backend = draw(st.sampled_from(("miopen", "cudnn", "onednn")))
    base = run(backend=backend, wanted=draw(st.sampled_from(("default", "all"))))
    if backend == "miopen":
        isas = st.sampled_from(("gfx1010", "gfx1030", "gfx1031", "gfx900", "gfx9999", None))
        base = dataclasses.replace(base, machine=card(draw(isas), draw(isas)))
    few = draw(st.lists(st.sampled_from(list(STATES)), min_size=1, max_size=4))
    picks = draw(st.randoms(use_true_random=False))
    outcomes = [
        dataclasses.replace(
            outcome,
            state=picks.choice(few),
            evidence=(picks.choice(EVIDENCE),) * picks.randrange(3),
            failure=picks.choice((None, "miopen-status", "gpu-wedged", "SIGSEGV")),
            activity=picks.choice((None, "busy", "compiler-child")),
        )
        for outcome in base.outcomes
        if picks.random() < 0.9
    ]
    options = draw(
        st.sampled_from((base.options, {}, {"purpose": "inference"}, {"targets": []}, {"targets": None}))
    )
    return dataclasses.replace(
        base,
        outcomes=tuple(outcomes),
        options=options,
        partial=draw(st.booleans()),
        simulated=draw(st.sampled_from((None, "somewhere"))),
    )


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(any_results())
def test_any_run_is_judged_in_the_words_of_the_vocabulary(results):
    found = judge(results)
    assert judge(results) == found
    for finding in found.findings:
        assert (finding.severity == "error") == bool(has_remedy(finding))
        assert finding.cause in CAUSES, finding
        assert finding.layer in LAYERS, finding
        assert finding.title
        assert finding.advice
    grave = [SEVERITIES.index(finding.severity) for finding in found.findings]
    assert grave == sorted(grave, reverse=True)
    assert len({finding.id for finding in found.findings}) == len(found.findings)
    if found.recommendation is not None:
        assert found.recommendation.verdict in VERDICTS
        without_setting = found.recommendation.verdict in ("none", *UNJUDGED)
        assert without_setting == (found.recommendation.configuration.setting is None)
    assert from_json(type(found), to_json(found)) is not None


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(any_results())
def test_what_is_recommended_was_right_on_everything_that_counts(results):
    found = recommend(results)
    if found.configuration.setting is None:
        return
    purpose = results.options.get("purpose", "training")
    setting = next(each for each in results.settings if each.name == found.configuration.setting)
    dtype = next(iter(found.per)).partition("/")[0]
    assert {outcome.state for outcome in assess(results, setting, dtype, purpose).counted} <= {
        "pass",
        "slow",
        "xpass",
    }


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
@given(any_results())
def test_each_failure_under_the_recommended_setting_is_a_limit(results):
    judged = judge(results)
    found = judged.recommendation
    if found is None or found.configuration.setting is None:
        return
    assert unnamed_failures(judged) == []
    if failures(judged) and not judged.partial:
        assert summarize(judged).tone != "good"


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(any_results())
def test_a_stored_judgement_changes_no_judgement(results):
    stored = judge(run())
    planted = dataclasses.replace(results, recommendation=stored.recommendation, findings=stored.findings)
    assert judge(planted) == judge(results)


def test_a_float16_answer_names_what_its_setting_fails_at():
    """A program in float16 computes in float32, too."""
    changes = {**natively("wrong", "convolution/*fp16*"), "vendor-off/convolution-kinds/conv_t*": "wrong"}
    judged = judge(run({**changes, "bypass*/convolution/*fp16*": "wrong"}))
    sentence = judged.recommendation.sentence
    assert sentence.endswith("own kernels”. Failing with it: transposed 2-d convolution.")
    assert summarize(judged).tone == "slow"


def test_layers_that_stay_in_the_library_are_limits_of_the_bypass():
    failing = {**natively(STATUS), **blocked_by_convolution(), "default/lstm/float32": "wrong"}
    judged = judge(run({**failing, "vendor-off/convolution/*": "wrong"}))
    assert judged.recommendation.configuration.setting == "bypass"
    assert any(limit.startswith("LSTM") for limit in judged.recommendation.limits)


def test_a_dtype_without_a_setting_leaves_no_green():
    assert summarize(judge(run({"*/convolution/*fp16*": "wrong"}))).tone == "slow"


def test_a_failure_now_and_then_is_cured_only_by_as_many_repetitions():
    """One training step that passes by chance does not prove that a switch cures batch norm."""
    base = run({"default/batch-norm/float32": "flaky"})
    often = [
        dataclasses.replace(each, id=f"{each.id}/x20")
        for each in base.outcomes
        if (each.setting, each.check, each.dtype) == ("default", "batch-norm", "float32")
    ]
    trained = [
        dataclasses.replace(each, id=f"{each.id}/x20")
        for each in base.outcomes
        if (each.setting, each.check) == ("no-winograd", "training-step")
    ]
    flaky = dataclasses.replace(base, outcomes=(*base.outcomes, *often))
    assert chosen(flaky) == "vendor-off"
    assert chosen(dataclasses.replace(flaky, outcomes=(*flaky.outcomes, *trained))) == "no-winograd"


DEAD = {**natively(STATUS), **blocked_by_convolution()}
FEW = {"wanted": "no-winograd,gemm-only,vendor-off,bypass,bypass+vendor-off,cpu"}
WORLDS = {
    "healthy": run(**FEW),
    "native dead": run(DEAD, **FEW),
    "native dead, for inference": run(DEAD, purpose="inference", **FEW),
    "one switch cures": run({**everywhere("wrong"), "no-winograd/convolution/*": "pass"}, **FEW),
    "only the CPU": run({**everywhere("error"), **everywhere("blocked", "training-step/*")}, **FEW),
    "nothing": run({"*/convolution/*": "wrong"}, **FEW),
    "half precision broken": run({"*/convolution/*fp16*": "wrong", "gemm-only/*": "pass"}, **FEW),
    "of the report's tests": sample.rdna1(),
    "a CPU": run(backend="onednn"),
}


#: The whole rule shows in these; the others have more outcomes of the same kinds.
QUICK = ("healthy", "native dead, for inference", "half precision broken", "a CPU")


@pytest.mark.parametrize("world", [*QUICK, pytest.param("one switch cures", marks=pytest.mark.thorough)])
def test_it_changes_when_and_only_when_it_should(world):
    assert mutations.check_outcomes(WORLDS[world]) > 0


@pytest.mark.parametrize("check", [mutations.check_facts, mutations.check_settings])
@pytest.mark.parametrize("world", WORLDS)
def test_facts_and_settings_that_nobody_recommends_change_nothing(world, check):
    assert check(WORLDS[world]) > 0


def timed(results, setting, factor):
    """The setting takes ``factor`` times as long."""
    outcomes = tuple(
        dataclasses.replace(each, timings={key: factor * value for key, value in each.timings.items()})
        if (each.setting, each.check) == (setting, "throughput")
        else each
        for each in results.outcomes
    )
    return dataclasses.replace(results, outcomes=outcomes)


@pytest.mark.parametrize("factor", [1.0, 1.05, 0.95, 3.0, 0.3])
@pytest.mark.parametrize("setting", ["vendor-off", "bypass", "cpu", "no-winograd"])
def test_a_time_matters_beyond_noise_and_of_right_settings_on_the_device(setting, factor):
    found = mutations.answers(timed(WORLDS["native dead"], setting, factor))["float32/training"]
    # The bypass has a second setting of the same speed, so that it cannot become slow by one of them.
    slower, faster = setting == "vendor-off" and factor > 1.1, setting == "bypass" and factor < 0.9
    assert found[0] == ("bypass" if slower or faster else "vendor-off")


@pytest.mark.parametrize(("factor", "verdict"), [(0.9, "native"), (0.7, "native"), (0.3, "vendor-off")])
def test_a_working_machine_is_changed_for_a_gain_that_no_noise_explains(factor, verdict):
    assert mutations.answers(timed(WORLDS["healthy"], "vendor-off", factor))["float32/training"][0] == verdict


class TestAdvice:
    """It follows the facts, which the choice does not."""

    def of(self, **facts):
        results = WORLDS["native dead"]
        machine = results.machine
        torch = {"torch.version": Fact(facts.get("torch", "2.0.1+rocm5.4.2"), "torch")}
        gpu = machine.gpus[0]
        if "isa" in facts:
            native, effective = facts["isa"]
            gpu = dataclasses.replace(gpu, native_isa=Fact(native), effective_isa=Fact(effective))
        machine = dataclasses.replace(machine, gpus=(gpu,), facts={**machine.facts, **torch})
        isas = {"native_isa": gpu.native_isa.value, "effective_isa": gpu.effective_isa.value}
        outcomes = tuple(dataclasses.replace(each, **isas) for each in results.outcomes)
        found = judge(dataclasses.replace(results, machine=machine, outcomes=outcomes)).recommendation
        assert (found.verdict, found.configuration.setting) == ("vendor-off", "vendor-off")
        return [row["title"] for row in found.advice]

    def test_of_a_version_and_an_isa(self):
        # Of a version.
        broken = (
            "Convolution crashes or hangs with ROCm 5.3 and newer on RDNA1 cards that pretend to be gfx1030"
        )
        assert self.of()[0] == broken
        assert broken not in self.of(torch="1.13.1+rocm5.2")
        posing = "PyTorch's wheels for ROCm 5.2: gfx1010 as gfx1030"
        assert posing in self.of()
        assert posing not in self.of(torch="1.13.1+rocm5.2")

        # Of an ISA.
        amd = "AMD's stable wheels of ROCm 10.1, with a package for each chip"
        assert f"{amd}: gfx1010" in self.of()
        assert self.of(isa=("gfx1102", "gfx1100"), torch="2.3.0+rocm6.0")[:2] == [
            "ROCm 6.0 and newer break gfx1102 cards that pretend to be gfx1100",
            f"{amd}: gfx1102",
        ]
        assert self.of(isa=("gfx1100", "gfx1100"), torch="2.3.0+rocm6.0") == []
        assert self.of(isa=(None, None)) == []
