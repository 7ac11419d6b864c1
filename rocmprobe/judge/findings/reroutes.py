"""Findings about packages and torch switches that send operators to hipDNN or hipBLASLt."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Fact, Finding


def reroutes(run: Evidence) -> Iterator[Finding]:
    """Yield findings about packages and torch switches that send operators to hipDNN or hipBLASLt."""
    machine = run.machine
    for package, version in (machine.value("torch.reroutes") or {}).items():
        yield Finding(
            f"reroutes-{package}",
            "info",
            "benign-warning",
            "torch-build",
            f"{package} is installed: its install() sends F.conv2d and F.conv3d to hipDNN",
            (f"{package} {version or 'of unknown version'}, from {machine.facts['torch.reroutes'].source}",),
            f"Do not call {package}.install() in a program with the recommended configuration. rocmprobe "
            "does not test hipDNN, and the bypass gets only the convolutions that hipDNN rejects.",
        )
    switches = machine.value("deep.switches") or {}
    if switches.get("hipdnn.enabled") is True:
        yield Finding(
            "hipdnn-enabled",
            "warning",
            "unknown",
            "torch-build",
            "torch sends batch norm and convolutions to hipDNN instead of MIOpen",
            ("torch.backends.hipdnn.enabled is True",),
            "Set `torch.backends.hipdnn.enabled = False` in the program. rocmprobe tests MIOpen, and hipDNN "
            "ignores most MIOpen settings.",
        )
    targets, libraries = machine.facts.get("hipblaslt.targets", Fact()), ("cublaslt", "hipblaslt")
    if switches.get("cuda.preferred_blas_library") in libraries and targets.value:
        for isa in dict.fromkeys(
            gpu.effective_isa.value for gpu in machine.amd_gpus if gpu.effective_isa.value
        ):
            if isa not in targets.value:
                yield Finding(
                    f"hipblaslt-preferred-{isa}",
                    "warning",
                    "hipblaslt-missing-arch",
                    "rocblas",
                    f"torch prefers hipBLASLt, which has no kernels for {isa} here",
                    (
                        f"hipblaslt.targets: {' '.join(targets.value)}, from {targets.source}",
                        "torch.backends.cuda.preferred_blas_library() is hipBLASLt",
                    ),
                    "Set TORCH_BLAS_PREFER_HIPBLASLT=0 before Python starts, or call "
                    '`torch.backends.cuda.preferred_blas_library("cublas")` first. Then torch uses rocBLAS.',
                )
