"""From questions to cases: which settings, problems and directions, and what each case stands on."""

from __future__ import annotations

import runpy
from itertools import groupby
from pathlib import Path

import pytest

from rocmprobe.checks import CHECKS
from rocmprobe.engine.plan import Request, cases, in_order
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.knowledge.solvers import by_name, forced_setting, solvers
from rocmprobe.model.options import RunOptions
from rocmprobe.model.problems import problems
from rocmprobe.model.results import DIRECTIONS
from rocmprobe.model.shapes import Recorded, Shapes

GPU = Device("cuda:0", "miopen")
SETTINGS = settings_for("miopen")
OWN = "conv2d-fp16-n1-c8-i9x9-k8-f3x3"
DTYPES = ("float32", "float16", "bfloat16", "float64")
BOTH = ("default", "vendor-off")


def _requests() -> tuple[Request, ...]:
    """What the suites request, except that of the solver sweep, which needs settings of its own."""
    found = []
    for path in sorted((Path(__file__).parents[1] / "suites").glob("test_*.py")):
        found += runpy.run_path(str(path))["REQUESTS"]
    return tuple(request for request in found if request.check != "solver")


EVERYTHING = _requests()
BY_CHECK = {request.check: request for request in EVERYTHING}
LADDER = [BY_CHECK[name] for name in ("copy", "elementwise", "gemm", "im2col", "batch-norm", "training-step")]
NATIVE, MATRIX, STEP = BY_CHECK["convolution"], BY_CHECK["problem-matrix"], BY_CHECK["training-step"]
THROUGHPUT, START_UP = BY_CHECK["throughput"], BY_CHECK["start-up"]
SWEEP = Request("solver", ("forced",), problems="native", directions=True)
FORCED = tuple(map(forced_setting, solvers()))
ALL = settings_for("miopen", "all")


def planned(request, options=RunOptions(), settings=SETTINGS):  # noqa: B008 - frozen
    return list(cases(request, GPU, settings, options))


def everything(options=RunOptions()):  # noqa: B008 - frozen
    return [case for request in EVERYTHING for case in planned(request, options)]


def one(request, setting, options=RunOptions()):  # noqa: B008 - frozen
    return next(case for case in planned(request, options) if case.setting == setting)


def test_every_setting_problem_and_direction_once():
    found = planned(NATIVE)
    for_all = [setting for setting in SETTINGS if not setting.by_name]
    assert len(found) == len(for_all) * len(problems("quick", "native")) * len(DIRECTIONS)
    assert len({case.id for case in found}) == len(found)


@pytest.mark.thorough
def test_ids_differ_over_all_suites():
    ids = [case.id for case in everything(RunOptions(level="long"))]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("first", "settings"),
    [("copy", (*ALL, *FORCED)), ("changing-sizes", SETTINGS), ("memory", SETTINGS)],
)
def test_each_case_follows_all_that_it_depends_on(first, settings):
    options = RunOptions(settings="default" if settings is SETTINGS else "all")
    requests = sorted((*EVERYTHING, SWEEP), key=lambda request: request.check != first)
    asked = [case for request in requests for case in planned(request, options, settings)]
    found = in_order(asked)
    place = {case.id: number for number, case in enumerate(found)}
    assert len(place) == len(asked)
    early = [
        (case.id, need)
        for case in found
        for need in (*case.needs, *case.if_failed)
        if place.get(need, -1) > place[case.id]
    ]
    assert early == []
    trials = [trial for trial, _ in groupby(case.trial_key for case in found)]
    assert len(set(trials)) == len(trials)
    # What may stop the machine ends the run.
    assert {case.check for case in found[-3:]} == {"kernel"}


def test_what_is_asked_by_level_setting_and_purpose():
    # Levels nest.
    quick = {case.id for case in everything()}
    assert quick < {case.id for case in everything(RunOptions(level="standard"))}

    # Only the named settings.
    assert {case.setting for case in planned(MATRIX)} == {each.name for each in SETTINGS} & set(
        MATRIX.settings
    )
    assert planned(Request("copy", ("nothing",))) == []

    # Inference asks forward alone.
    found = planned(NATIVE, RunOptions(purpose="inference"))
    assert {case.direction for case in found} == {"fwd"}
    needs = one(STEP, "default", RunOptions(purpose="inference")).needs
    assert not [need for need in needs if "bwd" in need]


