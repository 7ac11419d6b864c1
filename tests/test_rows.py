"""The decorator that runs a test over a whole table."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rows import every_row


def test_each_bad_row_is_named_and_the_others_run() -> None:
    seen = []

    @every_row(("number", "word"), [(1, "one"), pytest.param(2, "two"), (3, "three"), (4, "four")])
    def over(number: int, word: str) -> None:
        seen.append(number)
        if number == 1:
            pytest.skip("not here")
        if number == 3:
            pytest.fail("it is three")
        assert len(word) == number

    with pytest.raises(
        AssertionError, match=r"(?s)2 of 4 rows fail.*2, 'two'.*3, 'three': Failed: it is three"
    ):
        over()
    assert seen == [1, 2, 3, 4]


def test_a_row_that_skips_makes_a_skip() -> None:
    @every_row("number", [1, 2])
    def over(number: int) -> None:
        if number == 1:
            pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception, match="not here"):
        over()


@every_row("second", ["c", "d"])
@every_row("first", ["a", "b"])
def test_each_row_has_a_folder_and_variables_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert "ROCMPROBE_ROW" not in os.environ
    monkeypatch.setenv("ROCMPROBE_ROW", first + second)


def test_a_table_without_rows_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="over has no rows"):

        @every_row("row", [])
        def over(row: int) -> None:
            pass
