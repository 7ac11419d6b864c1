"""Finding about a bypass that fails."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.checks import CONVOLUTIONS
from rocmprobe.judge.assessment import (
    MEASUREMENTS,
    concerns_convolution,
    failed,
    quoted,
)
from rocmprobe.judge.blame import blamed, rung_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding


def bypass(run: Evidence) -> Iterator[Finding]:
    names = {setting.name for setting in run.settings if setting.bypass}
    broken = tuple(
        outcome
        for outcome in failed(run.outcomes)
        if outcome.setting in names
        and outcome.check in (*CONVOLUTIONS, "gradients", "gradient-flow", *MEASUREMENTS)
        and concerns_convolution(outcome)
    )
    if not broken:
        return
    gemm = failed(run.of("gemm"))
    cause, layer = blamed(run, broken, rung_layer(run, "gemm") if gemm else "rocmprobe")
    if gemm:
        advice = "The bypass uses GEMM, which fails too. Fix GEMM first."
    elif layer == "rocmprobe":
        advice = (
            "The bypass uses GEMM, which is not known to fail. Please report this possible bug in rocmprobe."
        )
    else:
        advice = "The evidence names a fault below the bypass. Fix this fault first."
    yield Finding(
        "bypass",
        "error",
        cause,
        layer,
        f"The bypass fails in {len(broken)} test(s)",
        quoted(broken),
        advice,
    )