def test_own_problems_replace_those_of_the_level_but_not_of_the_gradients():
    options = RunOptions(problems=(OWN,))
    assert {case.problem for case in planned(NATIVE, options)} == {OWN}
    assert {case.dtype for case in planned(NATIVE, options)} == {"float16"}
    for purpose, check in (
        ("gradients", "gradients"),
        ("gradient-flow", "gradient-flow"),
        ("kinds", "convolution-kinds"),
    ):
        assert OWN not in {case.problem for case in planned(Request(check, problems=purpose), options)}
    # The native suite asks about them under every setting: they leave nothing to the matrix.
    assert planned(MATRIX, RunOptions(problems=(OWN,))) == []


class TestASettingOfFewChecks:
    MATMUL = Request("matmul", ("default", "no-hipblaslt"), dtypes=("float16",))
    DEFAULT = "cuda:0/default/matmul/float16"

    def test_is_asked_where_default_fails(self):
        assert one(self.MATMUL, "no-hipblaslt").if_failed == (self.DEFAULT,)
        assert one(self.MATMUL, "default").if_failed == ()

        # Is no part of every setting.
        asked = {case.check for case in everything() if case.setting == "no-hipblaslt"}
        assert asked == {"matmul", "int-matmul"}

    @pytest.mark.parametrize("settings", ["all", "vendor-off, no-hipblaslt"])
    def test_is_asked_in_any_case_where_the_user_names_it(self, settings):
        assert one(self.MATMUL, "no-hipblaslt", RunOptions(settings=settings)).if_failed == ()


class TestNeeds:
    def test_needs_are_cases_of_the_plan_in_no_circle(self):
        # A need is always a case of the plan.
        ids = {case.id for case in everything()}
        for case in everything():
            assert set(case.needs) <= ids, case.id

        # No case stands on itself or in a circle.
        needs = {case.id: case.needs for case in everything()}
        done: set[str] = set()
        while len(done) < len(needs):
            ready = {each for each, below in needs.items() if each not in done and set(below) <= done}
            assert ready
            done |= ready

        # Every check has its needs.
        asked = everything(RunOptions(level="standard"))
        assert {case.check for case in asked} | {"solver", "soak"} == set(CHECKS)

        # The CPU stands on nothing of the GPU.
        assert {case.needs for case in everything() if case.setting == "cpu"} == {()}

    def test_the_ladder_stands_on_lower_rungs(self):
        needs = {request.check: one(request, "default").needs for request in LADDER}
        assert needs["copy"] == ()
        assert needs["elementwise"] == ("cuda:0/default/copy/float32",)
        for check in ("gemm", "im2col", "batch-norm"):
            assert needs[check] == ("cuda:0/default/elementwise/float32",)

        # A fused operator stands on its forward convolution.
        needs = one(Request("convolution-relu", BOTH, ("float16",)), "default").needs
        assert [need for need in needs if "/convolution/conv2d-fp16" in need and need.endswith("/fwd")]
        assert not [need for need in needs if "bwd" in need]

        # Autocast stands on the step in float32.
        needs = one(Request("autocast-step", ("every",), ("float16",)), "bypass").needs
        assert "cuda:0/bypass/training-step/float32" in needs
        assert "cuda:0/default/batch-norm/float16" in needs
        assert [need for need in needs if "/bypass/convolution/conv2d-fp16" in need]

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_a_dtype_stands_on_itself(self, dtype):
        for check in ("gemm", "batch-norm", "rnn"):
            needs = one(Request(check, dtypes=(dtype,)), "default").needs
            assert f"cuda:0/default/elementwise/{dtype}" in needs
            assert (f"cuda:0/default/gemm/{dtype}" in needs) == (check == "rnn")

    def test_another_kind_stands_on_plain_convolution_in_its_direction(self):
        found = planned(Request("convolution-kinds", BOTH, problems="kinds", directions=True))
        first = problems("quick", "native")[0].text
        asked = [case for case in planned(MATRIX) if case.setting in (*BOTH, "bypass")]
        found += [case for case in asked if case.dtype == "float32"]
        for case in found:
            plain = f"cuda:0/{case.setting}/convolution/{first}/{case.direction}"
            # PyTorch keeps float64 from MIOpen: it may hold where the others fail.
            assert (plain in case.needs) == (case.dtype != "float64")
            assert (f"cuda:0/default/gemm/{case.dtype}" in case.needs) == (case.setting != "default")

    @pytest.mark.parametrize("setting", [each.name for each in SETTINGS if not (each.device or each.by_name)])
    def test_only_what_leaves_the_library_stands_on_gemm(self, setting):
        row = next(each for each in SETTINGS if each.name == setting)
        gemm = "cuda:0/default/gemm/float32" in one(NATIVE, setting).needs
        assert gemm == (row.bypass or not row.vendor_library)

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
        needs = one(STEP, setting).needs
        assert f"cuda:0/{batch_norm}/batch-norm/float32" in needs
        assert any(need.startswith(f"cuda:0/{setting}/convolution/") for need in needs)


