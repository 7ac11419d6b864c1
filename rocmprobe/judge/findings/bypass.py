"""Findings about convolution without the vendor library that fails: PyTorch's own kernels, the bypass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rocmprobe.checks import CONVOLUTIONS
from rocmprobe.judge.assessment import MEASUREMENTS, concerns_convolution, failed
from rocmprobe.judge.blame import failure, rung_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding
from rocmprobe.text.readable import count

_CHECKS = (*CONVOLUTIONS, "gradients", "gradient-flow", *MEASUREMENTS)


def bypass(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if convolutions in the bypass fail."""
    names = {setting.name for setting in run.settings if setting.bypass}
    mine = (each for each in run.outcomes if each.setting in names and each.check in _CHECKS)
    broken = failed(filter(concerns_convolution, mine))
    if not broken:
        return
    title = f"The bypass fails in {count(len(broken), 'case')}"
    if failed(run.of("gemm")):
        advice = "The bypass uses GEMM, which fails too. Fix GEMM first."
        yield failure(run, "bypass", "error", title, broken, advice, rung_layer(run, "gemm"))
        return
    advice = "The evidence names a fault below the bypass. Fix this fault first."
    found = failure(run, "bypass", "error", title, broken, advice, "rocmprobe")
    if found.layer == "rocmprobe":
        advice = (
            "The bypass uses GEMM, which is not known to fail. Please report this possible bug in rocmprobe."
        )
    yield replace(found, advice=advice)


def vendor_off(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if convolutions in PyTorch's own kernels fail, but no matrix product does."""
    names = {setting.name for setting in run.settings if setting.verdict == "vendor-off"}
    mine = (each for each in run.outcomes if each.setting in names and each.check in _CHECKS)
    broken = failed(filter(concerns_convolution, mine))
    if not broken or failed(run.of("gemm")):
        return
    title = f"PyTorch's own convolution fails in {count(len(broken), 'case')} with {run.library} off"
    advice = f"Do not switch {run.library} off for convolution. Please report this possible bug in PyTorch."
    yield failure(run, "vendor-off", "warning", title, broken, advice, rung_layer(run, "controls"))
