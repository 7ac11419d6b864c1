"""Properties of judging that hold for every combination of outcomes."""

from __future__ import annotations

import dataclasses
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic import STATUS, assess, blocked_by_convolution, card, everywhere, natively, recommend, run
from tiers import examples
from unnamed import failures, unnamed_failures

from rocmprobe.judge.judgement import judge
from rocmprobe.judge.summary import summarize
from rocmprobe.knowledge.causes import causes, layers
from rocmprobe.model.results import SEVERITIES, UNJUDGED, VERDICTS
from rocmprobe.model.results_file import from_json, to_json
from rocmprobe.model.states import STATES

BASES = {
    "healthy": run(),
    "dead": run({**natively(STATUS), **blocked_by_convolution()}),
    "float16": run({"*/convolution/*fp16*": "wrong", "no-winograd/convolution/*": "pass"}),
    "cpu": run({**everywhere("error"), **everywhere("blocked", "training-step/*")}),
    "faster": run(seconds={"bypass": (0.1, 0.1, 0.1)}),
    "laptop": run(backend="onednn"),
    "all settings": run(wanted="all"),
}
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
    stored = judge(BASES["healthy"])
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