class TestSweep:
    def swept(self, options=RunOptions()):  # noqa: B008 - frozen
        return planned(SWEEP, options, (*SETTINGS, *FORCED))

    def test_each_solver_is_asked_where_default_fails_at_the_same(self):
        # Each solver that may run is a setting of its own.
        found = self.swept()
        assert {case.check for case in found} == {"solver"}
        for case in found:
            solver = by_name()[case.setting.removeprefix("only-")]
            assert solver.may_run(case.problem, case.direction, None)
        assert len({case.trial_key for case in found}) > 20

        # At level quick the first problem of each dtype.
        first = {problem.dtype: problem.text for problem in reversed(problems("quick", "native"))}
        assert {case.problem for case in self.swept()} == set(first.values())
        more = {case.problem for case in self.swept(RunOptions(level="standard"))}
        assert more == {problem.text for problem in problems("standard", "native")}

        # Inference asks forward alone.
        assert {case.direction for case in self.swept(RunOptions(purpose="inference"))} == {"fwd"}

        # It is asked where default fails at the same.
        asked = {case.id for case in planned(NATIVE)}
        for case in self.swept():
            (reason,) = case.if_failed
            assert reason == f"cuda:0/default/convolution/{case.problem}/{case.direction}"
            assert reason in asked
            assert set(case.needs) == {f"cuda:0/default/elementwise/{case.dtype}"}

        # All settings ask for it anyway.
        assert {case.if_failed for case in self.swept(RunOptions(settings="all"))} == {()}

        # No other suite asks under a forced solver.
        for request in EVERYTHING:
            assert planned(request, settings=(*SETTINGS, *FORCED)) == planned(request)

    @pytest.mark.parametrize(
        ("problem", "small"),
        [
            ("conv2d-fp32-n8-c3-i640x480-k64-f7x7-s2-p3", "conv2d-fp32-n2-c3-i28x28-k64-f7x7-s2-p3"),
            ("conv2d-fp16-n1-c8-i64x40-k8-f3x3-d16", "conv2d-fp16-n1-c8-i33x33-k8-f3x3-d16"),
        ],
    )
    def test_at_level_quick_a_large_problem_is_swept_small(self, problem, small):
        for level, expected in (("quick", small), ("standard", problem)):
            found = self.swept(RunOptions(level=level, problems=(problem,)))
            assert {case.problem for case in found} == {expected}
            for case in found:
                assert case.if_failed == (f"cuda:0/default/convolution/{problem}/{case.direction}",)


@pytest.mark.parametrize(
    ("options", "selected"),
    [
        ({}, True), ({"only": ("convolution",)}, True), ({"only": ("*/bypass/*",)}, True),
        ({"only": ("gemm",)}, False), ({"skip": ("*/bypass/*",)}, False),
        ({"only": ("convolution",), "skip": ("*fwd",)}, False),
    ],
    ids=str,
)  # fmt: skip
def test_what_only_and_skip_select(options, selected):
    case = one(NATIVE, "bypass")
    assert RunOptions(**options).selects(case.check, case.id) is selected


def test_an_id_has_all_that_tells_cases_apart():
    case = one(NATIVE, "bypass")
    assert case.id == f"cuda:0/bypass/convolution/{case.problem}/fwd"
    assert case.trial_key == "cuda:0/bypass"
    assert (case.rung, case.exclusive) == ("conv", False)
    assert one(THROUGHPUT, "bypass").exclusive


