"""Stand-alone scripts: short, right, and failing as the run did; and the lines for MIOpenDriver."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

import pytest
import sample
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import Run, environment, machine_file, run
from test_problems import any_problem
from tiers import examples

from rocmprobe.checks import CHECKS, CONVOLUTIONS
from rocmprobe.checks.convolution import convolution
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.model.numerics import TRANSFORMS
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS, BadInput, Fact, Machine, Outcome, Results, Setting
from rocmprobe.report.repro.miopen_driver import batch_norm_line, convolution_line
from rocmprobe.report.repro.script import find_outcome, reproduction, script

SETTINGS = {setting.name: setting for setting, _, _ in all_settings()}
NATIVE = sorted(name for name, setting in SETTINGS.items() if not setting.bypass)
#: Checks with a script, except convolution.
OTHER_CHECKS = tuple(
    name
    for name, check in CHECKS.items()
    if check.script and check.function is not convolution and name not in CONVOLUTIONS
)
MAX_LINES = 70
#: Runs scripts one after the other, under the faults of a machine if one is named, and tells of each what
#: it printed and how it ended.
RUNNER = """
import contextlib, io, json, os, runpy, sys
scripts, machine, setting = json.loads(sys.argv[1])
def run(path):
    sys.argv, out = [path, "cpu"], io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(path, run_name="__main__")
            end = 0
        except SystemExit as stop:
            end = stop.code
        except RuntimeError as error:
            end = f"{type(error).__name__}: {error}"
    return out.getvalue(), end
with contextlib.ExitStack() as stack:
    if machine:
        from rocmprobe.simulate.machines import load_machine
        from rocmprobe.simulate.gpu import SimulatedGpu
        gpu = SimulatedGpu(load_machine(machine), setting, "cuda:0", 2)
        gpu.enter("first-call", None)
        stack.enter_context(gpu.faults()())
    print(json.dumps([run(path) for path in scripts]), flush=True)
