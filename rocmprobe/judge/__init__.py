"""From outcomes to findings to a recommendation: pure functions of results."""

from __future__ import annotations

from dataclasses import replace

from rocmprobe.judge.diagnose import diagnose
from rocmprobe.judge.estimate import estimate
from rocmprobe.judge.machine import machine_findings
from rocmprobe.judge.recommend import recommend
from rocmprobe.judge.step_time import step_times
from rocmprobe.model import Results

__all__ = ["diagnose", "estimate", "judged", "machine_findings", "recommend", "step_times"]


def judged(results: Results) -> Results:
    """``results`` with their findings and recommendation, what the user's program takes, and the estimate
    where one was asked for."""
    results = replace(results, step_times=step_times(results))
    results = replace(results, findings=diagnose(results))
    return replace(results, recommendation=recommend(results), estimate=estimate(results))
