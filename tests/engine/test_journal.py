"""The records of a journal, written, read and redacted; and a session whose plan grows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from rocmprobe.checks.tools.case import Case
from rocmprobe.detect import detect
from rocmprobe.engine.budgets import BUDGETS
from rocmprobe.engine.journal import (
    End,
    Intent,
    Journal,
    Plan,
    Record,
    Resumed,
    Retry,
    Run,
    RunJournal,
    Settled,
    Wedged,
    encode,
    records,
)
from rocmprobe.engine.run import begin, results, resume
from rocmprobe.engine.session import Session
from rocmprobe.engine.setup import Setup
from rocmprobe.engine.targets import Device
from rocmprobe.judge.notices import notices
from rocmprobe.knowledge.settings import settings_for
from rocmprobe.model.baseline import identity
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import BadInput, Fact, Machine, Outcome, Setting
from rocmprobe.revision import version
from rocmprobe.text import redact

OUTCOME = Outcome("cpu/default/copy", "cpu", "default", "copy", "copy", "pass")
RUN = Run(
    "0", "", RunOptions(), Machine(), (Device("cpu", "onednn"),),
    {"cpu": (Setting("default", "", "native"),)}, None, "",
)  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(tmp_path, redact=False)
    made.append(RUN)
    return made


@pytest.mark.parametrize(
    "record",
    [Plan(("a", "b")), Wedged("cuda:0"), Settled(1.5, OUTCOME),
     Settled(1.5, replace(OUTCOME, evidence=("\u2028é",), timings={"odd": [float("inf")]}))],
)  # fmt: skip
def test_a_record_survives_the_journal(tmp_path: Path, journal: Journal, record: Record) -> None:
    journal.append(record)
    assert records(tmp_path) == [RUN, record]


def test_half_a_surrogate_pair_is_not_written(tmp_path: Path, journal: Journal) -> None:
    journal.append(Wedged("\udcff"))
    assert records(tmp_path) == [RUN, Wedged("?")]


def test_the_state_in_memory_is_the_state_on_disk(tmp_path: Path, journal: Journal) -> None:
    case = Case("cpu", "default", "copy", "float32")
    blocked = replace(OUTCOME, id="b", state="blocked")
    for record in (
        Plan((case.id,)), Intent(1.0, case.id, case), Settled(2.0, OUTCOME), Settled(2.0, blocked),
        Wedged("cpu"), Resumed("now", "boot"), Intent(3.0, "b", case), Retry("b"), Plan(("c",)), End("then"),
    ):  # fmt: skip
        journal.append(record)
    assert RunJournal(tmp_path).state == journal.state
    assert journal.state.planned == {case.id, "c"}
    assert set(journal.state.outcomes) == {OUTCOME.id}
    assert not journal.wedged("cpu")
    assert journal.state.finished == "then"


def test_a_process_that_was_killed_in_a_line_costs_only_this_line(tmp_path: Path, journal: Journal) -> None:
    with journal.path.open("ab") as stream:
        stream.write(b'{"record": "end", "at')
    journal.append(Wedged("cpu"))
    assert records(tmp_path) == [RUN, Wedged("cpu")]


@pytest.mark.parametrize("damage", ['"evidence": 1', '"evidence": ['])
def test_a_damaged_outcome_is_left_out_and_its_case_runs_again(tmp_path: Path, damage: str) -> None:
    journal = Journal(tmp_path, redact=False)
    journal.append(msgspec.structs.replace(RUN, machine=detect(), rocmprobe=version()))
    ended, lost, running = (Case("cpu", "default", check, "float32") for check in ("copy", "gemm", "im2col"))
    for case in (ended, lost, running):
        journal.intent(case)
        if case is not running:
            journal.outcome(replace(OUTCOME, id=case.id))
    lines = journal.path.read_text("utf-8").splitlines(keepends=True)
    lines[4] = lines[4].replace('"evidence": []', damage)
    journal.path.write_text("".join(lines), "utf-8")
    resume(tmp_path, retry_aborted=False)
    states = {id: outcome.state for id, outcome in RunJournal(tmp_path).state.outcomes.items()}
    assert states == {ended.id: "pass", running.id: "aborted"}
    (notice,) = [each.body for each in notices(results(RunJournal(tmp_path))) if each.kind == "damaged"]
    assert notice.startswith("1 record of the journal could not be read and was left out: line 5. ")


def test_a_run_on_another_machine_continues_only_by_force(tmp_path: Path) -> None:
    here = detect()
    facts = {**here.facts, "torch.version": Fact("1.0", ""), "kernel.release": Fact("5.0", "")}
    began = msgspec.structs.replace(RUN, machine=replace(here, facts=facts))
    Journal(tmp_path, redact=False).append(began)
    changed = r"machine changed .*\(torch 1.0 → .*; kernel 5.0 → .*; rocmprobe 0 → "
    with pytest.raises(BadInput, match=changed):
        resume(tmp_path, retry_aborted=False)
    resume(tmp_path, retry_aborted=False, force=True)
    assert RunJournal(tmp_path).state.changes(identity(here, version())) == ()
    found = results(RunJournal(tmp_path))
    assert [change.split()[0] for change in found.options["changed"]] == ["torch", "kernel", "rocmprobe"]
    (notice,) = [each.body for each in notices(found) if each.kind == "changed"]
    assert "torch 1.0 → " in notice


@pytest.mark.parametrize("content", [encode(RUN)[:-9], bytes(512)])
def test_a_run_that_was_killed_in_its_first_record_can_be_started_again(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "journal.jsonl").write_bytes(content)
    with pytest.raises(BadInput, match="was killed before its first record; start it again"):
        resume(tmp_path, retry_aborted=False)
    assert begin(RunOptions(device="cpu"), tmp_path) == tmp_path
    assert RunJournal(tmp_path).run.devices == ["cpu"]


@pytest.mark.parametrize("content", [b"mine", encode(RUN) + b'{"rec'])
def test_a_journal_of_a_run_or_of_the_user_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.jsonl").write_bytes(content)
    with pytest.raises(BadInput, match="already has a run"):
        begin(RunOptions(device="cpu"), tmp_path)
    assert (tmp_path / "journal.jsonl").read_bytes() == content


def test_the_file_the_state_and_the_returned_outcome_are_redacted(tmp_path: Path) -> None:
    journal = Journal(tmp_path, redact=True)
    journal.append(RUN)
    told = replace(OUTCOME, evidence=("/home/jane-roe/x.py: 10.20.30.40:8080",), attempts=())
    returned = journal.outcome(told)
    assert "jane" not in journal.path.read_text("utf-8")
    assert returned == journal.find(OUTCOME.id) == RunJournal(tmp_path).find(OUTCOME.id)
    plain = json.loads(journal.path.read_text("utf-8").splitlines()[1])["outcome"]["evidence"]
    assert plain == list(returned.evidence) == [redact.redacted_text(told.evidence[0])]
    assert returned.id == OUTCOME.id


@pytest.mark.parametrize(("ran", "finished"), [(False, "first"), (True, "second")])
def test_a_resumed_run_keeps_its_end_if_no_case_ran(
    tmp_path: Path, journal: Journal, ran: bool, finished: str
) -> None:
    case = Case("cpu", "default", "copy", "float32")
    journal.append(End("first"))
    journal.append(Resumed("later", "boot"))
    if ran:
        journal.append(Intent(1.0, case.id, case))
    journal.append(End("second"))
    assert RunJournal(tmp_path).state.finished == finished


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
