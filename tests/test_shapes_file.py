"""The file of `rocmprobe shapes`, read back into problems."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from rocmprobe.engine.conversation import kernel_threads
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import BadInput
from rocmprobe.model.results_file import from_json
from rocmprobe.model.shapes import Entry, Recorded, problem_of, read_shapes, write

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
    assert problem_of(from_json(Entry, record(text))) == parse_problem(text)


def test_a_file_holds_each_problem_once(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    write(path, {"problems": [record(TEXTS[1]), record(TEXTS[0]), record(TEXTS[1], device="cuda")]})
    assert read_shapes(path).texts == (TEXTS[1], TEXTS[0])
    assert [entry.name for entry in tmp_path.iterdir()] == ["shapes.json"]


def test_counts_and_versions_of_a_program(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    entries = [record(), record(TEXTS[1]), record(device="cuda")]
    write(path, {"torch": ["2.13.0"], "steps": {"made": 60}, "problems": entries})
    shapes = read_shapes(path)
    assert shapes.problems == (
        Recorded(TEXTS[0], {"fwd": 4, "bwd-data": 2, "bwd-weights": 2}),
        Recorded(TEXTS[1], {"fwd": 2, "bwd-data": 1, "bwd-weights": 1}),
    )  # fmt: skip
    assert shapes.torch == ("2.13.0",)


def test_processes_that_run_at_once_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5})
    assert [kernel_threads(True, sharing) for sharing in (1, 2, 8)] == [0, 1, 1]
    assert kernel_threads(False, 2) == 0


def test_the_heaviest_are_those_that_take_the_most_arithmetic(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    small, large = "conv1d-fp32-n1-c1-i9-k1-f3", "conv1d-fp32-n1-c8-i9-k8-f3"
    often = {"fwd": 1000, "bwd-data": 0, "bwd-weights": 0}
    write(path, {"problems": [record(large), record(small, counts=often)]})
    assert read_shapes(path).heaviest(1) == (small,)
    write(path, {"problems": [record(small, counts={}), record(large, counts={})]})
    assert read_shapes(path).heaviest(1) == (large,)


NO_SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "no problem": ({"problems": []}, "contains no problem"),
    "counts that are none": ({"problems": [record(counts=[1])]}, r"problems\[0\]\.counts`"),
    "a count below 0": ({"problems": [record(counts={"fwd": -1})]}, r"problems\[0\]\.counts\[\.\.\.\]`"),
    "versions that are none": ({"problems": [record()], "torch": 2}, r"`\$\.torch`"),
}


@pytest.mark.parametrize("what", NO_SHAPES)
def test_what_are_no_shapes_is_one_line(tmp_path: Path, what: str) -> None:
    content, words = NO_SHAPES[what]
    path = tmp_path / "shapes.json"
    write(path, content)
    with pytest.raises(BadInput, match=words) as refused:
        read_shapes(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


WRONG = {
    "a list for a kind": {"kind": ["conv2d"]},
    "a mapping for a dtype": {"dtype": {"float32": 1}},
    "a size that overflows": {"input": [1, 64, 3, 10**19]},
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
        read_shapes(path)
    assert re.search(r"problems\[1\](: |\.\w+(\[\d\])?`; )", str(refused.value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "schema_version is None"),
        ('{"schema_version": 9, "problems": []}', "schema_version is 9"),
        ('{"schema_version": 1}', "missing required field `problems`"),
    ],
)
def test_a_file_that_is_none_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "shapes.json"
    with pytest.raises(BadInput, match="cannot be read"):
        read_shapes(path)
    path.write_text(text)
    with pytest.raises(BadInput, match=words) as refused:
        read_shapes(path)
    assert "\n" not in str(refused.value)
    assert json.dumps(str(path))[1:-1] in str(refused.value)
