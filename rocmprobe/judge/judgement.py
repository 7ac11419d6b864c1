"""Judgement of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from rocmprobe.judge.assessment import by_severity
from rocmprobe.judge.blame import contradicts, with_confirmation
from rocmprobe.judge.changes import changes_since
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.diagnose import diagnose, expectation_findings
from rocmprobe.judge.recommendation.recommend import recommend
from rocmprobe.judge.remedies import with_remedies
from rocmprobe.knowledge.expectations import Expectation, expectations, observed
from rocmprobe.model.baseline import Baseline
from rocmprobe.model.changes import BASELINE, TABLE, Expected
from rocmprobe.model.results import Machine, Outcome, Results
from rocmprobe.model.states import fails, works


def judge(results: Results, baseline: Optional[Baseline] = None) -> Results:
    """Return ``results`` with findings, recommendation and expected failures.

    Expected failures come from ``baseline`` and from the table of known failures.
    """
    # Findings and recommendation use the observed states, because a known failure is still a failure.
    came = replace(results, outcomes=tuple(map(observed, results.outcomes)))
    run = Evidence(came)
    found = diagnose(run)
    expected = Expectations(came.machine, baseline)
    marked = replace(
        came,
        outcomes=tuple(map(expected.marked, results.outcomes)),
        changes=changes_since(baseline, came.outcomes) if baseline else results.changes,
    )
    judged = replace(
        marked,
        findings=by_severity(
            with_confirmation(run, finding) for finding in (*found, *expectation_findings(Evidence(marked)))
        ),
        recommendation=recommend(run, found),
    )
    return with_remedies(judged)


@dataclass(frozen=True)
class Expectations:
    """The failures that are expected on one machine.

    ``baseline`` has priority over ``rows``, the table of known failures.
    """

    machine: Machine
    baseline: Optional[Baseline] = None
    rows: Optional[tuple[Expectation, ...]] = None

    def marked(self, outcome: Outcome) -> Outcome:
        """Return ``outcome`` as ``xfail`` or ``xpass`` if a failure was expected, else in its observed
        state."""
        plain = observed(outcome)
        # Without a new baseline, keep the state that follows from an earlier baseline.
        if self.baseline is None and outcome.expected and outcome.expected.source == BASELINE:
            return outcome
        expected = self._expected(plain)
        if expected is None:
            return plain
        return replace(plain, state="xfail" if plain.fails else "xpass", expected=expected)

    def _expected(self, outcome: Outcome) -> Optional[Expected]:
        before = self.baseline.states.get(outcome.id) if self.baseline else None
        if self.baseline is None or not (fails(before) or works(before)):
            return self._by_table(outcome)
        if works(before):
            return None
        if outcome.fails:
            # If the failure is in the baseline and in the table, use the table, which has more details.
            return self._by_table(outcome) or self.baseline.expected(outcome)
        # A flaky case can pass by chance, which proves nothing.
        return self.baseline.expected(outcome) if outcome.works and before != "flaky" else None

    def _by_table(self, outcome: Outcome) -> Optional[Expected]:
        failing = outcome.fails
        if not outcome.learned:
            return None
        rows = expectations() if self.rows is None else self.rows
        for row in rows:
            matches = outcome.state in row.states if failing else not row.sometimes
            if not matches or not row.applies(self.machine, outcome):
                continue
            if not failing or not contradicts(self.machine, outcome, row.cause):
                return Expected(outcome.state, TABLE, row.reason, row.link, row.cause)
        return None
