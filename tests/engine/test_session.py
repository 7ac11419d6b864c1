"""A session whose plan grows while its cases run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.budgets import BUDGETS
from rocmprobe.engine.journal import Journal, Run, RunJournal
from rocmprobe.engine.session import Session
from rocmprobe.engine.setup import Setup
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import Machine


def test_cases_that_are_added_during_the_run_are_planned_run_and_resumed(tmp_path: Path) -> None:
    targets, settings = (Device("cpu", "onednn"),), {"cpu": settings_for("onednn")}
    Journal(tmp_path, True).append(Run("0", "", RunOptions(), Machine(), targets, settings, None, ""))
    first = Case("cpu", "default", "copy", "float32")
    second = replace(first, check="elementwise", needs=(first.id,))
    setup, journal = Setup(RunOptions(), targets, settings, BUDGETS["quick"]), RunJournal(tmp_path)
    session = Session(setup, journal)
    try:
        session.plan([first])
        assert session.outcome(first).state == "pass"
        session.plan([second])
        assert session.outcome(second).state == "pass"
    finally:
        session.close(at_once=False)
    again = RunJournal(tmp_path)
    assert again.state == journal.state
    assert again.state.planned == set(again.state.outcomes) == {first.id, second.id}
    assert Session(setup, again).outcome(second) == journal.find(second.id)
