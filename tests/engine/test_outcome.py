"""Outcomes made from the replies of workers."""

from __future__ import annotations

import math

from rocmprobe.backends import BACKENDS
from rocmprobe.checks.tools.case import Case
from rocmprobe.checks.tools.context import CheckResult
from rocmprobe.engine.conversation import Reply
from rocmprobe.engine.outcome import outcome_of
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.results import Outcome

CASE = Case("cpu", "default", "copy", "float32")


def made(*results: CheckResult) -> Outcome:
    replies = [Reply([result], f"trial {number}") for number, result in enumerate(results)]
    setting = settings_for("onednn")[0]
    return outcome_of(CASE, replies, Device("cpu", "onednn"), setting, BACKENDS["onednn"])


def test_numbers_that_json_lacks_become_none() -> None:
    numerics = {"max_abs": math.inf, "list": [math.nan, 1.5], "exact": True}
    outcome = made(CheckResult("wrong", "differs", numerics=numerics))
    assert outcome.numerics == {"max_abs": None, "list": [None, 1.5], "exact": True}


def test_a_failure_and_a_pass_are_flaky() -> None:
    outcome = made(CheckResult("crash", "the process ended", "SIGSEGV"), CheckResult())
    assert (outcome.state, outcome.trial) == ("flaky", "trial 1")
    assert [attempt.trial for attempt in outcome.attempts] == ["trial 0", "trial 1"]
    assert outcome.evidence[0] == "1 of 2 tries failed: the process ended"
