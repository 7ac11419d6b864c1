"""The file of `rocmprobe shapes`, read back into problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocmprobe.model import BadInput
from rocmprobe.problems import parse_problem
from rocmprobe.shapes import problem_of, read_problems, write

TEXTS = (
    "conv2d-fp16-n4-c64-i56x48-k128-f3x1-s2x1-p1-g2-bias-nhwc", "conv1d-fp32-n1-c4-i9-k6-f3-d2",
    "conv3d-fp64-n1-c4-i5x6x7-k3-f3x3x3", "conv_transpose2d-bf16-n1-c4-i5x5-k6-f3x3-s2-p1-o1-g2",
)  # fmt: skip


def record(text: str = TEXTS[0], **changes: object) -> dict[str, Any]:
    """What is recorded of a problem has the fields that results have."""
    counts = {"fwd": 2, "bwd-data": 1, "bwd-weights": 1}
    return {**parse_problem(text).as_json(), "device": "cpu", "counts": counts, **changes}


@pytest.mark.parametrize("text", TEXTS)
def test_a_record_is_the_problem_again(text: str) -> None:
    assert problem_of(record(text)) == parse_problem(text)


def test_a_file_holds_each_problem_once(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    write(path, {"problems": [record(TEXTS[1]), record(TEXTS[0]), record(TEXTS[1], device="cuda")]})
    assert read_problems(path) == (parse_problem(TEXTS[1]), parse_problem(TEXTS[0]))
    assert [entry.name for entry in tmp_path.iterdir()] == ["shapes.json"]


WRONG = {
    "a field that is missing": {"stride": None},
    "a size that is no number": {"input": [1, "two", 3, 3]},
    "a wrong rank": {"stride": [1]},
    "channels that do not belong together": {"weight": [128, 7, 3, 1]},
    "a dtype that is not asked about": {"dtype": "int64"},
    "no output": {"input": [4, 64, 1, 1], "padding": [0, 0]},
    "no groups": {"groups": 0},
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_problem_is_named_by_its_place(tmp_path: Path, what: str) -> None:
    path = tmp_path / "shapes.json"
    write(path, {"problems": [record(), record(**WRONG[what])]})
    with pytest.raises(BadInput) as refused:
        read_problems(path)
    assert str(refused.value).startswith(f"{path}: problems/1: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "schema_version is None"),
        ('{"schema_version": 9, "problems": []}', "schema_version is 9"),
        ('{"schema_version": 1}', "problems: is no list"),
    ],
)
def test_a_file_that_is_none_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "shapes.json"
    with pytest.raises(BadInput, match="cannot be read"):
        read_problems(path)
    path.write_text(text)
    with pytest.raises(BadInput, match=words) as refused:
        read_problems(path)
    assert "\n" not in str(refused.value)
    assert json.dumps(str(path))[1:-1] in str(refused.value)
