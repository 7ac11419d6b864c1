"""The recommendation: correct first, then fast, then little changed; its words, configuration and costs."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic
from synthetic import FP32, STATUS, TORCH, blocked_by_convolution, everywhere, natively, recommend, run

from rocmprobe.cli.verify import verify
from rocmprobe.judge.judgement import judge
from rocmprobe.knowledge.settings import compose, with_cures
from rocmprobe.model.results import DIRECTIONS, Machine

DEAD = {**natively(STATUS), **blocked_by_convolution()}
ONLY_BATCH_NORM = {
    "*/training-step/*": "n/a", "*/autocast-step/*": "n/a", "default/batch-norm/float32": "error",
}  # fmt: skip
ONLY_CPU = {**everywhere("error"), **everywhere("blocked", "training-step/*")}
SLOW = {"vendor-off": (2.8, 3.0, 3.2)}


def answer(results):
    found = recommend(results)
    return found.verdict, found.configuration.setting


def test_a_run_without_outcomes_recommends_nothing():
    empty = dataclasses.replace(run(), outcomes=())
    assert recommend(empty) is None
    assert judge(empty).recommendation is None


def test_a_partial_run_cannot_be_verified():
    assert recommend(run()).verify == "rocmprobe run --verify results.json"
    assert recommend(run(partial=True)).verify == ""


THRICE = {"vendor-off": (0.29, 0.3, 0.31)}
NO_HALF = {"*/convolution/*fp16*": "wrong"}
ALONE = {"default/convolution/*": STATUS}
OWN_ALONE = {"*/convolution/*": STATUS, "as-found/convolution/*": "pass"}


@pytest.mark.parametrize(
    ("changes", "fields", "words"),
    [
        pytest.param({}, {"seconds": THRICE},
                     ["MIOpen with its defaults gives correct results too, but is slower"],
                     id="default works, but a change is faster"),
        pytest.param(ALONE, {"wanted": "as-found,vendor-off"},
                     ["Native float32 convolution fails in MIOpen. Switch MIOpen off: ", "-slower"],
                     id="what works in the own environment only is not slower"),
        pytest.param(NO_HALF, {}, ["No configuration gives correct results in float16"], id="float16 fails"),
        pytest.param({**natively("wrong", "convolution/*fp16*"), "bypass/convolution/*fp16*": "wrong"}, {},
                     ["For float16, use the setting “PyTorch's own kernels”."], id="float16 needs a setting"),
        pytest.param(ALONE, {"wanted": "all"}, ["-Change nothing"], id="the user's databases are no cure"),
        pytest.param(OWN_ALONE, {"wanted": "all"},
                     ["only with your own environment and databases", "-Change nothing"],
                     id="only the user's databases work"),
        pytest.param({"as-found/convolution/*": "error"}, {"wanted": "all"},
                     ["With your own environment convolution fails"], id="a clean environment cures"),
        pytest.param({"default/problem-matrix/*": "crash"}, {},
                     ["works for common problems, but fails for others in MIOpen"], id="the matrix fails"),
        pytest.param({**ONLY_BATCH_NORM, "*/batch-norm/float32": "error", "cpu/*": "blocked"}, {},
                     ["batch norm failed"], id="batch norm works nowhere"),
        pytest.param({}, {},
                     ["Change nothing: it needs HSA_OVERRIDE_GFX_VERSION=10.3.0, which is set here."],
                     id="a working machine needs its override"),
        pytest.param({}, {"machine": Machine()}, ["Change nothing."], id="no override"),
        pytest.param({"default/lstm/*": "error"}, {},
                     ["Convolution needs no change, but LSTM fails in MIOpen: see the configuration."],
                     id="a layer fails"),
    ],
)  # fmt: skip
def test_the_sentence(changes, fields, words):
    sentence = recommend(run(changes, **fields)).sentence
    for each in words:
        assert (each.lstrip("-") in sentence) == (not each.startswith("-")), sentence


@pytest.mark.parametrize(
    ("changes", "fields", "words"),
    [
        pytest.param({**DEAD, "*/throughput/*": "blocked"}, {}, "speed was not measured", id="no time"),
        pytest.param(DEAD, {"seconds": SLOW}, "time: 0.33x of PyTorch's own kernels", id="other kinds"),
        pytest.param({}, {"seconds": {"default": (0.1,) * 3, "no-winograd": (0.2,) * 3}}, "-Winograd",
                     id="other variables are no alternative to no change"),
    ],
)  # fmt: skip
def test_the_cost(changes, fields, words):
    cost = recommend(run(changes, **fields)).cost
    assert (words.lstrip("-") in cost) == (not words.startswith("-")), cost


def test_a_dtype_that_needs_another_setting_has_a_configuration():
    override = {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}
    found = recommend(run({**natively("wrong", "convolution/*fp16*"), "bypass/convolution/*fp16*": "wrong"}))
    (other,) = found.others.values()
    assert (found.configuration.setting, list(found.others)) == ("default", ["float16"])
    assert (other.setting, other.env) == ("vendor-off", override)
    assert "torch.backends.cudnn.enabled = False" in other.code
    results = run({**NO_HALF, "gemm-only/*": "pass"})
    switches = next(each.env for each in results.settings if each.name == "gemm-only")
    assert recommend(results).others["float16"].env == {**override, **switches}
    for results in (run(), run(NO_HALF)):
        assert recommend(results).others == {}


def test_each_dtype_and_purpose_has_an_answer():
    per = recommend(run({**NO_HALF, "no-winograd/convolution/*": "pass"})).per
    assert set(per) == {f"{d}/{p}" for d in ("float32", "float16") for p in ("training", "inference")}
    assert per["float16/training"] == {
        "verdict": "native-with-settings", "setting": "no-winograd",
        "env": {"MIOPEN_DEBUG_CONV_WINOGRAD": "0"},
    }  # fmt: skip
    assert set(recommend(run(purpose="inference")).per) == {"float32/inference", "float16/inference"}


def test_a_run_about_float16_only():
    results = run({"default/convolution/*": STATUS})
    only = [each for each in results.outcomes if each.check == "convolution" and each.dtype == "float16"]
    found = judge(dataclasses.replace(results, outcomes=tuple(only)))
    assert found.recommendation.verdict != "native"
    assert [each.id for each in found.findings if each.severity == "error"]


def by_layer(results, states=None, base="default", options=("batch_norm",)):
    """``results`` with ``base`` and layers in PyTorch's own kernels; right but for ``states`` by check."""
    rows = {each.name: each for each in with_cures("miopen", "all")}
    setting = compose([rows[base], *(rows[f"{option.replace('_', '-')}-pytorch"] for option in options)])
    own = []
    for outcome in results.outcomes:
        if outcome.setting == "default" and outcome.check not in ("problem-matrix", "softmax"):
            fields = {"state": (states or {}).get(outcome.check, "pass"), "failure": None, "evidence": ()}
            name = outcome.id.replace("/default/", f"/{setting.name}/")
            own.append(dataclasses.replace(outcome, id=name, setting=setting.name, **fields))
    return dataclasses.replace(
        results, settings=(*results.settings, setting), outcomes=(*results.outcomes, *own)
    )


