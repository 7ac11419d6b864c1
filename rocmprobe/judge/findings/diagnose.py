"""The list of all findings, except those that follow from facts alone (``findings.machine``).

A finding is a function that takes the evidence of a run and yields a ``Finding`` if its condition holds.
"""

from __future__ import annotations

from dataclasses import replace

from rocmprobe.judge.assessment import by_severity
from rocmprobe.judge.blame import cure
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.alarms import telemetry_findings
from rocmprobe.judge.findings.as_found import as_found, only_as_found
from rocmprobe.judge.findings.bypass import bypass, vendor_off
from rocmprobe.judge.findings.changing_sizes import slow_new_sizes
from rocmprobe.judge.findings.convolution import native_convolution, other_dtypes, problem_matrix
from rocmprobe.judge.findings.data_loader import data_loader
from rocmprobe.judge.findings.direct import direct, with_direct_calls
from rocmprobe.judge.findings.expected import (
    known_failures,
    regressed,
    unexpected_passes,
    unsuitable_baseline,
)
from rocmprobe.judge.findings.first_calls import slow_first_calls
from rocmprobe.judge.findings.forced_search import forced_search
from rocmprobe.judge.findings.interrupted import aborted, probe_errors, wedged
from rocmprobe.judge.findings.kernels import kernels, missing_backends
from rocmprobe.judge.findings.ladder import controls, ladder
from rocmprobe.judge.findings.machine import MACHINE
from rocmprobe.judge.findings.memory import memory
from rocmprobe.judge.findings.naive_kernels import naive_kernels
from rocmprobe.judge.findings.primitives import primitives
from rocmprobe.judge.findings.processes import exit_crash, two_copies
from rocmprobe.judge.findings.sizes import sizes
from rocmprobe.judge.findings.sweep import faulty_solvers
from rocmprobe.judge.findings.torch_unusable import torch_unusable
from rocmprobe.judge.findings.training import autocast_step, channels_last_step, gradient_flow, training_step
from rocmprobe.model.results import Finding, Results

#: Findings about failed checks. They are left out if torch is unusable, because nothing was tested then.
_CHECKS = (
    ladder, controls, kernels, missing_backends, native_convolution, other_dtypes, sizes, problem_matrix,
    faulty_solvers, primitives, gradient_flow, training_step, autocast_step, channels_last_step,
    data_loader, only_as_found, as_found, forced_search, bypass, vendor_off, memory, naive_kernels,
    slow_first_calls, slow_new_sizes,
)  # fmt: skip
#: Findings about the run as a whole.
_RUN = (
    direct, two_copies, aborted, wedged, probe_errors, exit_crash, telemetry_findings,
)  # fmt: skip
#: Findings about expected failures.
_EXPECTED = (unsuitable_baseline, regressed, known_failures, unexpected_passes)
#: Causes that are fixed by installing packages (compilers, headers, kernel sources), not by settings.
_OF_THE_INSTALLATION = frozenset(
    {
        "jit-compiler-missing", "jit-header-conflict", "jit-missing-host-headers",
        "miopen-kernel-source-missing", "llvm-library-clash",
    }
)  # fmt: skip


def diagnose(run: Evidence) -> tuple[Finding, ...]:
    """Return every finding of ``run`` except those about expected failures, the most severe first."""
    unusable = tuple(torch_unusable(run))
    about_checks = unusable or tuple(finding for rule in _CHECKS for finding in rule(run))
    others = (finding for rule in (*MACHINE, *_RUN) for finding in rule(run))
    found = with_direct_calls((*about_checks, *others), run)
    return by_severity(_with_repair(run, finding) for finding in found)


def expectation_findings(run: Evidence) -> tuple[Finding, ...]:
    """Return the findings about expected failures, which ``run`` must already mark."""
    return tuple(finding for rule in _EXPECTED for finding in rule(run))


def _with_repair(run: Evidence, finding: Finding) -> Finding:
    """Return ``finding``. If the installation is at fault, begin the advice with the repair."""
    if finding.cause not in _OF_THE_INSTALLATION:
        return finding
    return replace(finding, advice=f"{cure(run, finding.cause)} Until then: {finding.advice}")


def act_on(results: Results) -> bool:
    """Return True if the run is incomplete or a finding is more severe than "info"."""
    return results.partial or any(finding.severity != "info" for finding in results.findings)
