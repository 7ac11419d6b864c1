"""``benchmarks/same_results.py``: which differences between two recordings it prints, and which count."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from runs import CHECKOUT


@pytest.fixture(scope="module")
def same() -> ModuleType:
    spec = importlib.util.spec_from_file_location("same_results", CHECKOUT / "benchmarks" / "same_results.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recording(folder: Path, **entries: Any) -> Path:
    folder.mkdir()
    for name, data in entries.items():
        (folder / f"{name}.json").write_text(json.dumps(data))
    return folder


def test_equal_recordings_have_no_difference(same: ModuleType, tmp_path: Path) -> None:
    data = {"exit": 0, "stdout": ["a", "b"]}
    before, after = (recording(tmp_path / name, detect=data) for name in ("before", "after"))
    assert same.compare(before, after, None) == 0


def test_each_difference_is_printed_and_an_expected_one_does_not_count(
    same: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = recording(tmp_path / "before", run={"outcomes": {"x": "pass"}, "exit": 0}, gone={"exit": 0})
    after = recording(tmp_path / "after", run={"outcomes": {"x": "wrong"}, "exit": 0})
    assert same.compare(before, after, None) == 1
    printed = capsys.readouterr().out
    assert "run: outcomes/x: pass -> wrong\n" in printed
    assert "gone: entry: recorded -> missing\n" in printed
    expected = tmp_path / "expected"
    expected.write_text("^run: outcomes/x # the bug is fixed\n^gone: # the command went\n^never # unused\n")
    assert same.compare(before, after, expected) == 0
    assert "expected, but absent: ^never # unused" in capsys.readouterr().out
    expected.write_text("^run:\n")
    with pytest.raises(SystemExit, match="no reason"):
        same.compare(before, after, expected)


def test_an_inserted_line_is_one_difference(same: ModuleType) -> None:
    found = same.differences({"stdout": ["a", "b"]}, {"stdout": ["a", "new", "b"]})
    assert list(found) == [("stdout, line 2", "", "new")]


def test_a_moved_line_is_no_difference(same: ModuleType) -> None:
    assert not list(same.differences({"rows": ["a 1 s", "b", "c"]}, {"rows": ["b", "c", "a 2 ms"]}))
    assert list(same.differences({"rows": ["a", "b", "a"]}, {"rows": ["b", "a"]})) == [
        ("rows, line 1", "a", "")
    ]


def test_what_differs_by_nature_is_replaced(same: ModuleType) -> None:
    text = (
        "2026-11-23T11:40:23Z pid 4711 took 1.5 s in /tmp/x/run, rocmprobe 0.1.0, cuda:0/torch/default#e2ff00"
    )
    normal = "DATE PID took TIME in WORK/run, rocmprobe VERSION, cuda:0/torch/default#HASH"
    assert same.normal(text, {"/tmp/x": "WORK"}) == normal
    assert same.normal("conv2d-fp32-n1-c4-i8x8-k4-f3x3 on gfx1010, ROCm 5.4", {}).startswith(
        "conv2d-fp32-n1-c4-i8x8"
    )
    data = {"pid": 12, "seconds": 1.5, "count": 3}
    assert same.normal_data(data, {}) == {"pid": "NUMBER", "seconds": "NUMBER", "count": 3}


def test_a_page_is_compared_by_its_visible_text(same: ModuleType) -> None:
    assert same.VisibleText("<style>a</style><p>one <b>two</b></p><script>3</script>").lines == ["one", "two"]
