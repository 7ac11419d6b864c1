"""All that is judged of a run, in the order in which each step depends on the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from rocmprobe.judge.assessment import by_severity
from rocmprobe.judge.comparison.changes import changes_since, expectation_findings
from rocmprobe.judge.expected import Expectations
from rocmprobe.judge.findings.diagnose import diagnose
from rocmprobe.judge.recommendation.estimate import estimate
from rocmprobe.judge.recommendation.recommend import recommend
from rocmprobe.judge.recommendation.step_time import step_times
from rocmprobe.knowledge.expectations import observed
from rocmprobe.model.baseline import Baseline
from rocmprobe.model.results import Results


def judge(results: Results, baseline: Optional[Baseline] = None) -> Results:
    """``results`` with their findings and recommendation, what the user's program takes, the estimate where
    one was requested, and what was expected of each outcome, by the table of known failures and ``baseline``.

    Findings and recommendation rest on the outcomes as they came: a known failure is a failure.
    """
    came = replace(results, outcomes=tuple(map(observed, results.outcomes)))
    came = replace(came, step_times=step_times(came))
    came = replace(came, findings=diagnose(came))
    expected = Expectations(came.machine, baseline)
    marked = replace(
        came,
        outcomes=tuple(map(expected.marked, results.outcomes)),
        changes=changes_since(baseline, came.outcomes) if baseline else results.changes,
    )
    return replace(
        marked,
        findings=by_severity([*came.findings, *expectation_findings(marked)]),
        recommendation=recommend(came),
        estimate=estimate(came),
    )
