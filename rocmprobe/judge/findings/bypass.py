"""Findings about convolution without the vendor library that fails: PyTorch's own kernels, the bypass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from rocmprobe.checks import CONVOLUTIONS
from rocmprobe.judge.assessment import MEASUREMENTS, concerns_convolution, failed
from rocmprobe.judge.blame import failure, rung_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding, Outcome
from rocmprobe.text.readable import count

_CHECKS = (*CONVOLUTIONS, "gradients", "gradient-flow", *MEASUREMENTS)


def bypass(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if convolutions in the bypass fail."""
    broken = _failures(run, {setting.name for setting in run.settings if setting.bypass})
    if not broken:
        return
    title = f"The bypass fails in {count(len(broken), 'case')}"
    products = run.of("gemm")
    if failed(products):
        advice = "The bypass uses GEMM, which fails too. Fix GEMM first."
        yield failure(run, "bypass", "error", title, broken, advice, rung_layer(run, "gemm"))
        return
    advice = "The evidence names a fault below the bypass. Fix this fault first."
    found = failure(run, "bypass", "error", title, broken, advice, "rocmprobe")
    if found.layer == "rocmprobe":
        advice = _report(products, "The bypass uses", "rocmprobe")
    yield replace(found, advice=advice)


def vendor_off(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if convolutions in PyTorch's own kernels fail in a dtype whose matrix products work."""
    names = {setting.name for setting in run.settings if setting.verdict == "vendor-off"}
    products = run.of("gemm")
    explained = {each.dtype for each in failed(products)}
    broken = tuple(each for each in _failures(run, names) if each.dtype not in explained)
    if not broken:
        return
    title = f"PyTorch's own convolution fails in {count(len(broken), 'case')} with {run.library} off"
    advice = f"Do not switch {run.library} off for convolution. "
    advice += _report(products, "PyTorch's own convolution uses", "PyTorch")
    yield failure(run, "vendor-off", "warning", title, broken, advice, rung_layer(run, "controls"))


def _failures(run: Evidence, names: Collection[str]) -> tuple[Outcome, ...]:
    """Return the failures of convolution under the settings ``names``."""
    mine = (each for each in run.outcomes if each.setting in names and each.check in _CHECKS)
    return failed(filter(concerns_convolution, mine))


def _report(products: Iterable[Outcome], uses: str, program: str) -> str:
    """Return the advice to report a bug of ``program``, or to test matrix products first."""
    if any(outcome.works for outcome in products):
        return f"{uses} GEMM, which works here. Please report this possible bug in {program}."
    return f"{uses} GEMM, which was not tested. Test GEMM first: `rocmprobe run --only gemm`."