#: Nothing that stands on batch norm in MIOpen was asked.
DEAD_BATCH_NORM = {
    "default/batch-norm/float32": STATUS, "*/training-step/*": "blocked", "*/autocast-step/*": "blocked",
    "vendor-off/training-step/*": "pass", "vendor-off/autocast-step/*": "pass",
}  # fmt: skip


class TestByLayer:
    def test_convolution_stays_native_and_batch_norm_goes_to_pytorch(self):
        found = recommend(by_layer(run(DEAD_BATCH_NORM, seconds=SLOW)))
        assert (found.verdict, found.configuration.setting) == ("native", "batch-norm-pytorch")
        assert found.sentence.startswith(
            "Native float32 convolution works, but batch norm fails with MIOpen. Run convolution natively, "
            "batch norm with PyTorch's own kernels: all float32 problems tested give correct results."
        )
        assert "Change nothing" not in found.sentence
        assert found.configuration.env == {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}
        assert found.configuration.layers[:2] == (
            "convolution: MIOpen unchanged, correct", "batch norm: PyTorch's own kernels, correct",
        )  # fmt: skip
        assert "LSTM: MIOpen, correct" in found.configuration.layers
        code = found.configuration.code.splitlines()
        assert code[-1] == 'rocmprobe.bypass.install(convolution="native", batch_norm="pytorch")'

    @pytest.mark.parametrize(
        ("results", "expected"),
        [
            pytest.param(by_layer(run(DEAD_BATCH_NORM)), ("native", "batch-norm-pytorch"),
                         id="one layer is a smaller change than the whole library"),
            pytest.param(by_layer(run({**DEAD_BATCH_NORM, "no-winograd/*-step/*": "pass"})),
                         ("native-with-settings", "no-winograd"), id="a setting that cures all is smaller"),
            pytest.param(by_layer(run()), ("native", "default"), id="all works as it comes"),
            pytest.param(by_layer(run(ONLY_BATCH_NORM)), ("native", "batch-norm-pytorch"),
                         id="batch norm passes there, without a training step"),
        ],
    )  # fmt: skip
    def test_its_rank_among_other_changes(self, results, expected):
        assert answer(results) == expected

    def test_a_layer_that_fails_without_the_library_too_is_not_hidden(self):
        changes = {**DEAD_BATCH_NORM, "*/lstm/*": "error"}
        found = recommend(by_layer(run(changes), {"lstm": "wrong"}, options=("batch_norm", "rnn")))
        assert "LSTM: PyTorch's own kernels, fails there too" in found.configuration.layers
        assert found.sentence.count("LSTM fails without MIOpen, too.") == 1


