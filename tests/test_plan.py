"""From questions to cases: which settings, problems and directions, and what each case stands on."""

from __future__ import annotations

import pytest

from rocmprobe.model import DIRECTIONS
from rocmprobe.problems import problems
from rocmprobe.runner.options import RunOptions
from rocmprobe.runner.plan import Question, cases
from rocmprobe.runner.targets import Target
from rocmprobe.settings import settings_for

GPU = Target("cuda:0", "miopen")
SETTINGS = settings_for("miopen")
NATIVE = Question("convolution", ("every",), problems="native", directions=True)
OWN = "conv2d-fp16-n1-c8-i9x9-k8-f3x3"
LADDER = (
    Question("copy"),
    Question("elementwise", dtypes=("float32", "float16")),
    Question("gemm", dtypes=("float32", "float16")),
    Question("im2col"),
    Question("batch-norm", ("default", "vendor-off")),
    Question("training-step", ("every",)),
)
EVERYTHING = (
    *LADDER,
    NATIVE,
    Question("convolution", ("bypass",), problems="bypass", directions=True),
    Question("gradients", ("vendor-off", "bypass"), problems="gradients"),
    Question("memory", ("default", "bypass"), problems="memory"),
    Question("throughput", ("every",), problems="throughput"),
)


def planned(question, options=RunOptions(), settings=SETTINGS):  # noqa: B008 - frozen
    return list(cases(question, GPU, settings, options))


def everything(options=RunOptions()):  # noqa: B008 - frozen
    return [case for question in EVERYTHING for case in planned(question, options)]


def one(question, setting, options=RunOptions()):  # noqa: B008 - frozen
    return next(case for case in planned(question, options) if case.setting == setting)


def test_every_setting_problem_and_direction_once():
    found = planned(NATIVE)
    assert len(found) == len(SETTINGS) * len(problems("quick", "native")) * len(DIRECTIONS)
    assert len({case.id for case in found}) == len(found)


@pytest.mark.parametrize("level", ["quick", "standard", "long"])
def test_ids_differ_over_all_suites(level):
    ids = [case.id for case in everything(RunOptions(level=level))]
    assert len(set(ids)) == len(ids)


def test_levels_nest():
    quick = {case.id for case in everything()}
    assert quick < {case.id for case in everything(RunOptions(level="standard"))}


def test_only_the_named_settings():
    assert {case.setting for case in planned(EVERYTHING[7])} == {"bypass"}
    assert planned(Question("copy", ("nothing",))) == []


def test_inference_asks_forward_alone():
    found = planned(NATIVE, RunOptions(purpose="inference"))
    assert {case.direction for case in found} == {"fwd"}
    needs = one(LADDER[-1], "default", RunOptions(purpose="inference")).needs
    assert not [need for need in needs if "bwd" in need]


def test_own_problems_replace_those_of_the_level_but_not_of_the_gradients():
    options = RunOptions(problems=(OWN,))
    assert {case.problem for case in planned(NATIVE, options)} == {OWN}
    assert {case.dtype for case in planned(NATIVE, options)} == {"float16"}
    assert OWN not in {case.problem for case in planned(EVERYTHING[8], options)}


class TestNeeds:
    def test_a_need_is_always_a_case_of_the_plan(self):
        ids = {case.id for case in everything()}
        for case in everything():
            assert set(case.needs) <= ids, case.id

    def test_no_case_stands_on_itself_or_in_a_circle(self):
        needs = {case.id: case.needs for case in everything()}
        done: set[str] = set()
        while len(done) < len(needs):
            ready = {each for each, below in needs.items() if each not in done and set(below) <= done}
            assert ready
            done |= ready

    def test_the_ladder_stands_on_lower_rungs(self):
        needs = {question.check: one(question, "default").needs for question in LADDER}
        assert needs["copy"] == ()
        assert needs["elementwise"] == ("cuda:0/torch/default/copy/float32",)
        for check in ("gemm", "im2col", "batch-norm"):
            assert needs[check] == ("cuda:0/torch/default/elementwise/float32",)

    @pytest.mark.parametrize("setting", [each.name for each in SETTINGS if each.device != "cpu"])
    def test_only_what_leaves_the_library_stands_on_gemm(self, setting):
        row = next(each for each in SETTINGS if each.name == setting)
        gemm = "cuda:0/torch/default/gemm/float32" in one(NATIVE, setting).needs
        assert gemm == (row.bypass or not row.vendor_library)

    def test_the_cpu_stands_on_nothing_of_the_gpu(self):
        assert {case.needs for case in everything() if case.setting == "cpu"} == {()}

    @pytest.mark.parametrize(
        ("setting", "batch_norm"),
        [
            ("default", "default"),
            ("bypass", "default"),
            ("vendor-off", "vendor-off"),
            ("bypass+vendor-off", "vendor-off"),
        ],
    )
    def test_training_stands_on_convolution_and_the_batch_norm_it_meets(self, setting, batch_norm):
        needs = one(LADDER[-1], setting).needs
        assert f"cuda:0/torch/{batch_norm}/batch-norm/float32" in needs
        assert any(need.startswith(f"cuda:0/torch/{setting}/convolution/") for need in needs)


def test_only_and_skip():
    case = one(NATIVE, "bypass")
    assert RunOptions().selects(case)
    assert RunOptions(only=("convolution",)).selects(case)
    assert RunOptions(only=("*/bypass/*",)).selects(case)
    assert not RunOptions(only=("gemm",)).selects(case)
    assert not RunOptions(skip=("*/bypass/*",)).selects(case)
    assert not RunOptions(only=("convolution",), skip=("*fwd",)).selects(case)


def test_ids_carry_all_that_tells_cases_apart():
    case = one(NATIVE, "bypass")
    assert case.id == f"cuda:0/torch/bypass/convolution/{case.problem}/fwd"
    assert case.trial_key == "cuda:0/torch/bypass"
    assert (case.rung, case.exclusive) == ("conv", False)
    assert one(EVERYTHING[-1], "bypass").exclusive


class TestWithoutTorch:
    SETTINGS = settings_for("miopen", "all")

    def planned(self, *drivers):
        target = Target("cuda:0", "miopen", None, drivers)
        questions = EVERYTHING
        return [case for each in questions for case in cases(each, target, self.SETTINGS, RunOptions())]

    def test_only_what_the_libraries_answer_is_asked(self):
        found = self.planned("capi")
        assert {case.check for case in found} == {
            "copy", "elementwise", "gemm", "convolution", "batch-norm",
        }  # fmt: skip
        assert {case.driver for case in found} == {"capi"}
        assert {case.dtype for case in found if case.check == "gemm"} == {
            "float32", "float16", "bfloat16", "float64",
        }  # fmt: skip
        assert {case.problem for case in found if case.problem} == {
            problem.text for problem in problems("quick", "native")
        }

    def test_each_driver_stands_on_rungs_of_its_own(self):
        found = self.planned("torch", "capi")
        ids = {case.id for case in found}
        assert len(ids) == len(found)
        for case in found:
            assert set(case.needs) <= ids
            assert {need.split("/")[1] for need in case.needs} <= {case.driver}

    def test_the_other_driver_changes_nothing_for_torch(self):
        assert [each for each in self.planned("torch", "capi") if each.driver == "torch"] == self.planned(
            "torch"
        )

    def test_every_setting_is_asked_whether_it_trains(self):
        found = self.planned("capi")
        trained = {case.setting for case in found if case.check == "batch-norm"}
        assert trained == {case.setting for case in found if case.check == "convolution"}
