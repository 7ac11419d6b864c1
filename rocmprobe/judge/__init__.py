"""From outcomes to findings to a recommendation: pure functions of results."""

from __future__ import annotations

from dataclasses import replace

from rocmprobe.judge.diagnose import diagnose
from rocmprobe.judge.estimate import estimate
from rocmprobe.judge.machine import machine_findings
from rocmprobe.judge.recommend import recommend
from rocmprobe.model import Results

__all__ = ["diagnose", "estimate", "judged", "machine_findings", "recommend"]


def judged(results: Results) -> Results:
    """``results`` with their findings, recommendation and, where it was asked for, estimate."""
    return replace(
        results,
        findings=diagnose(results),
        recommendation=recommend(results),
        estimate=estimate(results),
    )
