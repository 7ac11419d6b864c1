"""Results of runs that never happened: everything passes but for what a test changes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Optional, Union

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.judge.assessment import Assessment
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings import diagnose as _diagnose
from rocmprobe.judge.recommendation import recommend as _recommend
from rocmprobe.knowledge.causes import causes, layers
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import (
    DIRECTIONS,
    SCHEMA_VERSION,
    Fact,
    Finding,
    Gpu,
    Machine,
    Outcome,
    Recommendation,
    Results,
    Setting,
)

FP32 = "conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1-bias"
FP16 = "conv2d-fp16-n2-c16-i28x28-k32-f3x3-p1"
TIMED = "conv2d-fp32-n4-c32-i56x56-k64-f3x3-p1"
TORCH = "1.13.1"
#: Transposed, depthwise, and plain in a dtype that PyTorch keeps from MIOpen.
KINDS = (
    "conv_transpose2d-fp32-n2-c16-i9x9-k8-f2x2-s2-bias",
    "conv2d-fp32-n2-c16-i14x14-k16-f3x3-p1-g16",
    "conv2d-fp64-n2-c8-i14x14-k16-f3x3-p1",
)
#: Of the problem matrix.
MATRIX = "conv_transpose3d-fp32-n1-c64-i6x6x6-k32-f2x2x2-s2-bias"
DEVICES = {"miopen": "cuda:0", "cudnn": "cuda:0", "onednn": "cpu"}
#: Of each time: so many that its median is sure.
REPEATS = 100
STATUS = {
    "state": "error",
    "failure": "miopen-status",
    "evidence": (
        "RuntimeError: miopenStatusUnknownError",
        "Forward Convolution cannot be executed due to incorrect params",
    ),
}

#: What a pattern over outcome ids changes: a state, or fields of the outcome.
Change = Union[str, Mapping[str, Any]]


def card(native: Optional[str] = "gfx1010", effective: Optional[str] = "gfx1030") -> Machine:
    gpu = Gpu(
        native_isa=Fact(native, "kernel driver"),
        effective_isa=Fact(effective, "override"),
        name=Fact("AMD Radeon RX 5600 XT", "table"),
        vendor=Fact("amd", "PCI"),
    )
    facts = {"torch.kind": Fact("rocm", "torch/version.py"), "torch.version": Fact(TORCH, "torch")}
    return Machine((gpu,), facts, {"HSA_OVERRIDE_GFX_VERSION": Fact("10.3.0", "environment")})


@functools.cache
def _settings(backend: str, wanted: str) -> tuple[Setting, ...]:
    """Without those of which a run alone finds out what they are."""
    return tuple(
        setting
        for setting in settings_for(backend, wanted, TORCH)
        if not (setting.derived or setting.by_name)
    )


def cases(backend: str, wanted: str, purpose: str) -> list[Case]:
    """What the suites ask, in short."""
    settings, device = _settings(backend, wanted), DEVICES[backend]
    directions = DIRECTIONS[:1] if purpose == "inference" else DIRECTIONS
    found = [
        Case(device, "default", check, dtype)
        for check, dtype in (
            ("copy", "float32"), ("elementwise", "float32"), ("elementwise", "float16"),
            ("gemm", "float32"), ("gemm", "float16"), ("im2col", "float32"), ("softmax", "float32"),
            ("softmax", "float16"),
        )
    ]  # fmt: skip
    for setting in ("default", "vendor-off"):
        found += [
            Case(device, setting, check, dtype)
            for check in ("batch-norm", "batch-norm-eval", "rnn", "lstm", "gru", "convolution-relu")
            for dtype in ("float32", "float16")
        ]
        found += [
            Case(device, setting, "convolution-kinds", parse_problem(text).dtype, text, direction)
            for text in KINDS
            for direction in directions
        ]
        found.append(Case(device, setting, "ctc-loss", "float32"))
    names = [setting.name for setting in settings]
    found += [
        Case(device, name, "convolution", parse_problem(text).dtype, text, direction)
        for name in names
        for text in (FP32, FP16)
        for direction in directions
    ]
    found += [
        Case(device, name, "problem-matrix", "float32", MATRIX, direction)
        for name in ("default", "vendor-off", "bypass")
        for direction in directions
    ]
    found += [Case(device, name, "training-step", "float32") for name in names]
    found += [Case(device, name, "autocast-step", "float16") for name in names]
    found += [Case(device, name, "throughput", "float32", TIMED) for name in names]
    return found


@functools.cache
def _passing(
    backend: str, wanted: str, purpose: str, native: Optional[str], effective: Optional[str]
) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(
            case.id, case.device, case.setting, case.check, CHECKS[case.check].rung, "pass",
            native_isa=native, effective_isa=effective, problem=case.problem, direction=case.direction,
            dtype=case.dtype,
        )
        for case in cases(backend, wanted, purpose)
    )  # fmt: skip


def run(
    changes: Mapping[str, Change] = {},
    *,
    backend: str = "miopen",
    wanted: str = "default",
    purpose: str = "training",
    seconds: Mapping[str, tuple[float, float, float]] = {},
    machine: Optional[Machine] = None,
    **fields: Any,
) -> Results:
    """A run in which everything passes, in the same time, but for ``changes`` (the last pattern that
    fits an outcome's id holds). ``seconds``: p10, median and p90 by setting."""
    machine = machine or (card() if backend == "miopen" else Machine())
    gpu = machine.gpus[0] if machine.gpus else Gpu()
    outcomes = []
    for outcome in _passing(backend, wanted, purpose, gpu.native_isa.value, gpu.effective_isa.value):
        new: dict[str, Any] = {}
        if outcome.check == "throughput":
            low, middle, high = seconds.get(outcome.setting, (0.9, 1.0, 1.1))
            new["timings"] = {
                f"{key}{end}": value
                for key in ("fwd", "fwd_bwd")
                for end, value in (("_p10", low), ("", middle), ("_p90", high), ("_repeats", REPEATS))
            }
        for pattern, change in changes.items():
            if fnmatchcase(outcome.id, f"*/{pattern}"):
                new.update({"state": change} if isinstance(change, str) else change)
        outcomes.append(dataclasses.replace(outcome, **new) if new else outcome)
    results = Results(
        schema_version=SCHEMA_VERSION, rocmprobe="0.1.0", started="2026-11-20T14:03:11+00:00",
        finished="2026-11-20T14:04:09+00:00", partial=False, simulated=None,
        options={"purpose": purpose, "targets": [{"device": DEVICES[backend], "backend": backend}]},
        machine=machine, settings=_settings(backend, wanted), problems=(), trials=(),
        outcomes=tuple(outcomes),
    )  # fmt: skip
    return dataclasses.replace(results, **fields)


def natively(change: Change, what: str = "convolution/*") -> dict[str, Change]:
    """``change`` for all settings that go through the vendor library."""
    return {
        f"{setting.name}/{what}": change
        for setting in settings_for("miopen")
        if setting.verdict.startswith("native") and not setting.by_name
    }


def blocked_by_convolution() -> dict[str, Change]:
    """What a run makes of training and throughput where native convolution fails."""
    return {**natively("blocked", "training-step/*"), **natively("blocked", "throughput/*")}


def everywhere(change: Change, what: str = "convolution/*") -> dict[str, Change]:
    """``change`` for all settings but the CPU."""
    return {f"*/{what}": change, f"cpu/{what}": "pass"}


def assess(results: Results, setting: Setting, dtype: str, purpose: str) -> Assessment:
    return Evidence(results).assess(setting, dtype, purpose)


def diagnose(results: Results) -> tuple[Finding, ...]:
    findings = _diagnose.diagnose(Evidence(results))
    known_causes, known_layers = {cause.name for cause in causes()}, {layer.name for layer in layers()}
    for finding in findings:
        assert finding.cause in known_causes, f"{finding.id}: causes.toml has no cause {finding.cause!r}"
        assert finding.layer in known_layers, f"{finding.id}: causes.toml has no layer {finding.layer!r}"
    return findings


def recommend(results: Results) -> Recommendation | None:
    return _recommend.recommend(Evidence(results), results.findings)