class TestSettingsThatChangeTheProblems:
    def of(self, setting, options=RunOptions()):  # noqa: B008 - frozen
        return [
            case
            for request in EVERYTHING
            for case in planned(request, options, ALL)
            if case.setting == setting
        ]

    def test_channels_last_asks_the_same_problems_in_nhwc(self):
        found = [case for case in self.of("channels-last") if case.check == "convolution"]
        expected = {f"{problem.text}-nhwc" for problem in problems("quick", "native")}
        assert {case.problem for case in found} == expected
        assert {case.check for case in self.of("channels-last")} == {"convolution", "throughput", "start-up"}

        # Channels last is for packed operands of 2 d.
        others = ("conv1d-fp32-n1-c4-i9-k4-f3", "conv3d-fp32-n1-c2-i4x4x4-k2-f2", f"{OWN}-noncontiguous")
        options = RunOptions(problems=(*others, OWN))
        assert {case.problem for case in self.of("channels-last", options)} == {f"{OWN}-nhwc"}

        # Channels last asks all of a program those that are so already too.
        options = RunOptions(problems=(f"{OWN}-nhwc", OWN.replace("fp16", "fp64"), OWN))
        asked = [case.problem for case in self.of("channels-last", options) if case.check == "throughput"]
        assert asked == [f"{OWN}-nhwc", f"{OWN.replace('fp16', 'fp64')}-nhwc"]

    def test_the_control_asks_about_right_numbers_alone(self):
        found = self.of("float64")
        assert {(case.check, case.dtype) for case in found} == {("convolution", "float64")}
        assert all(case.problem.startswith("conv2d-fp64-") for case in found)
        assert len({case.id for case in found}) == len(found)

        # The control does not ask again what default asks.
        options = RunOptions(problems=(f"{OWN}-nhwc", OWN.replace("fp16", "fp64")))
        assert {case.problem for case in self.of("float64", options)} == {
            f"{OWN.replace('fp16', 'fp64')}-nhwc"
        }

        # Two problems that become one are one.
        options = RunOptions(problems=(OWN, OWN.replace("fp16", "fp32")))
        assert len(self.of("float64", options)) == len(DIRECTIONS)

    def test_they_stand_on_their_own_convolutions(self):
        ids = {case.id for case in self.of("channels-last")}
        timed = next(case for case in self.of("channels-last") if case.check == "throughput")
        convolutions = {need for need in timed.needs if "/convolution/" in need}
        assert convolutions
        assert convolutions <= ids
        assert "cuda:0/default/gemm/float64" in self.of("float64")[0].needs


class TestStartUp:
    def test_has_a_trial_of_its_own_on_its_convolution(self):
        # Stands on the convolution of its setting.
        case = one(START_UP, "find-fast")
        assert case.exclusive
        assert case.needs
        assert all("/find-fast/convolution/" in need for need in case.needs)

        # Has a trial of its own.
        keys = [case.trial_key for case in planned(START_UP, RunOptions(level="standard"))]
        assert len(set(keys)) == len(keys)
        assert not set(keys) & {case.trial_key for case in planned(THROUGHPUT)}

        # The user's own databases are never cold.
        assert "as-found" not in {case.setting for case in planned(START_UP, settings=ALL)}

        # Few problems.
        assert len(problems("quick", "start-up")) <= 2

    @pytest.mark.parametrize("timing", [THROUGHPUT, START_UP])
    def test_for_inference_times_forward_alone(self, timing):
        assert {case.direction for case in planned(timing)} == {None}
        found = planned(timing, RunOptions(purpose="inference"))
        assert {case.direction for case in found} == {"fwd"}


