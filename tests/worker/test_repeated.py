"""The check that repeats copies and kernels, and cases that a worker repeats in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest
from asking import context
from runs import machine_file, run

from rocmprobe.checks import repeated as module
from rocmprobe.checks.repeated import COPIES, KERNELS, repeated
from rocmprobe.checks.tools.case import Case, trial_key
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.worker import main
from rocmprobe.worker.main import answer
from rocmprobe.worker.messages import Event, Repetition


def test_every_copy_and_kernel_of_a_cpu_is_exact() -> None:
    answer = repeated(context())
    assert (answer.state, answer.message) == ("pass", "")
    assert sum(answer.numerics.values()) == sum(count for _, count, _ in COPIES) + KERNELS


def test_a_slow_device_does_fewer_operations_and_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    answer = repeated(context())
    assert answer.state == "pass"
    kinds = answer.message.split("; ")
    assert len(kinds) == len(COPIES) + 1
    assert kinds[-1] == "only 60 of 3000 small kernels in 0 s, enough to find a fault in 1 of 20"
    assert answer.numerics["small kernels"] == 60
    # The same rule of three.
    assert 1 - (1 - 1 / 20) ** 60 > 0.95


def test_there_are_enough_operations_for_the_rate_that_the_check_promises() -> None:
    """The rule of three: without a fault in n operations, the rate is below 3 / n with 95 % confidence."""
    counts = {size: count for size, count, _ in COPIES}
    for count in (counts[4 << 10], counts[64 << 10], KERNELS):
        assert 1 - (1 - 0.001) ** count > 0.95
    assert 1 - (1 - 0.01) ** counts[1 << 20] > 0.95
    assert not any(count % at_once for _, count, at_once in COPIES)


@pytest.mark.parametrize(
    ("operator", "chance", "what"),
    # There are four times as many copies as kernels.
    [("^copy_$", 0.001, "KiB to the device and back"), ("^add_$", 0.004, "small kernels")],
)
@pytest.mark.thorough
def test_a_fault_in_one_of_a_thousand_operations_is_found(
    tmp_path: Path, operator: str, chance: float, what: str
) -> None:
    fault = {"library": "hip", "operator": operator, "effect": "wrong", "chance": chance}
    machine = machine_file(tmp_path / "machine.toml", fault)
    made = run(tmp_path / "out", "--simulate", machine, "--only", "repeated", "--settings", "default")
    outcome = next(each for name, each in made.outcomes.items() if "/repeated/" in name)
    assert outcome.fails, made.ended.stdout
    assert any(what in attempt.message for attempt in outcome.attempts)


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
