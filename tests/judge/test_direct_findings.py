"""Findings about checks without PyTorch and about rocmprobe's own kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Union

import pytest
import synthetic
from synthetic import FP32, STATUS, diagnose, everywhere, natively, recommend, run

from rocmprobe.checks import CHECKS
from rocmprobe.judge.changes import regressions
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.results import DIRECTIONS, Finding, Machine, Outcome, Results

COMMAND = "MIOpenDriver conv -n 2 -c 16"
FAILED = {**STATUS, "evidence": ("miopenConvolutionForward: miopenStatusUnknownError (7)", COMMAND)}


def direct(check: str, state: Union[str, Mapping[str, Any]] = "pass", direction: str = "fwd") -> Outcome:
    what = {"problem": FP32, "direction": direction} if check == "miopen-direct" else {}
    fields = {"state": state} if isinstance(state, str) else dict(state)
    name = f"cuda:0/default/{check}/{FP32 if what else 'float32'}{what and f'/{direction}'}"
    return Outcome(name, "cuda:0", "default", check, CHECKS[check].rung, **{**what, **fields})


def with_direct(results: Results, *outcomes: Outcome) -> dict[str, Finding]:
    whole = Results(**{**vars(results), "outcomes": (*results.outcomes, *outcomes)})
    return {finding.id: finding for finding in diagnose(whole)}


def test_where_both_fail_it_is_the_library_s_own_fault() -> None:
    asked = [direct("miopen-direct", FAILED, direction) for direction in DIRECTIONS]
    ids = with_direct(run(natively(STATUS)), *asked)
    assert "miopen-direct" not in ids
    evidence = ids["native-convolution"].evidence
    assert evidence[-3:] == (
        "MIOpen fails without PyTorch, too: MIOpen's own fault",
        f"{asked[0].id}: error, {FAILED['evidence'][0]}",
        COMMAND,
    )


def test_what_fails_in_pytorch_alone_is_not_the_library_s_fault() -> None:
    asked = [direct("miopen-direct", "pass", direction) for direction in DIRECTIONS]
    ids = with_direct(run(natively(STATUS)), *asked)
    assert ids["native-convolution"].evidence[-1] == (
        "MIOpen computes this correctly without PyTorch: look at PyTorch's build or its bundled libraries"
    )
    finding = ids["miopen-direct"]
    assert (finding.severity, finding.layer) == ("error", "torch-build")
    assert "MIOpen computes correctly without PyTorch, but convolution in PyTorch" in finding.title
    assert "rocmprobe install" in finding.advice


def test_what_pytorch_could_not_run_counts_if_a_lower_check_fails() -> None:
    blocked = {
        "*/convolution/*": {"state": "blocked", "failure": "rung:elementwise"},
        "default/elementwise/*": "error",
    }
    ids = with_direct(run(blocked), direct("miopen-direct"))
    assert ids["miopen-direct"].layer == "torch-build"
    wedged = {"*/convolution/*": {"state": "blocked", "failure": "gpu-wedged"}}
    assert "miopen-direct" not in with_direct(run(wedged), direct("miopen-direct"))


def test_a_gemm_that_fails_without_pytorch_is_rocblas_s_fault() -> None:
    ids = with_direct(run({"default/gemm/float32": "wrong"}), direct("rocblas-direct", "wrong"))
    assert "rocBLAS fails without PyTorch, too: rocBLAS's own fault" in ids["rung-gemm"].evidence


def test_what_fails_without_pytorch_alone_is_no_fault_to_act_on() -> None:
    ids = with_direct(run(), direct("miopen-direct", FAILED))
    assert ids["miopen-direct"].severity == "info"
    assert "works in PyTorch" in ids["miopen-direct"].title


def test_where_nothing_ran_in_pytorch_the_library_s_failure_is_the_finding() -> None:
    alone = Results(**{**vars(run()), "outcomes": ()})
    finding = with_direct(alone, direct("miopen-direct", FAILED))["miopen-direct"]
    assert (finding.severity, finding.layer) == ("error", "miopen-find")
    assert finding.title == "MIOpen fails without PyTorch: MIOpen's own fault"
    assert finding.evidence[-1] == COMMAND
    # Without torch, the libraries are not those of a wheel.
    lacking = {**FAILED, "evidence": ("hipErrorNoBinaryForGpu: Unable to find code object for all devices!",)}
    causes = [
        with_direct(replace(alone, machine=machine), direct("miopen-direct", lacking))["miopen-direct"].cause
        for machine in (alone.machine, Machine(alone.machine.gpus))
    ]
    assert causes == ["arch-not-in-wheel", "arch-not-in-rocm-lib"]


@pytest.mark.parametrize("changes", [{}, natively(STATUS), everywhere(STATUS)])
@pytest.mark.parametrize("state", ["pass", "error", "n/a", "hang"])
def test_the_verdict_does_not_depend_on_it(changes: Mapping[str, Any], state: str) -> None:
    results = run(changes)
    outcomes = (direct("rocblas-direct", state), direct("miopen-direct", state))
    with_it = Results(**{**vars(results), "outcomes": (*results.outcomes, *outcomes)})
    before, after = recommend(results), recommend(with_it)
    assert (before.verdict, before.sentence, before.configuration) == (
        after.verdict, after.sentence, after.configuration,
    )  # fmt: skip
    assert {each.id for each in regressions(results)} == {each.id for each in regressions(with_it)}


@pytest.mark.parametrize(
    ("rocblas", "miopen", "says"),
    [
        ("pass", "pass", "Without PyTorch, rocBLAS and MIOpen work."),
        ("pass", "crash", "Without PyTorch, rocBLAS works and MIOpen fails."),
        ("n/a", "pass", "Without PyTorch, MIOpen works."),
        ("n/a", "n/a", "Without PyTorch, nothing could be tested."),
    ],
)
def test_without_torch_the_way_to_install_one_is_the_answer(rocblas: str, miopen: str, says: str) -> None:
    results = run()
    machine = Machine(results.machine.gpus)
    outcomes = (direct("rocblas-direct", rocblas), direct("miopen-direct", miopen))
    told = recommend(Results(**{**vars(results), "outcomes": outcomes, "machine": machine}))
    assert (told.verdict, told.configuration.command) == ("gpu-not-tested", "rocmprobe install")
    assert told.sentence.endswith(f"this Python has no torch. {says}")


def asked(dtype: str = "float32", device: str = "cuda:0", **fields: Any) -> Outcome:
    outcome = Outcome(
        f"{device}/default/kernel/{dtype}", device, "default", "kernel", "gemm", "pass",
        dtype=dtype, timings={"trial": 9.0, "compile": 3.5},
    )  # fmt: skip
    return replace(outcome, **fields)


def run_with(*outcomes: Outcome) -> Results:
    results = synthetic.run({})
    return replace(results, outcomes=(*results.outcomes, *outcomes))


def test_a_wrong_kernel_is_reported_and_changes_no_recommendation() -> None:
    wrong = run_with(asked(state="wrong", evidence=("kernel-gemm 64x64x8 fwd: 3 of 9 values differ",)))
    (finding,) = [each for each in diagnose(wrong) if each.id == "kernel"]
    assert finding.title == "A kernel of rocmprobe's own computes wrong numbers"
    assert finding.severity == "warning"
    before, after = recommend(run_with()), recommend(wrong)
    assert before
    assert after
    assert (before.verdict, before.configuration) == (after.verdict, after.configuration)


def test_a_cure_that_no_cache_stores_comes_with_new_caches() -> None:
    cure = next(each for each in settings_for("miopen") if each.name == "triton-no-buffer-ops")
    triton = [
        replace(asked(), id=f"cuda:0/{name}/triton/float32", setting=name, check="triton",
                rung="primitives", state=state)
        for name, state in (("default", "wrong"), (cure.name, "pass"))
    ]  # fmt: skip
    results = run_with(*triton)
    results = replace(results, settings=(*results.settings, cure))
    (finding,) = [each for each in diagnose(results) if each.id == "triton"]
    assert finding.title.endswith("with AMDGCN_USE_BUFFER_OPS=0 it is correct")
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert f'`export {name}="$HOME/.cache/triton-no-buffer-ops/' in finding.advice
