"""The list of the findings that follow from facts about the machine alone, without any test.

`rocmprobe detect` shows them, too. So their modules import nothing slow.
"""

from __future__ import annotations

from rocmprobe.judge.assessment import by_severity
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.caches import caches, unusable_databases
from rocmprobe.judge.findings.disagreements import disagreeing_sources
from rocmprobe.judge.findings.gpu_access import no_gpu, unlisted
from rocmprobe.judge.findings.integrated_gpu import integrated_beside_a_card
from rocmprobe.judge.findings.isa import isa_mismatch
from rocmprobe.judge.findings.kernel_log import kernel_log
from rocmprobe.judge.findings.reroutes import hipblaslt_preferred, hipdnn_enabled, rerouting_packages
from rocmprobe.judge.findings.too_old import older_than_the_chip
from rocmprobe.judge.findings.torch_build import missing_code, torch_sees_no_gpu, wrong_build
from rocmprobe.judge.findings.variables import variables
from rocmprobe.judge.findings.wsl import wsl_findings
from rocmprobe.model.results import SCHEMA_VERSION, Finding, Machine, Results

MACHINE = (
    isa_mismatch, wrong_build, no_gpu, torch_sees_no_gpu, missing_code, unlisted, integrated_beside_a_card,
    wsl_findings, older_than_the_chip, kernel_log, variables, disagreeing_sources, rerouting_packages,
    hipdnn_enabled, hipblaslt_preferred, unusable_databases, caches,
)  # fmt: skip


def machine_findings(machine: Machine) -> tuple[Finding, ...]:
    """Return the findings that follow from the facts alone, the most severe first."""
    results = Results(
        schema_version=SCHEMA_VERSION, rocmprobe="", started="", finished=None, partial=False, simulated=None,
        options={}, machine=machine, settings=(), problems=(), trials=(), outcomes=(),
    )  # fmt: skip
    run = Evidence(results)
    return by_severity(finding for rule in MACHINE for finding in rule(run))
