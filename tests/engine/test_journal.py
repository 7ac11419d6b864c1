"""The records of a journal: the classes decide which lines are whole and what is written."""

from __future__ import annotations

from typing import Any

import pytest

from rocmprobe.engine.journal import (
    Journal,
    Plan,
    Settled,
    Wedged,
    from_record,
    is_whole,
    parsed,
    to_record,
)
from rocmprobe.model.results import BadInput, Outcome
from rocmprobe.model.results_file import to_json

OUTCOME = Outcome("cpu/default/copy", "cpu", "default", "copy", "copy", "pass")


@pytest.mark.parametrize(
    ("kind", "content", "record"),
    [
        ("plan", {"cases": ("a", "b")}, Plan(("a", "b"))),
        ("wedged", {"device": "cuda:0"}, Wedged("cuda:0")),
        ("outcome", {"at": 1.5, "outcome": OUTCOME}, Settled(1.5, OUTCOME)),
    ],
)
def test_a_record_survives_the_journal(tmp_path, kind: str, content: dict[str, Any], record: Any) -> None:
    journal = Journal(tmp_path, redact=False)
    journal.append(kind, **content)
    [line] = parsed(journal.path.read_bytes().splitlines())
    assert from_record(line) == record


@pytest.mark.parametrize(
    "record",
    [
        None, [], {}, {"record": 1}, {"record": "plan"}, {"record": "plan", "cases": "a"},
        {"record": "waiting", "case": "a", "phase": "start", "left": "1"}, {"record": "outcome", "at": 1},
    ],
)  # fmt: skip
def test_a_line_without_the_fields_of_its_kind_is_skipped(record: Any) -> None:
    assert not is_whole(record)


def test_a_field_with_a_default_may_be_missing() -> None:
    assert is_whole({"record": "resumed", "at": "now"})
    assert is_whole({"record": "of a later version"})
    assert from_record({"record": "of a later version"}) is None


def test_a_wrong_type_within_a_record_is_refused() -> None:
    record = {"record": "outcome", "at": 1, "outcome": {**to_json(OUTCOME), "evidence": 1}}
    assert is_whole(record)
    with pytest.raises(BadInput, match="evidence"):
        from_record(record)


def test_a_field_that_a_record_does_not_have_is_not_written() -> None:
    with pytest.raises(TypeError):
        to_record("wedged", {"device": "cuda:0", "why": "?"})
