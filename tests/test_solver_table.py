"""MIOpen's solvers: the table, which may run a problem, and the smallest set of switches."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from rocmprobe import cli
from rocmprobe.knowledge.miopen_log import family, solver_name
from rocmprobe.knowledge.solvers import (
    FORCE,
    are_switches,
    by_name,
    derive_setting,
    forced_setting,
    in_play,
    names_by_id,
    smallest_switches,
    solvers,
    sweep_result,
)
from rocmprobe.knowledge.variables import variables
from rocmprobe.model.problems import LEVELS, parse_problem, problems
from rocmprobe.model.results import DIRECTIONS, Outcome

RUNS = Path(__file__).parents[2] / "shared" / "fixtures" / "miopen-runs"
ROWS = solvers()
FP32 = "conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1"
FP16 = FP32.replace("fp32", "fp16")
ONE = "conv2d-fp32-n2-c64-i14x14-k64-f1x1"
WINOGRAD = {"ConvBinWinogradRxSf3x2", "ConvBinWinogradRxSf2x3", "ConvBinWinogradRxSf2x3g1"}


def names(problem, direction="fwd", isa="gfx1010", version="", environ=None):
    return [solver.name for solver in in_play(problem, direction, isa, version, environ or {})]


class TestEveryRow:
    @pytest.mark.parametrize("row", ROWS)
    def test_its_fields_hold_what_they_may(self, row):
        # Says where it is known from.
        assert row.source
        assert all(re.fullmatch(r"(\d+\.\d+\.\d+)?", version) for version in (row.since, row.until))
        assert set(row.directions) <= set(DIRECTIONS)
        assert row.directions

        # Its family is what its name says.
        assert row.family == family(row.name)

        # Its patterns are regular expressions.
        re.compile(row.problem)
        assert set(row.not_on) <= {"any", *row.dtypes}
        for pattern in row.not_on.values():
            re.compile(pattern)

    @pytest.mark.parametrize("row", ROWS)
    def test_its_switches_are_variables_that_mean_something(self, row):
        known = {variable.name: variable for variable in variables()}
        assert row.off
        assert len(set(row.off)) == len(row.off)
        for name in row.off:
            assert known[name].of == "miopen"
            assert known[name].values == "miopen-bool"

    @pytest.mark.parametrize("row", ROWS)
    def test_is_forced_by_a_setting_of_its_own(self, row):
        setting = forced_setting(row)
        assert setting.name == f"only-{row.name}"
        assert setting.env[FORCE] == row.name
        assert setting.solver == row.name


def test_a_name_stands_once_and_an_id_that_miopen_reused_has_no_name():
    assert len(by_name()) == len(ROWS)
    assert names_by_id()[217] == "ConvHipDirectFwd"
    shared = {row.name for row in ROWS} - set(names_by_id().values())
    assert shared == {"ConvOclDirectFwd11x11", "ConvHipDirectFwd11x11"}
    assert solver_name(8) == "8"


@pytest.mark.skipif(not RUNS.is_dir(), reason="recorded MIOpen runs are not part of the repository")
def test_every_solver_that_a_recorded_run_chose_is_in_the_table():
    chosen = {
        name
        for path in RUNS.rglob("*.*")
        if path.is_file()
        for name in re.findall(r"Chosen Algorithm: ([^\s,]+)", path.read_text("utf-8", "replace"))
    }
    assert len(chosen) > 2
    assert chosen <= set(by_name())


class TestWhatMayRun:
    def test_chips_and_directions_limit_it(self):
        # The dot instructions of fp16 Winograd are not for gfx1010 and gfx1013.
        assert set(names(FP32)) >= WINOGRAD
        assert set(names(FP16, isa="gfx1030")) >= WINOGRAD
        for isa in ("gfx1010", "gfx1013"):
            assert not WINOGRAD & set(names(FP16, isa=isa))

            # Implicit GEMM comes with gfx1030.
            assert not [name for name in names(FP32, isa=isa) if "mplicitGemm" in name or "Igemm" in name]
        assert "ConvCkIgemmFwdV6r1DlopsNchw" in names(FP32, isa="gfx1030")

        # Winograd has separate solvers for channels-last tensors.
        nhwc = names(FP32 + "-nhwc", isa="gfx1030")
        assert "TransposedConvBinWinogradRxSf2x3g1" in nhwc
        assert not WINOGRAD & set(nhwc)

        # What is unknown is asked.
        assert set(names(FP32, isa=None)) > set(names(FP32))
        assert names(FP32, isa="gfx1010:xnack-") == names(FP32)

        # A transposed convolution runs forward as backward data.
        transposed = "conv_transpose2d-fp32-n2-c64-i14x14-k32-f2x2-s2-bias"
        assert "GemmBwdRest" in names(transposed, "fwd")
        assert "GemmFwdRest" in names(transposed, "bwd-data")
        assert "GemmWrwUniversal" in names(transposed, "bwd-weights")

    @pytest.mark.parametrize(
        ("problem", "solver", "runs"),
        [
            (ONE, "GemmFwd1x1_0_1", True),
            (ONE + "-s2", "GemmFwd1x1_0_1", False),
            (ONE + "-s2", "GemmFwd1x1_0_2", True),
            (ONE + "-s2-bias", "GemmFwd1x1_0_2", True),
            (ONE.replace("f1x1", "f1x10"), "GemmFwd1x1_0_1", False),
            (FP32, "GemmFwd1x1_0_1", False),
            (FP32 + "-d2", "ConvBinWinogradRxSf3x2", False),
            (FP32.replace("-p1", "-s2-p1"), "ConvBinWinogradRxSf3x2", True),
            (FP32.replace("-p1", "-s1x3-p1"), "ConvBinWinogradRxSf3x2", False),
            (FP32 + "-g2", "ConvBinWinogradRxSf2x3g1", False),
            (FP32 + "-g2", "fft", False),
            (FP32, "fft", True),
            (FP32 + "-nhwc", "ConvBinWinogradRxSf3x2", False),
            ("conv3d-fp32-n1-c2-i4x5x5-k2-f3x3x3", "ConvOclDirectFwd", False),
            ("conv3d-fp32-n1-c2-i4x5x5-k2-f3x3x3", "ConvDirectNaiveConvFwd", True),
            (FP32.replace("fp32", "fp64"), "ConvDirectNaiveConvFwd", False),
        ],
    )
    def test_limits_of_the_problem(self, problem, solver, runs):
        parse_problem(problem)
        assert by_name()[solver].may_run(problem, "fwd", "gfx1010") == runs

    @pytest.mark.parametrize("isa", ["gfx1010", "gfx1030", "gfx1100", None])
    def test_gemm_and_naive_are_there_for_every_problem(self, isa):
        for problem in problems(LEVELS[-1], "native"):
            for direction in DIRECTIONS:
                families = {by_name()[name].family for name in names(problem.text, direction, isa)}
                assert {"GEMM", "naive"} <= families


class TestInPlay:
    def test_versions_and_directions_limit_it(self):
        # A removed solver is in older releases alone.
        removed = "ConvCkIgemmFwdV6r1DlopsNchw"
        assert removed in names(FP32, isa="gfx1030", version="3.6.0")
        assert removed not in names(FP32, isa="gfx1030", version="3.6.1")
        assert forced_setting(by_name()[removed]).until == "3.6.0"

        # The general OpenCL solver runs forwards alone.
        strided = FP32.replace("-p1", "-s2-p1")
        solver = "ConvOclDirectFwdGen"
        assert solver in names(strided)
        assert solver not in names(strided, "bwd-data")

        # An older version lacks the newer ones.
        assert "ConvHipDirectFwd" not in names(FP32, version="3.5.1")
        assert "ConvHipDirectFwd" in names(FP32, version="3.5.2")
        assert not [name for name in names(FP32, version="3.5.2") if name.startswith("ConvOcl")]

    def test_their_order_and_their_switches(self):
        # Winograd is asked first and naive last.
        found = [by_name()[name].family for name in names(FP32)]
        assert (found[0], found[-1]) == ("Winograd", "naive")

        # A switch takes away what it says.
        off = names(FP32, environ={"MIOPEN_DEBUG_CONV_WINOGRAD": "0"})
        assert set(names(FP32)) - set(off) == WINOGRAD
        assert names(FP32, environ={"MIOPEN_DEBUG_CONV_WINOGRAD": "1"}) == names(FP32)

    @pytest.mark.parametrize("value", ["fft", "34", "fft;ConvAsm3x3U"])
    def test_one_that_is_forced_is_alone(self, value):
        assert names(FP32, environ={FORCE: value}) == ["fft"]


NAMES = [row.name for row in ROWS]
SETS = st.sets(st.sampled_from(NAMES), max_size=4)


class TestSmallestSwitches:
    @pytest.mark.parametrize(
        ("faulty", "sound", "switches"),
        [
            pytest.param(["fft"], {"GemmFwdRest"}, ("MIOPEN_DEBUG_CONV_FFT",), id="its own switch"),
            pytest.param(
                WINOGRAD, {"GemmFwdRest"}, ("MIOPEN_DEBUG_CONV_WINOGRAD",),
                id="a family takes one switch where single ones take three",
            ),
            pytest.param(
                ["ConvDirectNaiveConvFwd", "ConvDirectNaiveConvBwd"], {"GemmFwdRest", "ConvOclDirectFwd"},
                ("MIOPEN_DEBUG_HIP_KERNELS",), id="of equals the one that costs fewest sound solvers",
            ),
            pytest.param(["GemmFwdRest"], {"GemmFwd1x1_0_1"}, None, id="no sound one is left"),
            pytest.param(["fft"], set(), None, id="no correct solver"),
            pytest.param(["fft"], {"fft"}, None, id="the faulty one is the only one"),
            pytest.param([], {"fft"}, (), id="nothing faulty needs no switch"),
        ],
    )  # fmt: skip
    def test_smallest(self, faulty, sound, switches):
        assert smallest_switches(faulty, {("p", "fwd"): sound}) == switches

    def test_all_solvers_can_be_switched_off(self):
        assert smallest_switches(NAMES, {}) is not None

    @settings(max_examples=examples(60))
    @given(SETS, st.lists(SETS, max_size=3))
    def test_against_every_set_of_variables(self, faulty, sound):
        questions = {(str(number), "fwd"): found for number, found in enumerate(sound)}
        wanted = sorted({variable for name in faulty for variable in by_name()[name].off})

        def off(variables):
            return {row.name for row in ROWS if set(row.off) & set(variables)}

        fits = [
            chosen
            for size in range(5)
            for chosen in itertools.combinations(wanted, size)
            if faulty <= off(chosen) and all(found - off(chosen) for found in sound)
        ]
        found = smallest_switches(faulty, questions)
        if not fits:
            assert found is None
            return
        fewest = min(map(len, fits))
        good = set().union(*sound) - faulty if sound else set()
        assert found is not None
        assert tuple(sorted(found)) in fits
        assert len(found) == fewest
        assert len(good & off(found)) == min(len(good & off(each)) for each in fits if len(each) == fewest)


def outcome(solver, state, direction="fwd", **fields):
    name = f"only-{solver}"
    return Outcome(
        f"cuda:0/{name}/solver/{FP32}/{direction}", "cuda:0", name, "solver", "conv", state,
        problem=FP32, direction=direction, **fields,
    )  # fmt: skip


class TestCure:
    @pytest.mark.parametrize(
        ("states", "state", "words"),
        [
            pytest.param({}, "skipped", "", id="nothing was tested"),
            pytest.param(
                {"fft": "skipped", "GemmFwdRest": "skipped"}, "skipped", "the default is correct",
                id="the default is correct",
            ),
            pytest.param({"fft": "pass"}, "skipped", "no solver fails alone", id="none fails alone"),
            pytest.param(
                {"fft": "n/a", "GemmFwdRest": "blocked"}, "skipped", "could be tested", id="none was tested"
            ),
            pytest.param({"fft": "wrong", "GemmFwdRest": "n/a"}, "n/a", "", id="no switches leave one"),
        ],
    )  # fmt: skip
    def test_nothing_to_cure(self, states, state, words):
        found = derive_setting([outcome(*each) for each in states.items()])
        assert (found.env, found.state) == (None, state)
        assert words in found.reason

    @pytest.mark.parametrize("state", ["wrong", "crash", "hang", "error", "flaky", "aborted"])
    def test_one_that_fails_is_switched_off(self, state):
        found = derive_setting([outcome("fft", state), outcome("GemmFwdRest", "pass")])
        assert found.env == {"MIOPEN_DEBUG_CONV_FFT": "0"}
        assert "fft" in found.reason
        assert are_switches(found.env)

    def test_what_counts_as_faulty(self):
        # One in flight when somebody ended the run is not faulty.
        died = outcome("fft", "aborted", failure="run-died")
        assert sweep_result([died, outcome("GemmFwdRest", "pass")]).faulty == frozenset()

        # Sound for one question and faulty for another is faulty.
        gemm = (outcome("GemmFwdRest", "pass"), outcome("GemmBwdRest", "pass", "bwd-data"))
        found = derive_setting([outcome("fft", "pass"), outcome("fft", "wrong", "bwd-data"), *gemm])
        assert found.env == {"MIOPEN_DEBUG_CONV_FFT": "0"}


@pytest.mark.parametrize(
    "env",
    [{"LD_PRELOAD": "x.so"}, {"MIOPEN_DEBUG_CONV_FFT": "1"}, {"MIOPEN_DEBUG_CONV_FFT": "0", "PATH": "0"}],
)
def test_other_variables_are_no_switches(env):
    assert not are_switches(env)


def test_list_solvers_prints_every_name_whole():
    result = CliRunner().invoke(cli.main, ["list", "solvers"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    lines = set(map(str.strip, result.output.splitlines()))
    assert set(by_name()) <= lines
    assert {f"{name}=0" for row in ROWS for name in row.off} <= lines
