"""Runs of the driver capi against the stand-in libraries, in a Python that has no torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import CHECKOUT, Run, cli, rocmprobe, run
from stand_in_libraries import FILES, build, python_without_torch

from rocmprobe.backends.capi import places
from rocmprobe.backends.capi.miopen import COPY_TENSOR
from rocmprobe.backends.capi.operator_checks import OPERATOR_CHECKS

#: The stand-in computes its forward and backward data by Winograd.
PROBLEM = "conv2d-fp32-n1-c4-i8x8-k4-f3x3-p1"
#: The stand-in's solvers that apply to it.
SOLVERS = (
    "ConvBinWinogradRxSf2x3", "ConvDirectNaiveConvFwd", "ConvDirectNaiveConvBwd", "ConvDirectNaiveConvWrw",
    "GemmFwdRest", "GemmBwdRest", "GemmWrwUniversal",
)  # fmt: skip
DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("libraries"))


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return python_without_torch(tmp_path_factory.mktemp("python"))


@pytest.fixture
def asked(tmp_path, libraries, python):
    """A run of the small problem with the stand-in on LD_LIBRARY_PATH."""

    def ask(*arguments, **variables):
        env = {"LD_LIBRARY_PATH": str(libraries), **variables}
        folder = tmp_path / "out"
        return Run(
            folder, cli("run", "--out", folder, "--problem", PROBLEM, *arguments, env=env, python=python)
        )

    return ask


def of(found, check, setting="default", direction=None):
    what = PROBLEM if check == "convolution" else "float32"
    parts = ("cuda:0", "capi", setting, check, what, direction)
    return found.outcomes["/".join(part for part in parts if part)]


@pytest.mark.thorough
def test_the_whole_ladder_without_torch(asked, libraries):
    done = asked("--device", "cuda:0", "--settings", "as-found,find-2.0,immediate,gemm-only")
    assert done.ended.returncode == 0, done.ended.stderr
    results = done.results
    assert {outcome.driver for outcome in results.outcomes} == {"capi"}
    asked_whole = {name: state for name, state in done.states.items() if "/solver/" not in name}
    # The stand-in refuses this plan.
    assert asked_whole.pop("cuda:0/capi/default/convolution-relu/float16") == "n/a"
    not_passed = {name: state for name, state in asked_whole.items() if state not in ("pass", "slow")}
    # No solver failed, so none is to be switched off.
    assert {name.split("/")[2] for name in not_passed} <= {"no-faulty-solvers"}, not_passed
    assert {name.split("/")[3] for name in asked_whole} == {
        "copy", "elementwise", "gemm", "convolution", "batch-norm", *OPERATOR_CHECKS,
    }  # fmt: skip
    assert {name.split("/")[4] for name in done.states if "/gemm/" in name} == {
        "float32", "float16", "bfloat16", "float64",
    }  # fmt: skip
    names = {setting.name for setting in results.settings}
    assert {"default", "find-2.0", "immediate", "gemm-only", "as-found"} <= names
    assert not names & {"bypass", "vendor-off", "cpu", "channels-last"}
    # A solver is run alone where default fails, or where all settings are asked for.
    assert not [name for name, state in done.states.items() if "/solver/" in name and state == "pass"]

    forward = of(done, "convolution", direction="fwd")
    assert (forward.solver, forward.algorithm) == ("ConvBinWinogradRxSf2x3", "Winograd")
    assert (forward.find_db, forward.effective_isa) == ("miss", "gfx1030")
    assert "miopenCreate: miopenStatusSuccess (0)" in forward.calls
    gemm = of(done, "convolution", "gemm-only", "fwd")
    assert (gemm.solver, gemm.workspace_bytes) == ("GemmFwdRest", 6912)
    for setting, call in (
        ("immediate", "miopenConvolutionForwardImmediate"), ("find-2.0", "miopenRunSolution")
    ):  # fmt: skip
        outcome = of(done, "convolution", setting, "fwd")
        assert outcome.solver == "ConvBinWinogradRxSf2x3"
        assert any(each.startswith(f"{call}: miopenStatusSuccess") for each in outcome.calls)

    trial = next(trial for trial in results.trials if trial.setting == "gemm-only")
    assert trial.start_method == "spawn"
    assert trial.library == "3.4.0"
    assert set(trial.mapped) == {"libamdhip64", "librocblas", "libMIOpen"}
    assert {len(paths) for paths in trial.mapped.values()} == {1}
    before, _, after = trial.log.partition("[rocmprobe] miopenFindConvolutionForwardAlgorithm\n")
    assert "FW Chosen Algorithm" in after
    assert "FW Chosen Algorithm" not in before
    assert results.recommendation.verdict == "native"
    assert "without PyTorch" in results.recommendation.sentence
    [target] = results.options["targets"]
    assert target["drivers"] == ["capi"]
    assert set(target["libraries"]) == set(trial.mapped)
    assert results.machine.value("capi.miopen") == "3.4.0"

    page = (done.folder / "report.html").read_text()
    assert "driver capi" in page
    assert str(libraries / FILES["miopen"]) in page

    refused = cli("repro", done.folder / "results.json", f"capi/default/convolution/{PROBLEM}/fwd")
    assert refused.returncode == 2
    assert "MIOpenDriver conv -n 1 -c 4" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.thorough
def test_one_solver_that_fails_is_cured_by_its_switch_though_batch_norm_is_not(asked, python):
    faults = {
        "LC_STAND_IN_WINOGRAD": "status:7",
        "LC_STAND_IN_FAULTS": "miopenBatchNormalizationForwardTraining=status:7",
    }
    checks = ("gemm", "convolution", "batch-norm", *(f"*/only-{solver}/solver/*" for solver in SOLVERS))
    only = [argument for check in checks for argument in ("--only", check)]
    done = asked("--settings", "default", *only, **faults)
    assert done.ended.returncode == 1
    forward = of(done, "convolution", direction="fwd")
    assert (forward.state, forward.cause) == ("error", "miopen-status")
    assert forward.evidence[0] == "miopenFindConvolutionForwardAlgorithm: miopenStatusUnknownError (7)"
    assert any("Code object build failed" in line for line in forward.evidence)
    assert len(forward.attempts) == 3
    recommendation = done.results.recommendation
    assert recommendation.verdict == "native-with-settings"
    assert recommendation.configuration.setting == "no-faulty-solvers"
    assert recommendation.configuration.env == {"MIOPEN_DEBUG_AMD_WINOGRAD_RXS_F2X3": "0"}
    assert of(done, "convolution", "no-winograd", "fwd").state == "slow"
    verified = cli(
        "run", "--verify", done.folder / "results.json", "--out", done.folder.parent / "verified",
        env={"LD_LIBRARY_PATH": str(Path(done.results.machine.value("capi.place"))), **faults},
        python=python,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert of(done, "batch-norm").state == "error"
    assert "under any of" not in recommendation.sentence
    assert (
        "Batch norm fails in MIOpen: a model with batch norm needs PyTorch's own kernels"
        in recommendation.sentence
    )
    convolution, batch_norm = recommendation.configuration.layers
    assert convolution == "convolution: MIOpen with MIOPEN_DEBUG_AMD_WINOGRAD_RXS_F2X3=0, correct"
    assert batch_norm.startswith("batch norm: fails in MIOpen. Use PyTorch's own kernels (not available in")


@pytest.mark.thorough
def test_where_everything_fails_it_says_what_only_a_torch_can_add(asked):
    faults = {f"LC_STAND_IN_{solver}": "status:7" for solver in ("WINOGRAD", "NAIVE", "GEMM")}
    done = asked("--purpose", "inference", "--skip", "batch-norm", **faults)
    assert done.ended.returncode == 1
    recommendation = done.results.recommendation
    assert recommendation.verdict == "none"
    assert "failed in MIOpen itself under all 9 tested setting(s)" in recommendation.sentence
    assert "only with PyTorch" in recommendation.sentence
    [finding] = [each for each in done.results.findings if each.id == "native-convolution"]
    assert finding.layer.startswith("miopen")
    assert "Install a ROCm build of torch" in finding.advice


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("faults", "check", "direction", "state", "cause", "after"),
    [
        ("miopenFindConvolutionForwardAlgorithm=abort", "convolution", "fwd", "crash", "SIGABRT",
         "miopenFindConvolutionForwardAlgorithm"),
        ("miopenCreate=segv", "batch-norm", None, "crash", "SIGSEGV", "miopenCreate"),
        ("rocblas_create_handle=abort", "gemm", None, "crash", "SIGABRT", "rocblas_create_handle"),
        ("miopenConvolutionForward=wrong", "convolution", "fwd", "wrong", None, None),
        ("rocblas_sgemm=status:6", "gemm", None, "error", "exception", None),
        ("hipMemset=status:98", "elementwise", None, "error", "device-error", None),
        ("miopenOpTensor=wrong", "tensor-op", None, "wrong", None, None),
        ("CopyTensor=abort", "tensor-copy", None, "crash", "SIGABRT", COPY_TENSOR[0]),
    ],
)  # fmt: skip
def test_each_fault_ends_as_the_right_outcome(asked, faults, check, direction, state, cause, after):
    done = asked(
        "--settings", "default,", "--purpose", "inference", "--only", check, LC_STAND_IN_FAULTS=faults
    )
    assert done.ended.returncode == 1
    outcome = of(done, check, direction=direction)
    assert (outcome.state, outcome.cause) == (state, cause)
    assert outcome.ending.get("after") == after
    if after:
        assert outcome.evidence[0].endswith(f", in {after}")
        assert outcome.calls[-1] == f"{after}: did not return"
        assert len(outcome.attempts) == 3


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "message"),
    [
        (("--driver", "capi"), {"LC_STAND_IN_DEVICES": "0"}, 3, "sees 0 device(s)"),
        (("--device", "cuda:3"), {}, 3, "--device cuda:3: HIP in"),
        (("--device", "all"), {"LC_STAND_IN_FAULTS": "hipInit=segv"}, 3,
         "HIP fails: the process that called it ended in hipInit: SIGSEGV"),
        (("--driver", "capi"), {"LC_STAND_IN_FAULTS": "hipGetDeviceCount=status:101"}, 3,
         "hipGetDeviceCount: hipErrorInvalidDevice (101)"),
        (("--device", "cpu"), {}, 3, "which need a GPU"),
        (("--device", "gpu"), {}, 2, "unknown; use auto, cpu, cuda:N or all"),
        (("--libraries", "nowhere"), {}, 2, "neither a folder nor one of"),
        (("--libraries", "torch"), {}, 3, "no libamdhip64 with a libMIOpen at the place 'torch'"),
        (("--libraries", "/"), {}, 3, "this folder has no libamdhip64 and no libMIOpen"),
        (("--settings", "bypass"), {}, 2, "by the driver capi has no setting 'bypass'"),
        (("--driver", "torch"), {}, 3, "no torch in this Python"),
        (("--driver", "capi", "--simulate", "bn-dead"), {}, 2, "--simulate"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_one_line(asked, arguments, variables, code, message):
    refused = asked(*arguments, **variables).ended
    assert refused.returncode == code, refused.stderr
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_no_library_at_all_is_one_line(tmp_path, python):
    if places({}, import_path=[]):
        pytest.skip("this machine has ROCm libraries where they are looked for")
    refused = cli("run", "--out", tmp_path / "out", env={"LD_LIBRARY_PATH": ""}, python=python)
    assert refused.returncode == 3
    assert refused.stderr.count("\n") == 1
    assert "no torch in this Python; `rocmprobe install` prints the commands" in refused.stderr
    why = "Without torch: no libamdhip64 with a libMIOpen anywhere"
    assert why in refused.stderr
    assert "LD_LIBRARY_PATH, ROCM_PATH, /opt/rocm*" in refused.stderr


@pytest.mark.thorough
def test_a_folder_by_name_and_the_run_taken_up_again(tmp_path, libraries, python):
    folder = tmp_path / "rocm"
    folder.mkdir()
    (folder / "lib").symlink_to(libraries)
    rungs = ("--only", "copy", "--only", "gemm")
    bare = {"env": {"LD_LIBRARY_PATH": ""}, "python": python}
    done = run(tmp_path / "out", "--driver", "capi", "--libraries", folder, *rungs, **bare)
    assert done.ended.returncode == 0, done.ended.stderr
    assert set(done.states.values()) == {"pass"}
    gone = rocmprobe("run", "--resume", done.folder, **bare)
    assert gone.returncode == 2
    assert "name them with --libraries" in gone.stderr
    again = rocmprobe("run", "--resume", done.folder, "--libraries", folder, python=python)
    assert again.returncode == 0, again.stderr


@pytest.mark.thorough
def test_auto_asks_both_drivers_where_both_are(tmp_path, libraries):
    """A torch built for ROCm that cannot be imported: the libraries are fine, and PyTorch is at fault."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise OSError('libc10_hip.so: undefined symbol')")
    (package / "version.py").write_text("__version__ = '2.4.0+rocm6.1'\ncuda = None\nhip = '6.1.40091'\n")
    done = run(
        tmp_path / "out", "--only", "copy", "--only", "convolution", "--purpose", "inference",
        "--settings", "vendor-off,gemm-only", "--problem", PROBLEM,
        env={"PYTHONPATH": f"{package.parent}:{CHECKOUT}", "LD_LIBRARY_PATH": str(libraries)},
    )  # fmt: skip
    assert done.ended.returncode == 1, done.ended.stderr
    [target] = done.results.options["targets"]
    assert target["drivers"] == ["torch", "capi"]
    by_driver = {driver: {} for driver in target["drivers"]}
    for outcome in done.results.outcomes:
        by_driver[outcome.driver].setdefault(outcome.setting, set()).add(outcome.state)
    assert by_driver["capi"] == {"default": {"pass"}, "gemm-only": {"pass"}}
    assert set(by_driver["torch"]) == {"default", "gemm-only", "vendor-off"}
    assert "pass" not in set.union(*by_driver["torch"].values())
    [finding] = [each for each in done.results.findings if each.id == "driver-torch"]
    assert (finding.severity, finding.layer) == ("error", "torch-build")
    assert "the fault is in how PyTorch calls it" in finding.title
    assert done.results.recommendation.verdict == "none"
    page = (done.folder / "report.html").read_text()
    assert "driver torch" in page
    assert "driver capi" in page
    assert "gemm-only (capi)" in page
    told = json.loads((done.folder / "results.json").read_text())
    assert {trial["driver"] for trial in told["trials"]} == {"torch", "capi"}