# To take torch down takes a third as long as to import it.
os._exit(0)
"""


def results(
    setting: Setting,
    *outcomes: Outcome,
    backend: str = "miopen",
    variables: Optional[Mapping[str, str]] = None,
) -> Results:
    machine = Machine(
        variables={name: Fact(value, "environment") for name, value in (variables or {}).items()}
    )
    base = dataclasses.replace(sample.healthy_cpu(), machine=machine, settings=(setting,), outcomes=outcomes)
    return dataclasses.replace(base, options={"targets": [{"device": "cuda:0", "backend": backend}]})


def asked(
    problem: Optional[Problem] = None, direction: Optional[str] = None, setting: str = "default",
    check: str = "convolution", state: str = "pass", **rest: Any,
) -> Outcome:  # fmt: skip
    rung = "conv" if check == "convolution" else "train" if check == "training-step" else check
    return sample.outcome(setting, check, rung, state, problem=problem, direction=direction, **rest)


def exactly_wrong(outcome: Outcome) -> Outcome:
    return dataclasses.replace(outcome, state="wrong", numerics={"exact": False})


def rerun(folder: Path, codes: list[str], machine: str = "", setting: str = "") -> list[tuple[str, Any]]:
    """What each script printed, and how it ended."""
    paths = []
    for number, code in enumerate(codes):
        paths.append(str(folder / f"repro{number}.py"))
        Path(paths[-1]).write_text(code)
    ask = json.dumps([paths, machine, setting])
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, ask], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [(printed, end) for printed, end in json.loads(done.stdout)]


def measured(printed: str, name: str) -> list[float]:
    return [float(number) for number in re.findall(rf"\b{name}=([^,\s]+)", printed)]


#: Numbers of outcomes that are wrong in different ways.
WRONG: tuple[Mapping[str, Any], ...] = (
    {"max_ratio": 1.0, "max_ratio_limit": 0.1},
    {"max_ratio": 1.0, "max_ratio_limit": 0.1, "owed": TRANSFORMS, "worst": {"reference": 3.0}},
    {"bound_ratio": 2.0}, {"exact": False}, {"exact": False, "owed": TRANSFORMS},
    {"exact": True, "cancelling": False}, {"rms_range": "much", "worst": 3},
)  # fmt: skip


class TestSize:
    @settings(max_examples=examples(200))
    @given(any_problem(), st.sampled_from(DIRECTIONS), st.sampled_from(NATIVE), st.sampled_from(WRONG))
    def test_every_problem_direction_setting_and_failure_fits(
        self, problem: Problem, direction: str, setting: str, numerics: Mapping[str, Any]
    ) -> None:
        outcome = asked(problem, direction, setting, state="wrong", numerics=numerics)
        found = results(SETTINGS[setting], outcome, variables={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})
        code = script(found, outcome)
        compile(code, "repro.py", "exec")
        assert len(code.splitlines()) <= MAX_LINES + len(SETTINGS[setting].env)
        assert "rocmprobe" not in code
        compile(reproduction(found, outcome.id), "repro.py", "exec")

    @pytest.mark.parametrize("check", OTHER_CHECKS)
    @pytest.mark.parametrize("setting", ["default", "naive-only", "immediate"])
    def test_so_does_every_other_check(self, check: str, setting: str) -> None:
        outcome = asked(setting=setting, check=check)
        code = script(results(SETTINGS[setting], outcome), outcome)
        compile(code, "repro.py", "exec")
        assert len(code.splitlines()) <= MAX_LINES


PROBLEMS = (
    "conv2d-fp32-n2-c8-i12x11-k6-f3x2-s2x1-p1-d1x2-bias",
    "conv2d-bf16-n2-c8-i9x9-k8-f3x3-p1-g2-bias-nhwc",
    "conv1d-fp32-n1-c4-i19-k6-f5-p2",
    "conv3d-fp64-n1-c4-i5x6x7-k4-f3x3x3-p1-noncontiguous",
    "conv_transpose2d-fp32-n1-c6-i7x8-k4-f3x3-s2-p1-o1-g2-bias",
    "conv_transpose3d-fp32-n1-c2-i3x4x5-k3-f2x3x2-s2",
)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    arguments = [f"--problem={text}" for text in PROBLEMS]
    return run(
        tmp_path_factory.mktemp("healthy") / "out", "--device", "cpu", "--settings", "vendor-off",
        *(f"--only={check}" for check in ("convolution", "convolution-kinds", *OTHER_CHECKS)), *arguments,
    )  # fmt: skip


class TestRight:
    @pytest.mark.thorough
    def test_it_passes_with_the_errors_of_the_run(self, healthy: Run, tmp_path: Path) -> None:
        outcomes = [each for each in healthy.results.outcomes if each.setting == "default"]
        # An older torch has no half precision on a CPU. Its own bfloat16 convolution is less exact than a sum
        # in float32.
        outcomes = [each for each in outcomes if each.state == "pass"]
        asked = {"convolution", "convolution-kinds", *OTHER_CHECKS}
        assert {each.check for each in outcomes} == asked
        told = rerun(tmp_path, [script(healthy.results, each) for each in outcomes])
        for outcome, (printed, end) in zip(outcomes, told):
            assert (end, printed[:5]) == (0, "pass "), (outcome.id, printed, end)
            for name in ("max_ratio", "rms_range", "max_error"):
                expected = outcome.numerics.get(name)
                if expected is not None:
                    found = measured(printed, name)
                    assert any(each == pytest.approx(expected, rel=1e-4) for each in found), outcome.id

    @pytest.mark.thorough
    def test_the_exact_tier_passes_on_a_machine_that_is_right(self, tmp_path: Path) -> None:
        outcomes = [
            exactly_wrong(asked(parse_problem(text), direction))
            for text in PROBLEMS
            for direction in DIRECTIONS
        ]
        outcomes.append(exactly_wrong(asked(check="gemm")))
        found = results(SETTINGS["default"], *outcomes)
        told = rerun(tmp_path, [script(found, each) for each in outcomes])
        lines = [(end, line) for printed, end in told for line in printed.splitlines()]
        assert {(end, line.split()[0], line.split()[2]) for end, line in lines} == {(0, "pass", "unequal=0,")}


HALF = "conv2d-fp16-n1-c4-i8x8-k4-f3x3"
SINGLE = "conv2d-fp32-n1-c4-i8x8-k4-f3x3"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("broken")
    machine_file(
        folder / "machine.toml",
        {
            "library": "miopen", "effect": "raise", "message": "miopenStatusUnknownError",
            "dtypes": ["float32"], "directions": ["fwd", "bwd-data"],
        },
        {"library": "miopen", "effect": "wrong", "dtypes": ["float16"], "directions": ["bwd-weights"]},
        {"library": "rocblas", "effect": "wrong", "dtypes": ["float16"], "settings": ["default"]},
        {
            "library": "rocblas", "effect": "wrong", "dtypes": ["float32"], "directions": ["fwd"],
            "settings": ["vendor-off"],
        },
    )  # fmt: skip
    return run(
        folder / "out", "--simulate", folder / "machine.toml", "--only", "convolution", "--only", "gemm",
        "--settings", "vendor-off", "--problem", HALF, "--problem", SINGLE,
    )  # fmt: skip


class TestFailing:
    @pytest.mark.thorough
    @pytest.mark.parametrize("setting", ["default", "vendor-off"])
    def test_it_ends_as_the_outcome_did(self, broken: Run, tmp_path: Path, setting: str) -> None:
        found = broken.results
        # Without MIOpen, float16 is blocked: there it stands on GEMM.
        outcomes = [each for each in found.outcomes if each.setting == setting and each.state != "blocked"]
        # torch 1.13.1 has no half precision on a CPU.
        outcomes = [each for each in outcomes if each.state != "n/a"]
        states = {each.state for each in outcomes}
        assert states >= ({"error", "wrong", "pass"} if setting == "default" else {"wrong", "pass"})
        told = rerun(
            tmp_path, [reproduction(found, each.id) for each in outcomes],
            str(broken.folder.with_name("machine.toml")), setting,
        )  # fmt: skip
        for outcome, (printed, end) in zip(outcomes, told):
            if outcome.state == "error":
                assert end == outcome.attempts[-1].message == "RuntimeError: miopenStatusUnknownError"
                continue
            states = {line.partition(" ")[0] for line in printed.splitlines()}
            assert ("wrong" in states, end) == (outcome.state == "wrong", int(outcome.state == "wrong")), (
                outcome.id
            )
            if "max_ratio" in outcome.numerics:
                found = measured(printed, "max_ratio")
                assert pytest.approx(outcome.numerics["max_ratio"], rel=1e-5) in found, outcome.id


def code_for(setting: Union[str, Setting], check: str = "convolution", **rest: Any) -> str:
    setting = SETTINGS[setting] if isinstance(setting, str) else setting
    convolves = check not in OTHER_CHECKS
    outcome = asked(*((sample.PROBLEMS[0], "fwd") if convolves else ()), setting=setting.name, check=check)
    return reproduction(results(setting, outcome, **rest), outcome.id)


DB = {"MIOPEN_FIND_MODE": "2", "MIOPEN_USER_DB_PATH": "/db"}
SENDS = dataclasses.replace(SETTINGS["default"], name="batch-norm-pytorch", pytorch_layers=("batch_norm",))
OWN_DB = dataclasses.replace(SETTINGS["default"], env={"MIOPEN_USER_DB_PATH": "/db"})
LATE = {"MIOPEN_USER_DB_PATH": "<home>/db", "LD_PRELOAD": "/lib/x.so"}
OFF = "torch.backends.cudnn.enabled = False"


class TestSetting:
    @pytest.mark.parametrize(
        ("setting", "fields", "present", "absent"),
        [
            pytest.param("as-found", {"variables": DB},
                         ["'MIOPEN_FIND_MODE': '2',", "'MIOPEN_USER_DB_PATH': '/db',"], ["mkdtemp"],
                         id="as-found has the user's variables and databases"),
            pytest.param(OWN_DB, {}, ["'MIOPEN_USER_DB_PATH': '/db'"], [], id="a setting's own folder stays"),
            pytest.param("default", {"variables": {"MIOPEN_FIND_MODE": "2"}},
                         ["for name in ['MIOPEN_FIND_MODE']:\n    os.environ.pop(name, None)",
                          "# env -u MIOPEN_FIND_MODE "], ["'MIOPEN_FIND_MODE': "],
                         id="other settings drop what no child inherits"),
            pytest.param("as-found", {"variables": LATE},
                         ["# Also set when the run started: MIOPEN_USER_DB_PATH, LD_PRELOAD\n"], ["<home>"],
                         id="redacted variables and variables that were set too late are named"),
            pytest.param("deterministic", {}, ["torch.backends.cudnn.deterministic = True"], [], id="a flag"),
            pytest.param("find-fast", {}, ["torch.backends.cudnn.benchmark = False"], [], id="benchmark"),
            pytest.param("immediate", {}, ["torch.backends.miopen.immediate = True"], [], id="immediate"),
            pytest.param("vendor-off", {}, [OFF], [], id="vendor-off"),
            pytest.param("cpu", {}, ["sys.argv[1:] else 'cpu'"], [], id="cpu"),
            pytest.param("default", {"backend": "cudnn"}, ["allow_tf32 = False"], ["MIOPEN_"],
                         id="fp32 of cuDNN is fp32"),
            pytest.param(SENDS, {"check": "batch-norm"}, [OFF], [], id="a layer that goes to PyTorch"),
            pytest.param(SENDS, {"check": "gemm"}, [], [OFF], id="a check that stays in the library"),
            pytest.param("bypass", {"check": "gemm"}, ["torch.bmm"], [], id="the bypass below convolution"),
        ],
    )  # fmt: skip
    def test_code(
        self, setting: Union[str, Setting], fields: Mapping[str, Any], present: list[str], absent: list[str]
    ) -> None:
        code = code_for(setting, **fields)
        assert [each for each in present if each not in code] == []
        assert [each for each in absent if each in code] == []

    def test_variables_stand_before_torch(self) -> None:
        code = code_for("naive-only", variables={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})
        before = code[: code.index("import torch")]
        for name, value in {**SETTINGS["naive-only"].env, "HSA_OVERRIDE_GFX_VERSION": "10.3.0"}.items():
            assert f"'{name}': '{value}'," in before
        assert "'MIOPEN_USER_DB_PATH': tempfile.mkdtemp()," in before

    def test_a_setting_of_the_bypass_needs_rocmprobe(self) -> None:
        with pytest.raises(BadInput, match="needs rocmprobe"):
            code_for("bypass")

    @pytest.mark.parametrize(
        "check", ["lstm", "copy", "training-step", "autocast-step", "throughput", "memory", "gradients"]
    )
    def test_a_check_without_a_script_says_so(self, check: str) -> None:
        told = f"no stand-alone script.*`rocmprobe run --settings default --only {check}` repeats the check"
        with pytest.raises(BadInput, match=told):
            code_for("default", check)

    def test_a_test_without_torch_gets_the_driver_line(self) -> None:
        with pytest.raises(BadInput, match=r"ran without torch.*MIOpenDriver conv -n 2 -c 16"):
            code_for("default", "miopen-direct")


class TestForeignText:
    EVIL = 'x"]}); import os; os.abort()\n\rraise SystemExit(7)\x0c\u2028"""\\'

    def test_it_stays_text_and_the_script_runs_alone_in_a_process(self, tmp_path: Path) -> None:
        env = {**SETTINGS["gemm-only"].env, "MIOPEN_X": self.EVIL, self.EVIL: "1", "if": "1"}
        setting = dataclasses.replace(SETTINGS["gemm-only"], env=env)
        outcome = asked(sample.PROBLEMS[0], "bwd-weights", setting.name, state="error", message=self.EVIL)
        outcome = dataclasses.replace(outcome, id=outcome.id + self.EVIL, native_isa=self.EVIL)
        path = tmp_path / "repro.py"
        path.write_text(reproduction(results(setting, outcome), outcome.id))
        done = subprocess.run(
            [sys.executable, "-I", str(path), "cpu"], capture_output=True, text=True, check=False
        )
        # torch prints a warning if NumPy is missing.
        assert "Traceback" not in done.stderr
        assert (done.returncode, done.stdout.count("pass ")) == (0, 4)

    @pytest.mark.parametrize(
        "change", [{"device": 'cpu"; x'}, {"direction": "up"}, {"problem": "conv9d"}, {"setting": "gone"}]
    )
    def test_what_is_none_of_the_known_words_is_refused(self, change: Mapping[str, Any]) -> None:
        outcome = dataclasses.replace(asked(sample.PROBLEMS[0], "fwd"), **change)
        with pytest.raises(BadInput):
            script(results(SETTINGS["default"], outcome), outcome)

    def test_a_dtype_is_one_of_the_known(self) -> None:
        outcome = dataclasses.replace(asked(check="gemm"), dtype="float32; import os")
        with pytest.raises(BadInput, match="not a dtype"):
            script(results(SETTINGS["default"], outcome), outcome)


