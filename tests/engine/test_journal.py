"""The records of a journal: what is written is read as the same record, and what is shown is redacted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rocmprobe.checks.tools.case import Case
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
    records,
)
from rocmprobe.engine.targets import Device
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import BadInput, Machine, Outcome, Setting
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
     Settled(1.5, replace(OUTCOME, evidence=("\udcff",), timings={"odd": [float("inf")]}))],
)  # fmt: skip
def test_a_record_survives_the_journal(tmp_path: Path, journal: Journal, record: Record) -> None:
    journal.append(record)
    assert records(tmp_path) == [RUN, record]


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


def test_a_wrong_type_within_a_record_is_refused_by_its_place(tmp_path: Path, journal: Journal) -> None:
    journal.append(Settled(1, OUTCOME))
    text = journal.path.read_text("utf-8").replace('"evidence": []', '"evidence": 1')
    journal.path.write_text(text, "utf-8")
    with pytest.raises(
        BadInput, match=r"journal.jsonl: record: .*`\$.outcome.evidence`; the file is damaged"
    ):
        RunJournal(tmp_path)


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