class TestWrongByLayer:
    """The parts pass, and a training step of native convolution and PyTorch's batch norm is wrong."""

    def results(self):
        return by_layer(run(DEAD_BATCH_NORM), {"training-step": "wrong"})

    def test_nothing_recommends_the_combination(self):
        results = self.results()
        found = judge(results)
        assert answer(results)[1] != "batch-norm-pytorch"
        assert 'convolution="native"' not in repr((found.findings, found.recommendation))
        batch_norm = next(each for each in found.findings if each.id == "batch-norm")
        assert batch_norm.advice == (
            "Use the recommended configuration, if there is one. Convolution in MIOpen fails here with batch "
            "norm outside MIOpen: cuda:0/batch-norm-pytorch/training-step/float32: wrong."
        )

    def test_a_finding_names_the_step(self):
        found = next(each for each in judge(self.results()).findings if each.id == "training-step")
        assert found.title == (
            "A small network does not train correctly under PyTorch's batch norm, although each of its "
            "layers passed alone"
        )
        assert (found.severity, found.cause) == ("error", "wrong-results-unexplained")
        assert found.evidence == ("cuda:0/batch-norm-pytorch/training-step/float32: wrong",)
        assert "PYTORCH_NO_CUDA_MEMORY_CACHING=1" in found.advice

    def test_a_step_of_the_ladder_that_batch_norm_would_block_is_no_finding(self):
        results = run(DEAD_BATCH_NORM)
        blocked = next(each for each in results.outcomes if each.id == "cuda:0/bypass/training-step/float32")
        assert blocked.state == "blocked"
        climbed = dataclasses.replace(blocked, id=f"{blocked.id}/x5", state="error")
        results = dataclasses.replace(results, outcomes=(*results.outcomes, climbed))
        assert "training-step" not in {each.id for each in judge(results).findings}

    def test_the_layers_of_a_recommendation_do_not_name_the_combination(self):
        changes = {"default/lstm/*": "error"}
        results = by_layer(run(changes), {"training-step": "wrong"}, options=("rnn",))
        assert recommend(results).configuration.layers == (
            "LSTM fails in MIOpen. Convolution in MIOpen fails here with LSTM outside MIOpen: "
            "cuda:0/rnn-pytorch/training-step/float32: wrong.",
        )

    def test_a_layer_that_fails_outside_of_the_library_is_not_sent_there(self):
        changes = {"default/lstm/*": "error", "vendor-off/lstm/*": "wrong"}
        (native,) = recommend(run(changes)).configuration.layers
        (bypass,) = recommend(run({**DEAD, **changes}, seconds=SLOW)).configuration.layers
        for words in (native, bypass):
            assert words.endswith("outside MIOpen: cuda:0/vendor-off/lstm/float32: wrong.")
            assert "install(" not in words

    def test_native_convolution_that_fails_is_not_named(self):
        found = judge(run({**DEAD, "default/batch-norm/float32": STATUS}))
        assert 'convolution="native"' not in repr((found.findings, found.recommendation))


class TestBatchNormWithoutATrainingStep:
    """A recommendation for training passes batch norm where that was tested and the training step was not."""

    def test_a_setting_that_keeps_the_layer_in_the_library_is_not_recommended(self):
        found = recommend(run(ONLY_BATCH_NORM))
        assert found.configuration.setting == "vendor-off"
        objections = {row["setting"]: row["reason"] for row in found.alternatives if not row["right"]}
        assert objections["default"].startswith("cuda:0/default/batch-norm/float32: error")
        for name in ("bypass", "no-winograd", "clean-db"):
            assert objections[name] == (
                "a failing test was not run with this setting: cuda:0/default/batch-norm/float32: error"
            )
        assert "bypass+vendor-off" not in objections


