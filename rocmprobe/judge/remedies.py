"""Remedies of findings: a command or a link for each finding of severity error."""

from __future__ import annotations

import re
from dataclasses import replace

from rocmprobe.judge.recommendation.advice import other_build
from rocmprobe.judge.recommendation.blocks import exec_command, run_path
from rocmprobe.knowledge.causes import NO_CODE, cause
from rocmprobe.model.results import Finding, Results

#: Programs whose commands in an advice are remedies.
_COMMAND = re.compile(
    r"`((?:sudo |env |export |unset |ulimit |docker |pip |rocmprobe |wsl |rm |mv |python )[^`]+)`"
)
_LINK = re.compile(r"https://[^\s)`]+[^\s)`.,;:]")


def with_remedies(results: Results) -> Results:
    """Return judged ``results`` in which each finding of severity error has a remedy."""
    found = results.recommendation
    build = other_build(results.machine, results.findings, found.verdict if found else "")
    findings = tuple(
        replace(finding, remedy=_remedy(results, finding, build is not None))
        if finding.severity == "error"
        else finding
        for finding in results.findings
    )
    return replace(results, findings=findings)


def _remedy(results: Results, finding: Finding, other_torch: bool) -> str:
    found = results.recommendation
    if finding.cause in NO_CODE and other_torch:
        return "rocmprobe install"
    for pattern in (_COMMAND, _LINK):
        if match := pattern.search(finding.advice):
            return match[match.lastindex or 0]
    if finding.layer == "torch-build":
        return "rocmprobe install"
    if found and found.configuration.setting and not results.partial:
        return exec_command(results, found.configuration)
    links = cause(finding.cause).links
    return links[0] if links else f"rocmprobe report {run_path(results)} --format issue"
