"""Simulated machines, shipped and of the tests: which faults strike where, and files that are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from runs import all_machines, named_machine

from rocmprobe.checks.tools.case import Case
from rocmprobe.knowledge.gpus import gfx_of, isa_of_override, marketing_name
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.model.problems import LEVELS, problems
from rocmprobe.model.results import DIRECTIONS, BadInput, Machine
from rocmprobe.model.results_file import from_json, to_json
from rocmprobe.simulate.gpu import SimulatedGpu
from rocmprobe.simulate.machines import (
    EFFECTS,
    Fault,
    SimulatedMachine,
    load_machine,
    machine_names,
    torch_version,
)

WINOGRAD_OFF = {"MIOPEN_DEBUG_CONV_WINOGRAD": "0"}
GEMM_UNSET = {"MIOPEN_DEBUG_CONV_GEMM": False}
USER = {"MIOPEN_DEBUG_CONV_GEMM": "", "MIOPEN_FIND_MODE": "30"}
PROBLEM = "conv2d-fp16-n2-c16-i28x28-k32-f3x3-p1"
SETTINGS = {setting.name for setting, _, _ in all_settings()}


class TestEveryMachine:
    @pytest.mark.parametrize("name", all_machines())
    def test_facts_agree_with_each_other(self, name):
        machine = load_machine(name).machine
        for gpu in machine.gpus:
            assert gfx_of(gpu.pci_id.value) == gpu.native_isa.value
            assert marketing_name(gpu.pci_id.value, gpu.revision.value) in (None, gpu.name.value)
            override = machine.variables.get("HSA_OVERRIDE_GFX_VERSION")
            effective = isa_of_override(override.value) if override else gpu.native_isa.value
            assert gpu.effective_isa.value == effective
        assert machine.value("torch.kind") == "rocm"
        assert torch_version(machine)

    @pytest.mark.parametrize("name", all_machines())
    def test_everything_has_a_source(self, name):
        found = load_machine(name)
        assert found.name == Path(name).stem
        assert found.summary
        assert found.source
        assert all(fault.source for fault in found.faults)
        assert all(fact.source == f"simulated machine {found.name}" for fact in found.machine.facts.values())

    @pytest.mark.parametrize("name", all_machines())
    def test_its_faults_name_settings_that_exist(self, name):
        for fault in load_machine(name).faults:
            assert set(fault.settings) <= SETTINGS

    @pytest.mark.parametrize("name", all_machines())
    def test_its_faulty_solvers_are_tried_somewhere(self, name):
        machine = load_machine(name)
        tried = {
            solver
            for problem in problems(LEVELS[-1], "native")
            for direction in DIRECTIONS
            for solver in machine.in_play(problem.text, direction, "cuda:0", {})
        }
        for fault in machine.faults:
            one_by_one = {"GemmFwd1x1_0_2", "GemmBwd1x1_stride2"}  # strided 1x1 is no native problem
            assert set(fault.solver) - one_by_one <= tried

    @pytest.mark.parametrize("name", all_machines())
    def test_it_reaches_a_child_process_whole(self, name):
        found = load_machine(name)
        assert from_json(SimulatedMachine, json.loads(json.dumps(to_json(found)))) == found


def test_the_first_machines_are_there():
    assert {"rdna1-rocm52-conv-dead", "healthy-gfx1100"} <= set(machine_names())


class TestMatching:
    @pytest.mark.parametrize(
        ("rule", "strikes"),
        [
            ({}, True),
            ({"settings": ("default",)}, True),
            ({"settings": ("bypass", "vendor-off")}, False),
            ({"dtypes": ("float16",)}, True),
            ({"dtypes": ("float32", "bfloat16")}, False),
            ({"directions": ("fwd",)}, True),
            ({"directions": ("bwd-data", "bwd-weights")}, False),
            ({"problem": "-f3x3"}, True),
            ({"problem": "^conv2d-fp16"}, True),
            ({"problem": "-f1x1|-g\\d+"}, False),
            ({"unless": WINOGRAD_OFF}, True),
            ({"unless": GEMM_UNSET}, False),
            ({"when": GEMM_UNSET}, True),
            ({"when": WINOGRAD_OFF}, False),
            ({"when": {"MIOPEN_DEBUG_CONV_WINOGRAD": ".*"}}, False),
            ({"dtypes": ("float16",), "directions": ("bwd-data",)}, False),
        ],
    )
    def test_every_condition_must_hold(self, rule, strikes):
        fault = Fault("miopen", "raise", **rule)
        assert fault.matches("default", PROBLEM, "float16", "fwd", {}) == strikes

    @pytest.mark.parametrize(
        ("rule", "variables", "strikes"),
        [
            # A variable prevents the fault only with its value.
            ({"unless": WINOGRAD_OFF}, WINOGRAD_OFF, False),
            ({"unless": WINOGRAD_OFF}, {"MIOPEN_DEBUG_CONV_WINOGRAD": "1"}, True),
            # An empty value is a value.
            ({"unless": GEMM_UNSET}, USER, True),
            # A pattern must match the whole value.
            ({"when": {"MIOPEN_FIND_MODE": "3"}}, USER, False),
            ({"when": {"MIOPEN_FIND_MODE": "3."}}, USER, True),
            ({"when": {"MIOPEN_FIND_MODE": "1|30"}}, USER, True),
            ({"when": {"MIOPEN_FIND_MODE": ""}}, USER, False),
            # All variables of ``when`` must match, and any of ``unless`` prevents the fault.
            ({"when": {"MIOPEN_FIND_MODE": "30", **WINOGRAD_OFF}}, USER, False),
            ({"unless": {"MIOPEN_FIND_MODE": "30", **WINOGRAD_OFF}}, USER, False),
        ],
    )
    def test_variables(self, rule, variables, strikes):
        fault = Fault("miopen", "raise", **rule)
        assert fault.matches("default", PROBLEM, "float16", "fwd", variables) == strikes

    def test_the_machine_with_broken_fp16(self):
        machine = load_machine(named_machine("rdna1-fp16-broken"))
        (fault,) = machine.faults
        assert fault.matches("default", PROBLEM, "float16", "fwd", {})
        assert set(fault.solver) & set(machine.in_play(PROBLEM, "fwd", "cuda:0", {}))
        assert not set(fault.solver) & set(machine.in_play(PROBLEM, "fwd", "cuda:0", WINOGRAD_OFF))
        assert not fault.matches("default", PROBLEM.replace("fp16", "fp32"), "float32", "fwd", {})


HEAD = 'summary = "s"\nsource = "t"\n'
FAULT = HEAD + '[[faults]]\nlibrary = "miopen"\neffect = "raise"\n'


class TestBadFiles:
    def refused(self, path):
        with pytest.raises(BadInput) as refusal:
            load_machine(str(path))
        message = str(refusal.value)
        assert str(path) in message
        assert "\n" not in message
        return message

    def test_an_unknown_name_says_the_nearest_and_where_all_are(self):
        assert "did you mean healthy-gfx1100?" in self.refused("healthy-gfx110")
        assert "rocmprobe list machines" in self.refused("gfx-none")

    def test_missing(self, tmp_path):
        assert "No such file" in self.refused(tmp_path / "none.toml")

    def test_a_folder(self, tmp_path):
        (tmp_path / "folder.toml").mkdir()
        assert "directory" in self.refused(tmp_path / "folder.toml")

    def test_not_text(self, tmp_path):
        path = tmp_path / "binary.toml"
        path.write_bytes(b"\xff\xfe\x00")
        assert "UTF-8" in self.refused(path)

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            ("summary = ", "Invalid value"),
            ("a = " + "[" * 5000, ""),
            ("", "summary"),
            ('summary = "s"', "source"),
            ('summary = 1\nsource = "t"', "summary"),
            (HEAD + "fault = 1", "'fault'"),
            (HEAD + "gpus = 3", "gpus"),
            (HEAD + "gpus = [1]", "gpus"),
            (HEAD + "[[gpus]]\ncolour = 'red'", "colour"),
            (HEAD + "facts = [1]", "facts"),
            (HEAD + "[facts]\n'torch.kind' = {}", "torch.kind"),
            (HEAD + "[facts]\n'torch.version' = 2.4", "torch.version"),
            (HEAD + "[[gpus]]\nnative_isa = 1010", "native_isa"),
            (HEAD + "[facts]\nodd = inf", "infinite"),
            (HEAD + "variables = 'x'", "variables"),
            (HEAD + "faults = 'x'", "faults"),
            (HEAD + "[budgets]\nsteady = 'long'", "steady"),
            (HEAD + "[budgets]\nsteady = 0", "steady"),
            (HEAD + "[[faults]]\neffect = 'raise'", "library"),
            (FAULT.replace("miopen", "cublas"), "cublas"),
            (FAULT.replace("raise", "melt"), "melt"),
            (FAULT + "colour = 'red'", "colour"),
            (FAULT + "dtypes = 'float16'", "dtypes"),
            (FAULT + "dtypes = ['fp16']", "fp16"),
            (FAULT + "dtypes = [16]", "dtypes"),
            (FAULT + "directions = ['forward']", "forward"),
            (FAULT + "problem = '('", "regular expression"),
            (FAULT + "problem = 3", "problem"),
            (FAULT + "operator = '('", "regular expression"),
            (FAULT + "operator = 3", "operator"),
            (FAULT + "unless = { MIOPEN_FIND_MODE = 1 }", "unless"),
            (FAULT + "unless = { MIOPEN_FIND_MODE = true }", "or false"),
            (FAULT + "unless = { MIOPEN_FIND_MODE = '(' }", "regular expression"),
            (FAULT + "when = { MIOPEN_FIND_MODE = '(' }", "regular expression"),
            (FAULT + "when = 'MIOPEN_FIND_MODE'", "when"),
            (FAULT + "unless_torch = '('", "regular expression"),
            (FAULT + "unless_torch = 2.1", "unless_torch"),
            (FAULT + "signal = 'SIGNOTHING'", "SIGNOTHING"),
            (FAULT + "phase = 'lunch'", "lunch"),
            (FAULT.replace("raise", "wrong") + "phase = 'teardown'", "teardown"),
            (HEAD + "fresh = 1", "fresh"),
            (HEAD + "solvers = 'fft'", "solvers"),
            (HEAD + "solvers = ['fft', 'dft']", "'dft'"),
            (FAULT + "solver = 'fft'", "solver"),
            (FAULT + "solver = ['dft']", "'dft'"),
            (FAULT + "solver = ['fft']\nphase = 'teardown'", "'solver' needs a fault"),
            (FAULT + "solver = ['fft']\noperator = 'batch_norm'", "'solver' needs a fault"),
            (FAULT.replace("miopen", "rocblas") + "solver = ['fft']", "'solver' needs a fault"),
            (FAULT + "gpu_busy_percent = 101", "gpu_busy_percent"),
            (FAULT + "chance = 'often'", "chance"),
            (FAULT + "chance = true", "chance"),
            (FAULT + "chance = 1.5", "chance"),
            (FAULT + "stderr = { fwd = 3 }", "stderr"),
        ],
    )
    def test_the_place_is_named(self, tmp_path, text, named):
        path = tmp_path / "machine.toml"
        path.write_text(text)
        assert named in self.refused(path)


@pytest.mark.parametrize(
    ("version", "strikes"), [("2.4.0+rocm6.1", True), ("2.10.0+rocm7.0", False), ("2.1", True)]
)
def test_a_wheel_that_cures_a_fault(tmp_path, version, strikes):
    path = tmp_path / "machine.toml"
    facts = f'[facts]\n"torch.version" = "{version}"\n'
    path.write_text(HEAD + facts + FAULT[len(HEAD) :] + "unless_torch = '2\\.1[0-9]\\..*'\n")
    gpu = SimulatedGpu(load_machine(str(path)), "default", "cuda:0", 2)
    assert bool(list(gpu.faults_of("miopen"))) == strikes


def test_its_own_choice_of_solvers(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('solvers = ["fft", "GemmFwdRest", "GemmBwdRest"]\n' + HEAD)
    text = PROBLEM.replace("fp16", "fp32")
    assert load_machine(str(path)).in_play(text, "fwd", "cuda:0", {}) == ("GemmFwdRest", "fft")


def test_a_file_of_one_s_own(tmp_path):
    path = tmp_path / "mine.toml"
    fault = FAULT + "chance = 1\nsignal = 'SIGABRT'\nphase = 'steady'\n"
    path.write_text(fault + "[budgets]\nsteady = 0.5\n[variables]\nA = 'b'\n")
    found = load_machine(str(path))
    assert found.name == "mine"
    assert found.faults[0].phase == "steady"
    assert not found.fresh
    assert found.budgets == {"steady": 0.5}
    assert found.machine.variables["A"].value == "b"


@pytest.mark.parametrize("effect", EFFECTS)
def test_every_effect_is_allowed(tmp_path, effect):
    path = tmp_path / "machine.toml"
    seconds = "seconds = 60\n" if effect in ("search", "compile") else ""
    path.write_text(FAULT.replace("raise", effect) + seconds)
    assert load_machine(str(path)).faults[0].effect == effect


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ('library = "miopen"\neffect = "search"', "'search' and 'compile' need 'seconds' above 0"),
        ('library = "miopen"\neffect = "hang"\nseconds = 3', "other effects cannot have 'seconds'"),
        ('library = "hip"\neffect = "search"\nseconds = 3', "'search' needs a fault"),
        (
            'library = "triton"\neffect = "wrong"\noperator = "mm"',
            "operator 'mm' is not one of kernel, inductor",
        ),
    ],
)
def test_a_search_or_a_kernel_that_could_never_be_is_refused(tmp_path, fault, why):
    path = tmp_path / "machine.toml"
    path.write_text(f'summary = "s"\nsource = "s"\n[[faults]]\n{fault}\n')
    with pytest.raises(BadInput, match=why):
        load_machine(str(path))


def test_only_a_phase_without_library_calls_brings_its_faults_and_only_once():
    faults = tuple(Fault("miopen", "raise", phase=phase) for phase in ("prepare", "yardstick", "steady"))
    gpu = SimulatedGpu(replace(load_machine("healthy-gfx1100"), faults=faults), "default", "cuda:0", 2)
    case = Case("cuda:0", "default", "gemm", "float32")
    with pytest.raises(RuntimeError):
        gpu.enter("prepare", case)
    gpu.report("first-call", case)
    assert not list(gpu.faults_of("miopen"))
    # After its first calls a check places its operands again.
    gpu.report("prepare", case)
    gpu.report("steady", case)
    assert [fault.phase for fault in gpu.faults_of("miopen")] == ["steady"]
    with pytest.raises(RuntimeError):
        gpu.report("yardstick", case)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.13.1+rocm5.2", (1, 13)), ("2.7.0", (2, 7)), ("nightly", None), (None, None), ("", None)],
)
def test_torch_version(version, expected):
    from rocmprobe.model.results import Fact

    assert torch_version(Machine(facts={"torch.version": Fact(version, "x")})) == expected
    assert torch_version(Machine()) is None