class TestConfiguration:
    def test_the_override_that_the_run_stood_on_stays(self):
        assert recommend(run(DEAD)).configuration.env == {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}
        configuration = recommend(run(ONLY_CPU)).configuration
        assert configuration.env == {}
        assert 'device = "cpu"' in configuration.code
        assert recommend(run(machine=Machine())).configuration.env == {}
        # A machine that works needs it, too.
        assert recommend(run()).configuration.env == {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}

    @pytest.mark.parametrize(
        ("backend", "line"),
        [
            ("miopen", "torch.backends.cudnn.enabled = False"),
            ("onednn", "torch.backends.mkldnn.enabled = False"),
        ],
    )
    def test_code_that_switches_the_library_off(self, backend, line):
        found = recommend(run({"*/convolution/*": "wrong", "vendor-off/*": "pass"}, backend=backend))
        assert line in found.configuration.code

    @pytest.mark.thorough
    @pytest.mark.parametrize("wanted", [each.name for each in synthetic.settings_for("miopen", "all")])
    def test_code_of_every_setting_runs(self, wanted):
        torch = pytest.importorskip("torch")
        from rocmprobe import bypass

        flags = (
            torch.backends.cudnn.enabled,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
        )
        results = run({"*": "wrong", f"{wanted}/*": "pass"}, wanted="all")
        code = recommend(results).configuration.code
        try:
            exec(code, {"model": torch.nn.Conv2d(1, 1, 1)})
        finally:
            bypass.uninstall()
            (
                torch.backends.cudnn.enabled,
                torch.backends.cudnn.benchmark,
                torch.backends.cudnn.deterministic,
            ) = flags

    #: What stays in MIOpen beside the bypass, and was asked there.
    OTHERS = ("batch-norm*", "rnn", "lstm", "gru", "ctc-loss")

    def layers(self, changes, **more):
        return recommend(run({**DEAD, **changes}, seconds=SLOW, **more)).configuration.layers

    def others(self, change, setting="default"):
        return {f"{setting}/{check}/*": change for check in self.OTHERS}

    def test_other_layers_are_named_as_they_were_tested(self):
        assert self.layers({}) == (
            "Batch norm and RNN still run in MIOpen. Tested and correct: batch norm, batch norm in "
            "evaluation, RNN, LSTM, GRU and CTC loss.",
        )
        assert self.layers({**self.others("n/a"), "default/lstm/float32": "pass"}) == (
            "Batch norm and RNN still run in MIOpen. Tested and correct: batch norm and LSTM. Not tested: "
            "batch norm in evaluation, RNN, GRU and CTC loss.",
        )
        unchecked = {"*/training-step/*": "n/a", **self.others("n/a")}
        assert self.layers(unchecked) == ("Batch norm and RNN still run in MIOpen. They were not tested.",)

    def test_a_layer_that_fails_beside_the_bypass_needs_the_library_off(self):
        (both,) = self.layers({"default/lstm/*": "error", "default/gru/*": "wrong"})
        assert "where LSTM and GRU fail: switch MIOpen off too" in both

    def test_a_layer_that_fails_beside_native_convolution_runs_without_the_library(self):
        found = recommend(run({"default/lstm/*": "error"})).configuration
        assert found.setting == "default"
        assert found.layers == (
            "LSTM fails in MIOpen: use `with torch.backends.cudnn.flags(enabled=False):` for failing layers, "
            "or send only them to PyTorch's own kernels: "
            '`rocmprobe.bypass.install(convolution="native", rnn="pytorch")`',
        )
        assert recommend(run({"default/lstm/float16": "error"})).configuration.layers == ()

    def test_a_layer_that_fails_with_the_library_off_is_named(self):
        (told,) = self.layers({"bypass*/convolution/*": "wrong", "*/gru/*": "wrong"})
        assert "do not use MIOpen either" in told
        assert told.endswith(". GRU fails without MIOpen as well.")

    def test_clean_databases_are_named_if_the_user_s_own_fail(self):
        for changes, named in (({"as-found/convolution/*": "error"}, True), ({}, False)):
            recommended = judge(run(changes, wanted="all")).recommendation
            assert any("clean databases" in line for line in recommended.configuration.layers) is named


