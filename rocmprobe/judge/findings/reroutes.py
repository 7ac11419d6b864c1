"""Findings about packages and torch switches that send operators to hipDNN or hipBLASLt."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Fact, Finding


def rerouting_packages(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each installed package that can send convolutions to hipDNN."""
    fact = run.machine.facts.get("torch.reroutes", Fact())
    for package, version in (fact.value or {}).items():
        title = f"{package} is installed: its install() sends F.conv2d and F.conv3d to hipDNN"
        evidence = (f"{package} {version or 'of unknown version'}, from {fact.source}",)
        advice = (
            f"Do not call {package}.install() in a program with the recommended configuration. rocmprobe "
            "does not test hipDNN, and the bypass gets only the convolutions that hipDNN rejects."
        )
        yield Finding(f"reroutes-{package}", "info", "benign-warning", "torch-build", title, evidence, advice)


def hipdnn_enabled(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if torch uses hipDNN."""
    if (run.machine.value("deep.switches") or {}).get("hipdnn.enabled") is True:
        title = "torch sends batch norm and convolutions to hipDNN instead of MIOpen"
        evidence = ("torch.backends.hipdnn.enabled is True",)
        advice = (
            "Set `torch.backends.hipdnn.enabled = False` in the program. rocmprobe tests MIOpen, and hipDNN "
            "ignores most MIOpen settings."
        )
        yield Finding("hipdnn-enabled", "warning", "unknown", "torch-build", title, evidence, advice)


def hipblaslt_preferred(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if torch prefers hipBLASLt, which has no kernels for a GPU."""
    targets = run.machine.facts.get("hipblaslt.targets", Fact())
    preferred = (run.machine.value("deep.switches") or {}).get("cuda.preferred_blas_library")
    if preferred not in ("cublaslt", "hipblaslt") or not targets.value:
        return
    isas = dict.fromkeys(gpu.effective_isa.value for gpu in run.machine.amd_gpus)
    for isa in (each for each in isas if each and each not in targets.value):
        name = f"hipblaslt-preferred-{isa}"
        title = f"torch prefers hipBLASLt, which has no kernels for {isa} here"
        evidence = (
            f"hipblaslt.targets: {' '.join(targets.value)}, from {targets.source}",
            "torch.backends.cuda.preferred_blas_library() is hipBLASLt",
        )
        advice = (
            "Set TORCH_BLAS_PREFER_HIPBLASLT=0 before Python starts, or call "
            '`torch.backends.cuda.preferred_blas_library("cublas")` first. Then torch uses rocBLAS.'
        )
        yield Finding(name, "warning", "hipblaslt-missing-arch", "rocblas", title, evidence, advice)
