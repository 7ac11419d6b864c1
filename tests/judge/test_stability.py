"""The sentence, the finding and the section of a soak, by what its outcome holds."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rows import every_row
from synthetic import run
from tiers import examples

from rocmprobe.judge.findings.stability import duration, is_stable, sentence, stability
from rocmprobe.model.results import Outcome, Results
from rocmprobe.report.page.html import page
from rocmprobe.report.page.soak_section import soaks

RAN = {
    "steps": 4120,
    "seconds": 600.2,
    "wanted_seconds": 600.0,
    "mismatches": 0,
    "bit_for_bit": True,
    "batch": 64,
}
PEAK = {"temperature_junction_c": 92.0, "temperature_edge_c": 80.0, "power_w": 148.4}
FIRST = {
    "step": 1301, "seconds": 192.0, "of": "the gradient of head.weight", "elements": 1, "bits": 1,
    "error": 0.01, "within_rounding": False, "temperature_c": 97.0, "power_w": 150.0,
}  # fmt: skip
RESET = {"kind": "gpu-reset", "address": "0000:0b:00.0", "count": 1, "line": "amdgpu: GPU reset begin!"}
SO_FAR = "4,120 steps in 10 min at up to 92 °C and 148 W, no mismatch"


def soaked(state: str = "pass", device: str = "cuda:0", **fields: Any) -> Results:
    numerics = {**RAN, **fields.pop("numerics", {})}
    outcome = Outcome(
        f"{device}/torch/default/soak/float32", device, "torch", "default", "soak", "train", state,
        numerics=numerics, conditions=fields.pop("conditions", {"peak": PEAK}), native_isa="gfx1010",
        **fields,
    )  # fmt: skip
    results = run(backend="onednn" if device == "cpu" else "miopen")
    return dataclasses.replace(results, outcomes=(outcome,))


@every_row(
    ("results", "words", "severity", "cause"),
    [
        (soaked(), f"Stable: {SO_FAR}.", "info", "benign-warning"),
        (
            soaked(device="cpu", conditions={}),
            "Stable: 4,120 steps in 10 min, no mismatch. The CPU was tested, not a GPU.", "info",
            "benign-warning",
        ),
        (
            soaked(numerics={"bit_for_bit": False}), f"Stable: {SO_FAR} beyond rounding.", "info",
            "benign-warning",
        ),
        (
            soaked("wrong", numerics={"mismatches": 3, "mismatch": [FIRST]}),
            "Not stable: first wrong result after 3 min 12 s at 97 °C and 150 W; 4,120 steps in 10 min, "
            "3 mismatches.", "error", "hw-power-or-fault",
        ),
        (
            soaked("flaky", numerics={"mismatches": 1, "mismatch": [FIRST]}),
            "Not stable: first different result after 3 min 12 s at 97 °C and 150 W; 4,120 steps in 10 min, "
            "1 mismatch.", "warning", "hw-power-or-fault",
        ),
        (
            soaked(numerics={"stopped": {"quantity": "temperature_edge_c", "value": 101, "limit": 100}}),
            f"Too hot: stopped at 101 °C, the limit is 100 °C; {SO_FAR}.", "warning", "thermal-throttling",
        ),
        (
            soaked(numerics={"kernel_events": [RESET]}), f"Not stable: the GPU was reset; {SO_FAR}.",
            "warning", "gpu-hang-reset",
        ),
        (
            soaked("hang", numerics={"answers": False}, evidence=("no answer in 60 s in phase steady",)),
            f"Not stable: no answer in 60 s in phase steady, after {SO_FAR}; the device no "
            "longer responds.", "error", "gpu-hang-reset",
        ),
        (
            soaked("crash", cause="SIGKILL", numerics={"answers": True}),
            f"Unknown: something ended the process (SIGKILL); {SO_FAR}.", "warning", "unknown",
        ),
        (
            soaked("crash", cause="SIGSEGV", numerics={"kernel_events": [{**RESET, "count": 2}]}),
            f"Not stable: the GPU was reset 2 times, after {SO_FAR}.", "error", "gpu-hang-reset",
        ),
        (
            soaked("aborted", cause="machine-died"),
            f"Not stable: the machine died during the soak; {SO_FAR} until then.", "error",
            "gpu-hang-reset",
        ),
        (
            soaked("aborted", cause="run-died", numerics={"mismatches": 1, "mismatch": [FIRST]}),
            "Not stable: first wrong result after 3 min 12 s at 97 °C and 150 W; 4,120 steps in 10 min, "
            "1 mismatch.", "error", "hw-power-or-fault",
        ),
        (
            soaked("aborted", cause="run-died", numerics={"wanted_seconds": 3600}),
            "Stopped before its end: 4,120 steps in 10 min of 1 h 00 min at up to 92 °C and 148 W, no "
            "mismatch.",
            "info", "benign-warning",
        ),
    ],
)  # fmt: skip
def test_verdict(results: Results, words: str, severity: str, cause: str) -> None:
    [outcome] = results.outcomes
    assert sentence(outcome, results) == words
    assert is_stable(outcome) == words.startswith("Stable")
    [finding] = stability(results)
    assert (finding.title, finding.severity, finding.cause) == (words.rstrip("."), severity, cause)
    assert finding.advice


def test_a_soak_that_did_not_run_has_no_finding() -> None:
    results = soaked("blocked")
    blocked = dataclasses.replace(results.outcomes[0], numerics={}, conditions={}, evidence=("gemm failed",))
    assert sentence(blocked, results) == "Not tested: gemm failed."
    assert not list(stability(dataclasses.replace(results, outcomes=(blocked,))))
    assert soaks(dataclasses.replace(results, outcomes=(blocked,))) is None


@every_row(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (12.4, "12 s"),
        (60, "1 min"),
        (192, "3 min 12 s"),
        (3600, "1 h 00 min"),
        (7506, "2 h 05 min"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


LEAF = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
ROW = st.dictionaries(st.sampled_from(sorted(FIRST)), LEAF, max_size=3)
ODD = LEAF | ROW | st.lists(LEAF | ROW, max_size=2)
NAMES = (
    *RAN, "mismatch", "stopped", "kernel_events", "answers", "temperature_limits", "kernel_log",
)  # fmt: skip


@settings(max_examples=examples(50))
@given(
    st.dictionaries(st.sampled_from(NAMES), ODD),
    st.sampled_from(("pass", "wrong", "crash", "aborted", "hang")),
)
def test_numbers_from_an_edited_file(numerics: dict[str, Any], state: str) -> None:
    results = soaked(state, numerics=numerics)
    assert sentence(results.outcomes[0], results).endswith(".")
    assert len(list(stability(results))) == 1
    assert soaks(results) is not None


def test_the_page_has_a_section_with_every_mismatch() -> None:
    html = page(soaked("wrong", numerics={"mismatches": 1, "mismatch": [FIRST]}))
    assert 'id="h-soaks"' in html
    assert "the gradient of head.weight" in html
    assert 'id="h-soaks"' not in page(run())