def test_confidence_names_what_was_not_learned():
    results = dataclasses.replace(run({"cpu/*": "probe-error"}), partial=True, simulated="somewhere")
    confidence = recommend(results).confidence
    assert "without a result" in confidence
    assert "simulated" in confidence


def test_alternatives_are_ranked_and_explained():
    found = recommend(run(DEAD, seconds=SLOW)).alternatives
    names = [each["setting"] for each in found]
    assert names[:3] == ["vendor-off", "bypass+vendor-off", "cpu"]
    assert all("miopenStatusUnknownError" in each["reason"] for each in found if not each["right"])
    assert len(names) == len(set(names)) == len(run().settings) - 1


class TestSettingsThatChangeTheProblems:
    """``channels-last`` and the control in fp64, which ask about other problems than the rest."""

    def asked(self, changes={}, seconds={}):  # noqa: B006 - read only
        """A run with both, whose outcomes are about their own problems."""
        settings = {each.name: each for each in synthetic.settings_for("miopen", "all")}
        results = run(changes, wanted="default,channels-last,float64", seconds=seconds)
        outcomes = []
        for outcome in results.outcomes:
            setting = settings[outcome.setting]
            if setting.changes_problems and outcome.problem is None:
                continue
            if setting.dtype and outcome.check == "throughput":
                continue
            changed = dataclasses.replace(outcome, dtype=setting.dtype or outcome.dtype)
            if setting.channels_last:
                changed = dataclasses.replace(changed, problem=f"{outcome.problem}-nhwc")
            outcomes.append(changed)
        return dataclasses.replace(results, outcomes=tuple(outcomes))

    def test_the_control_is_ranked_nowhere(self):
        found = recommend(self.asked())
        assert set(found.per) == {
            f"{d}/{p}" for d in ("float32", "float16") for p in ("training", "inference")
        }
        names = {found.configuration.setting, *(each["setting"] for each in found.alternatives)}
        assert "float64" not in names

    def test_a_control_that_fails_speaks_against_nothing_else(self):
        assert recommend(self.asked({"float64/*": "error"})).verdict == "native"

    def test_channels_last_prints_its_line_if_it_is_the_cure(self):
        found = recommend(self.asked({"default/convolution/*": "wrong"}))
        assert found.configuration.setting == "channels-last"
        assert found.configuration.env["PYTORCH_MIOPEN_SUGGEST_NHWC"] == "1"
        assert "model = model.to(memory_format=torch.channels_last)" in found.configuration.code
        assert "not tested in channels-last" in found.configuration.layers[0]

    def test_times_in_channels_last_are_compared_with_those_of_the_same_problems(self):
        quick = {"channels-last": (0.09, 0.1, 0.11), "default": (0.9, 1.0, 1.1)}
        found = recommend(self.asked(seconds=quick))
        assert found.configuration.setting == "channels-last"
        default = next(each for each in found.alternatives if each["setting"] == "default")
        assert default["seconds"] == 1.0


@pytest.mark.parametrize(
    ("torch", "lines"),
    [
        ("1.13.1", ["torch.backends.cudnn.benchmark = True"]),
        ("2.7.0", ["torch.backends.cudnn.benchmark = False", "torch.backends.cudnn.deterministic = False"]),
    ],
)
def test_a_find_mode_comes_with_the_flags_that_make_it_act(torch, lines):
    results = run({"*/convolution/*": "wrong", "find-fast/*": "pass"})
    fast = [each for each in synthetic.settings_for("miopen", "find-fast", torch) if each.name == "find-fast"]
    settings = tuple(each for each in results.settings if each.name != "find-fast")
    found = recommend(dataclasses.replace(results, settings=(*settings, *fast)))
    assert found.configuration.env["MIOPEN_FIND_MODE"] == "2"
    assert found.configuration.code.splitlines() == ["import torch", *lines]


IN_MATRIX = {"default/problem-matrix/*": "crash"}