class TestFinding:
    RESULTS = sample.rdna1()

    def test_by_its_id_even_where_others_begin_so(self) -> None:
        outcome = self.RESULTS.outcomes[0]
        longer = dataclasses.replace(outcome, id=outcome.id + "x")
        both = dataclasses.replace(self.RESULTS, outcomes=(outcome, longer))
        assert find_outcome(both, outcome.id) == outcome

    def test_by_a_part_that_no_other_has(self) -> None:
        text = f"gemm-only/convolution/{sample.PROBLEMS[4].text}/bwd-data"
        assert find_outcome(self.RESULTS, text).id == f"cuda:0/{text}"

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("gemm-only/convolution/conv3d", r"3 outcomes.*conv3d.*/fwd .*/bwd-data .*/bwd-weights"),
            ("/", r"and \d+ more"),
            ("cuda:0/default/ladder/gemn", r"(?s)no outcome.*nearest.*ladder/gemm"),
            ("§§", r"no outcome matches '§§'$"),
        ],
        ids=["several are listed", "many are cut", "the nearest are named", "nothing is near to nonsense"],
    )
    def test_refused(self, text: str, told: str) -> None:
        with pytest.raises(BadInput, match=told) as refused:
            find_outcome(self.RESULTS, text)
        # Failures come first.
        states = {outcome.id: outcome.fails for outcome in self.RESULTS.outcomes}
        listed = [states[word] for word in str(refused.value).split() if word in states]
        assert text != "/" or listed == 5 * [True]


