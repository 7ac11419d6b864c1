"""The check of kernels of our own: a wrong result is reported, and nothing else depends on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import synthetic
from synthetic import diagnose, recommend

from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.results import Outcome, Results


def asked(dtype: str = "float32", device: str = "cuda:0", **fields: Any) -> Outcome:
    outcome = Outcome(
        f"{device}/default/kernel/{dtype}", device, "default", "kernel", "gemm", "pass",
        dtype=dtype, timings={"trial": 9.0, "compile": 3.5},
    )  # fmt: skip
    return replace(outcome, **fields)


def run(*outcomes: Outcome) -> Results:
    results = synthetic.run({})
    return replace(results, outcomes=(*results.outcomes, *outcomes))


def test_a_wrong_kernel_is_reported_and_changes_no_recommendation() -> None:
    wrong = run(asked(state="wrong", evidence=("kernel-gemm 64x64x8 fwd: 3 of 9 values differ",)))
    (finding,) = [each for each in diagnose(wrong) if each.id == "kernel"]
    assert finding.title == "A kernel of rocmprobe's own computes wrong numbers"
    assert finding.severity == "warning"
    before, after = recommend(run()), recommend(wrong)
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
    results = run(*triton)
    results = replace(results, settings=(*results.settings, cure))
    (finding,) = [each for each in diagnose(results) if each.id == "triton"]
    assert finding.title.endswith("with AMDGCN_USE_BUFFER_OPS=0 it is correct")
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        assert f'`export {name}="$HOME/.cache/triton-no-buffer-ops/' in finding.advice
