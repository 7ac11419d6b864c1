"""Cases that a worker repeats in one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from rocmprobe.checks.tools.case import Case, trial_key
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.worker import main
from rocmprobe.worker.main import answer
from rocmprobe.worker.messages import Event, Repetition

CASE = Case("cuda:0", "default", "copy", "float32", repeats=100)


class Scripted:
    """A driver whose attempt number ``failing`` gives ``state``, and whose other attempts pass."""

    def __init__(self, failing: int, state: str = "wrong") -> None:
        self.failing, self.state = failing, state
        self.attempts = 0

    def library_version(self) -> Optional[str]:
        return None

    def attempt(self, case: Case) -> CheckResult:
        self.attempts += 1
        return CheckResult(self.state, "bytes changed") if self.attempts == self.failing else CheckResult()

    def device_answers(self) -> bool:
        return True


@pytest.mark.parametrize("state", ["wrong", "n/a"])
def test_the_first_failure_ends_the_repetitions(state: str) -> None:
    driver = Scripted(7, state)
    events: list[Event] = []
    attempts, poisoned = answer(driver, CASE, events.append)
    assert (attempts[0].state, attempts[0].message) == (state, "repetition 7 of 100: bytes changed")
    assert [each.state for each in attempts[1:]] == ["pass"] * (state == "wrong")
    assert not poisoned
    assert events == [Repetition(number) for number in range(1, 8)]


def test_all_repetitions_pass() -> None:
    driver = Scripted(0)
    attempts, _ = answer(driver, CASE, lambda event: None)
    assert ([each.state for each in attempts], driver.attempts) == (["pass"], 100)
    assert (attempts[0].message, attempts[0].numerics) == ("", {"repetitions": 100})


def test_a_slow_case_is_repeated_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "SECONDS_PER_REPETITION", 0.0)
    (attempt,), _ = answer(Scripted(0), CASE, lambda event: None)
    assert (attempt.state, attempt.numerics) == ("pass", {"repetitions": 2})
    assert attempt.message == "only 2 of 100 repetitions, because each is slow"


def test_a_case_without_repetitions_is_retried_after_a_failure() -> None:
    attempts, _ = answer(Scripted(1), replace(CASE, repeats=1), lambda event: None)
    assert [each.state for each in attempts] == ["wrong", "pass"]


def test_the_id_names_the_repetitions() -> None:
    assert CASE.id == "cuda:0/default/copy/float32/x100"
    assert replace(CASE, repeats=1).id == "cuda:0/default/copy/float32"
    assert trial_key(CASE.id) == CASE.trial_key == replace(CASE, repeats=1).trial_key
