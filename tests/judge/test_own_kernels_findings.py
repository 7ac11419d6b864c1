"""The check of kernels of our own: what the report shows of it, and that nothing else depends on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import synthetic
from synthetic import diagnose, recommend

from rocmprobe.judge.summary import summarize
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.results import Outcome, Results
from rocmprobe.report.page import html
from rocmprobe.report.page.throughput import own_kernels


def asked(dtype: str = "float32", device: str = "cuda:0", **fields: Any) -> Outcome:
    outcome = Outcome(
        f"{device}/default/kernel/{dtype}", device, "default", "kernel", "gemm", "pass",
        dtype=dtype, timings={"trial": 9.0, "compile": 3.5},
    )  # fmt: skip
    return replace(outcome, **fields)


def run(*outcomes: Outcome) -> Results:
    results = synthetic.run({})
    return replace(results, outcomes=(*results.outcomes, *outcomes))


def test_the_report_shows_what_the_device_reached() -> None:
    first = asked(
        timings={"trial": 9.0, "compile": 3.5, "launch": 8e-6},
        numerics={
            "multiply_add_flops": 7.5e12, "copied_bytes": 3.6e11, "product_flops": {"512x512x512": 4e12}
        },
    )  # fmt: skip
    second = asked("float16", numerics={"product_flops": {"512x512x512": 6e12}})
    results = run(first, second)
    found = own_kernels(results)
    assert found is not None
    assert found.table.header == ("", "float32", "float16")
    assert found.table.rows == (
        ("compile", "3.5 s", "3.5 s"),
        ("launch", "8 µs", ""),
        ("multiply-adds, TFLOPS", "7.5", ""),
        ("copy, GB/s", "360", ""),
        ("torch.mm 512 x 512 x 512, TFLOPS", "4", "6"),
    )
    assert "rocmprobe's own kernels" in html.page(summarize(results))
    assert "rocmprobe's own kernels" not in html.page(summarize(run()))


def test_two_devices_have_a_column_each() -> None:
    found = own_kernels(run(asked(), asked(device="cuda:1")))
    assert found is not None
    assert found.table.header == ("", "float32 (cuda:0)", "float32 (cuda:1)")


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