class TestWithoutTorch:
    def planned(self, target, options=RunOptions()):  # noqa: B008 - frozen
        return [case for each in EVERYTHING for case in cases(each, target, SETTINGS, options)]

    def test_two_checks_need_no_torch_and_run_by_default(self):
        found = self.planned(Device("cuda:0", "miopen", torch=False))
        assert {(case.check, case.setting) for case in found} == {
            ("rocblas-direct", "default"), ("miopen-direct", "default"),
        }  # fmt: skip
        # The first problem of each dtype, which convolution through PyTorch has, too.
        fp32, fp16 = "conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1-bias", "conv2d-fp16-n2-c16-i28x28-k32-f3x3-p1"
        convolutions = [case for case in found if case.check == "miopen-direct"]
        assert [(case.problem, case.direction) for case in convolutions] == [
            (problem, direction) for problem in (fp32, fp16) for direction in DIRECTIONS
        ]
        assert not any(case.needs for case in found)
        assert len({case.trial_key for case in found}) == 1

    def test_nothing_depends_on_them_and_they_are_of_miopen_alone(self):
        every = self.planned(GPU)
        ids = {case.id for case in every if case.direct}
        assert ids
        assert not any(ids & {*case.needs, *case.if_failed} for case in every)
        assert {case.trial_key for case in every if case.direct}.isdisjoint(
            case.trial_key for case in every if not case.direct
        )
        for other in (Device("cpu", "onednn"), Device("cuda:0", "cudnn")):
            assert not any(case.direct for case in self.planned(other))


class TestLevels:
    """The models are asked from level standard on, and wherever they are named."""

    REQUEST = Request("train-unet", settings=("default",), level="standard")

    @pytest.mark.parametrize(
        ("options", "asked"),
        [
            (RunOptions(), False),
            (RunOptions(level="standard"), True),
            (RunOptions(level="long"), True),
            (RunOptions(only=("train-unet",)), True),
            (RunOptions(only=("train-resnet",)), False),
            (RunOptions(level="long", purpose="inference"), False),
        ],
    )
    def test_a_question_has_a_first_level(self, options, asked):
        assert bool(planned(self.REQUEST, options)) is asked

    def test_models_stand_on_their_layers(self):
        # A model stands on the training step of its setting.
        case = one(Request("train-unet", settings=("bypass",), dtypes=("float16",)), "bypass")
        assert [need.split("/", 1)[1] for need in case.needs] == [
            "bypass/training-step/float32",
            "bypass/autocast-step/float16",
        ]

        # The LSTM stands on its layer.
        case = one(Request("train-lstm", settings=("default",), dtypes=("float32",)), "default",
                   RunOptions(level="standard"))  # fmt: skip
        assert [need.split("/", 1)[1] for need in case.needs] == [
            "default/gemm/float32",
            "default/lstm/float32",
        ]


def test_shapes_are_asked_about_and_nothing_else():
    """Every problem by what asks about problems, and as few as without where each takes processes."""
    texts = tuple(f"conv2d-fp32-n1-c8-i{size}x{size}-k8-f3x3" for size in (9, 11, 13))
    counts = {"fwd": 1, "bwd-data": 1, "bwd-weights": 1}
    shapes = Shapes(tuple(Recorded(text, counts) for text in texts))
    for level in ("quick", "standard"):
        options = RunOptions(level=level, problems=texts, shapes=shapes)
        for check, purpose in (("convolution", "native"), ("convolution", "bypass"), ("throughput",) * 2):
            asked = planned(Request(check, ("default",), problems=purpose), options)
            assert [case.problem for case in asked] == list(texts)
        starts = planned(Request("start-up", ("default",), problems="start-up"), options)
        most = len(problems(level, "start-up"))
        assert [case.problem for case in starts] == list(reversed(texts))[:most]
        taken = planned(Request("memory", ("default",), problems="memory"), options)
        assert [case.problem for case in taken] == list(texts)


class TestSoak:
    REQUEST = BY_CHECK["soak"]

    def settings(self, wanted="default", **options):
        rows = settings_for("miopen", wanted)
        return [case.setting for case in planned(self.REQUEST, RunOptions(**options), rows)]

    def test_it_ends_a_run_of_level_long(self):
        assert self.settings(level="long") == ["default", "vendor-off", "bypass"]
        assert self.settings(level="standard") == []
        assert self.settings(level="long", purpose="inference") == []
        long = RunOptions(level="long")
        assert in_order([*planned(self.REQUEST, long), *planned(STEP, long)])[-1].check == "soak"
        assert self.settings(only=("soak",)) == ["default", "vendor-off", "bypass"]