class TestProblemMatrix:
    """It is asked under few settings: what fails there is not known to hold under their like."""

    def test_what_fails_under_default_proves_no_setting_that_was_not_asked(self):
        results = run(IN_MATRIX)
        found = {each["setting"]: each for each in recommend(results).alternatives}
        assert not found["find-fast"]["right"]
        assert found["find-fast"]["reason"].startswith(
            "a failing test was not run with this setting: cuda:0/def"
        )
        assert found["bypass"]["right"]
        assert found["cpu"]["right"]

    def test_a_setting_that_ran_it_speaks_for_itself(self):
        results = run(IN_MATRIX)
        own = next(each for each in results.outcomes if each.id.startswith("cuda:0/vendor-off/problem"))
        passed = dataclasses.replace(own, id=own.id.replace("vendor-off", "find-fast"), setting="find-fast")
        results = dataclasses.replace(results, outcomes=(*results.outcomes, passed))
        assert answer(results) == ("native-with-settings", "find-fast")

    def test_the_finding_says_what_fails_and_where_it_holds(self):
        (found,) = [each for each in judge(run(IN_MATRIX)).findings if each.id == "problem-matrix"]
        assert found.title == (
            "3 of 3 tests of the problem matrix fail in MIOpen (conv_transpose3d; fp32; fwd, bwd-data, "
            "bwd-weights); the same tests pass with PyTorch's own kernels and rocmprobe's bypass"
        )
        assert found.layer == "miopen-exec"
        assert not [each for each in judge(run()).findings if each.id == "problem-matrix"]


def test_what_is_verified_is_the_dtype_that_is_recommended():
    """A program that computes in float16: there the setting must hold, and in float32 it need not."""
    recorded = {"problem": synthetic.FP16, "counts": dict.fromkeys(DIRECTIONS, 1)}
    shapes = {"problems": [recorded], "steps": None, "torch": []}
    expected = run(purpose="training")
    expected = dataclasses.replace(expected, options={**expected.options, "shapes": shapes})
    expected = judge(expected)
    assert expected.recommendation.configuration.setting == "default"

    def holds(changes):
        again = dataclasses.replace(run(changes), options=expected.options)
        return verify(expected, again)[0]

    assert holds({})
    assert holds({f"default/convolution/{FP32}/*": "wrong"})
    assert not holds({f"default/convolution/{synthetic.FP16}/*": "wrong"})


@pytest.mark.parametrize("half", ["pass", "wrong", "blocked"])
@pytest.mark.parametrize("state", ["wrong", "error"])
def test_bfloat16_is_named_whatever_float16_came_to(half, state):
    results = run({f"*/convolution/{synthetic.FP16}/*": half})
    brain = tuple(
        dataclasses.replace(
            each, id=each.id.replace("fp16", "bf16"), dtype="bfloat16", state=state,
            problem=str(each.problem).replace("fp16", "bf16"),
        )
        for each in results.outcomes
        if (each.check, each.dtype) == ("convolution", "float16")
    )  # fmt: skip
    told = recommend(dataclasses.replace(results, outcomes=(*results.outcomes, *brain))).sentence
    assert "No configuration gives correct results in bfloat16." in told


def test_a_switch_for_another_layer_is_no_question_of_speed():
    results = run({"default/lstm/float32": "wrong"})
    default = results.setting("default")
    cure = next(row for row in with_cures("miopen", "default", TORCH) if row.name == "no-interrupt")
    moved = [
        dataclasses.replace(
            each, id=each.id.replace("/default/", f"/{cure.name}/"), setting=cure.name, state="pass"
        )
        for each in results.outcomes
        if each.setting == default.name
    ]
    results = dataclasses.replace(
        results, settings=(*results.settings, cure), outcomes=(*results.outcomes, *moved)
    )
    sentence = recommend(results).sentence
    assert "with its defaults gives correct results too, but not for LSTM" in sentence, sentence


TIMES = {"default": (1.0, 0.99, 1.01), "vendor-off": (2.0, 1.99, 2.01), "bypass": (3.0, 2.99, 3.01)}


def test_costs_are_relative_to_the_unchanged_setting_and_name_the_recommended_first():
    found = recommend(run(wanted=",".join(TIMES), seconds=TIMES)).costs
    assert found is not None
    assert (found.dtype, found.reference, found.busy) == ("float32", "default", False)
    assert [row.setting for row in found.rows if row.recommended] == [found.rows[0].setting] == ["default"]
    times = {row.setting: round(row.time, 1) for row in found.rows if row.time is not None}
    assert (times["default"], times["vendor-off"], times["bypass"]) == (1.0, 2.0, 3.0)
    assert all(row.low <= row.time <= row.high for row in found.rows if row.time is not None)


@pytest.mark.parametrize(
    "changes", [{"*/convolution/*": "wrong"}, {"*/throughput/*": "skipped", "*/memory/*": "skipped"}]
)
def test_without_two_measured_settings_there_are_no_costs(changes):
    assert recommend(run(changes)).costs is None
