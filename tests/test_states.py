"""The table of states, and the readers of results that take the meaning of a state from it."""

from __future__ import annotations

import dataclasses
from typing import Optional

import pytest
import sample

from rocmprobe.judge.assessment import failed
from rocmprobe.judge.failures import worst
from rocmprobe.model.results import BadInput, Outcome
from rocmprobe.model.results_file import from_json, to_json
from rocmprobe.model.states import STATES
from rocmprobe.pytest_plugin import assert_outcome
from rocmprobe.report.junit import reported


def outcome(state: str, cause: Optional[str] = None) -> Outcome:
    problem, direction = sample.PROBLEMS[0], "fwd"
    found = sample.outcome("default", "convolution", "conv", state, problem=problem, message=f"why {state}")
    return dataclasses.replace(found, direction=direction, failure=cause)


@pytest.mark.parametrize("state", STATES.values())
def test_a_state_works_or_fails_or_proves_nothing(state) -> None:
    assert not (state.works and (state.fails or state.blocks))
    assert state.blocks or not state.fails
    words = {"passed", "xpassed"} if state.works else {"failed", "xfailed"}
    assert (state.pytest in words) == state.learned


@pytest.mark.parametrize("cause", ["run-died", "machine-died"])
def test_every_reader_agrees_on_an_aborted_case(cause: str) -> None:
    aborted, fails = outcome("aborted", cause), cause == "machine-died"
    assert bool(failed([aborted])) == aborted.fails == aborted.learned == aborted.blocks == fails
    results = dataclasses.replace(sample.healthy_cpu(), outcomes=(aborted,))
    assert reported(results)[0].outcome == ("failed" if fails else "skipped")
    assert aborted.meaning.pytest == ("failed" if fails else "skipped")
    with pytest.raises(pytest.fail.Exception if fails else pytest.skip.Exception):
        assert_outcome(aborted)


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(BadInput, match="state"):
        from_json(Outcome, {**to_json(outcome("pass")), "state": "fine"})


def test_an_ended_case_hides_no_failure() -> None:
    ended, flaky = outcome("aborted", "run-died"), outcome("flaky")
    assert worst([ended, flaky]) is flaky
    assert worst([outcome("aborted", "machine-died"), flaky]).state == "aborted"
