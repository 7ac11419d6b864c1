"""From outcomes to findings to a recommendation: pure functions of results."""

from __future__ import annotations

from dataclasses import replace

from rocmprobe.judge.diagnose import diagnose
from rocmprobe.judge.machine import machine_findings
from rocmprobe.judge.recommend import recommend
from rocmprobe.judge.step_time import step_times
from rocmprobe.model import Results

__all__ = ["diagnose", "judged", "machine_findings", "recommend", "step_times"]


def judged(results: Results) -> Results:
    """``results`` with their findings, their recommendation, and what the user's program takes."""
    return replace(
        results,
        findings=diagnose(results),
        recommendation=recommend(results),
        step_times=step_times(results),
    )