class TestDriverLine:
    @pytest.mark.parametrize(
        ("problem", "direction", "line"),
        [
            # As MIOpen 3.4 printed it for this problem.
            ("conv2d-fp32-n1-c3-i8x8-k4-f3x3-p1", "fwd",
             "conv -n 1 -c 3 -H 8 -W 8 -k 4 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"),
            ("conv2d-fp16-n2-c8-i9x7-k4-f3x1-s2x1-p1x0-d1x2", "bwd-weights",
             "convfp16 -n 2 -c 8 -H 9 -W 7 -k 4 -y 3 -x 1 -p 1 -q 0 -u 2 -v 1 -l 1 -j 2"
             " -m conv -g 1 -F 4 -t 1"),
            ("conv1d-bf16-n1-c4-i20-k6-f5-s3-p2", "bwd-data",
             "convbfp16 -n 1 -c 4 -H 1 -W 20 -k 6 -y 1 -x 5 -p 0 -q 2 -u 1 -v 3 -l 1 -j 1"
             " -m conv -g 1 -F 2 -t 1"),
            ("conv3d-fp32-n1-c4-i5x6x7-k8-f3x2x1-g2", "fwd",
             "conv -n 1 -c 4 --in_d 5 -H 6 -W 7 -k 8 --fil_d 3 -y 2 -x 1 --pad_d 0 -p 0 -q 0"
             " --conv_stride_d 1 -u 1 -v 1 --dilation_d 1 -l 1 -j 1 --spatial_dim 3 -m conv -g 2 -F 1 -t 1"),
            ("conv2d-fp32-n1-c3-i8x8-k4-f1x1-nhwc", "fwd",
             "conv -n 1 -c 3 -H 8 -W 8 -k 4 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 --in_layout NHWC"
             " --fil_layout NHWC --out_layout NHWC -m conv -g 1 -F 1 -t 1"),
            ("conv_transpose2d-fp32-n1-c6-i4x4-k2-f3x3-s2-p1-o1", "fwd",
             "conv -n 1 -c 2 -H 8 -W 8 -k 6 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -l 1 -j 1 -m conv -g 1 -F 2 -t 1"),
            ("conv_transpose2d-fp32-n1-c6-i4x4-k2-f3x3-s2-p1-o1", "bwd-data",
             "conv -n 1 -c 2 -H 8 -W 8 -k 6 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"),
        ],
    )  # fmt: skip
    def test_the_problem_in_the_driver_s_words(self, problem: str, direction: str, line: str) -> None:
        assert convolution_line(parse_problem(problem), direction, (2, 4), False) == (
            f"MIOpenDriver {line}",
            "",
        )

    @pytest.mark.parametrize(
        ("problem", "torch", "why"),
        [
            ("conv2d-fp64-n1-c1-i5-k1-f1", (2, 4), "does not send"),
            ("conv2d-fp32-n1-c2-i5-k2-f2-d2-g2", (2, 4), "does not send"),
            ("conv2d-bf16-n1-c2-i5-k2-f2-bias", (1, 13), "does not send"),
            ("conv2d-bf16-n1-c2-i5-k2-f2-bias", (2, 4), ""),
            ("conv_transpose2d-fp32-n1-c2-i5-k2-f2-d2-o1", (2, 4), "output padding"),
        ],
    )
    def test_there_is_none_where_the_problem_does_not_enter_miopen(
        self, problem: str, torch: tuple[int, int], why: str
    ) -> None:
        line, reason = convolution_line(parse_problem(problem), "fwd", torch, False)
        assert bool(line) == (not why)
        assert why in reason

    def test_what_pytorch_keeps_from_miopen_is_asked_without_it(self) -> None:
        kept = parse_problem("conv2d-fp32-n1-c4-i9x9-k4-f3x3-d2-g2")
        assert convolution_line(kept, "fwd", (2, 4), False)[0] == ""
        assert convolution_line(kept, "fwd", None, False)[0].startswith("MIOpenDriver conv -n 1")
        double = parse_problem("conv2d-fp64-n1-c4-i9x9-k4-f3x3")
        assert convolution_line(double, "fwd", None, False) == (
            "", "the driver has no convolution of this dtype"
        )  # fmt: skip

    def test_immediate_mode(self) -> None:
        line, _ = convolution_line(sample.PROBLEMS[1], "fwd", (2, 4), True)
        assert line.endswith(" -S 0")

    def test_batch_norm_in_fp32_only(self) -> None:
        assert batch_norm_line("float32")[0].startswith("MIOpenDriver bnorm -n 4 -c 16 ")
        assert batch_norm_line("float16")[0] == ""

    @pytest.mark.parametrize(
        ("setting", "check", "backend", "begin"),
        [
            ("no-winograd", "convolution", "miopen", "MIOPEN_DEBUG_CONV_WINOGRAD=0 MIOpenDriver conv -n 2 "),
            ("immediate", "convolution", "miopen", "MIOpenDriver conv -n 2 "),
            ("default", "batch-norm", "miopen", "MIOpenDriver bnorm "),
            ("default", "gemm", "miopen", "no MIOpenDriver line: this check does not call MIOpen"),
            ("vendor-off", "convolution", "miopen", "no MIOpenDriver line: under this setting"),
            ("cpu", "convolution", "miopen", "no MIOpenDriver line: MIOpen does not run here"),
            ("default", "convolution", "cudnn", "no MIOpenDriver line: MIOpen does not run here"),
        ],
    )
    def test_it_is_a_comment_of_the_script(self, setting: str, check: str, backend: str, begin: str) -> None:
        convolution = check == "convolution"
        outcome = asked(
            sample.PROBLEMS[0] if convolution else None, "fwd" if convolution else None, setting, check
        )
        told = reproduction(results(SETTINGS[setting], outcome, backend=backend), outcome.id)
        (line,) = (each for each in told.splitlines() if "MIOpenDriver" in each)
        assert line.startswith(f"# {begin}")
