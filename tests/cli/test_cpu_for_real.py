"""A whole run on this CPU: what oneDNN ran is named, and settings change it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from runs import run

pytest.importorskip("torch")

#: Large enough for PyTorch to give it to oneDNN whatever the number of threads.
PROBLEM = "conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1"
FP64 = PROBLEM.replace("fp32", "fp64")
SETTINGS = "isa-avx2,isa-sse41,vendor-off,bypass,channels-last,float64"
#: oneDNN's names of what it runs on more than one instruction set.
_WIDER = re.compile("avx512|avx10|amx|avx2_vnni")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Mapping[str, Any]]:
    """The outcomes as other programs find them, in results.json."""
    folder = tmp_path_factory.mktemp("cpu") / "out"
    made = run(
        folder, "--device", "cpu", "--only", "convolution", "--settings", SETTINGS, "--problem", PROBLEM,
        "--problem", FP64,
    )  # fmt: skip
    assert made.ended.returncode == 0, made.ended.stdout + made.ended.stderr
    found: list[Mapping[str, Any]] = json.loads((folder / "results.json").read_text("utf-8"))["outcomes"]
    assert {outcome["state"] for outcome in found} <= {"pass", "slow"}
    return found


def solvers(outcomes: list[Mapping[str, Any]], setting: str, dtype: str = "float32") -> set[Any]:
    found = [each for each in outcomes if (each["setting"], each["dtype"]) == (setting, dtype)]
    assert len(found) == 3
    return {each["solver"] for each in found}


@pytest.mark.parametrize("setting", ["default", "isa-avx2", "isa-sse41", "channels-last"])
def test_every_row_that_enters_onednn_names_its_implementation(
    outcomes: list[Mapping[str, Any]], setting: str
) -> None:
    assert all(solvers(outcomes, setting))


@pytest.mark.parametrize("setting", ["vendor-off", "bypass"])
def test_with_the_library_off_no_primitive_runs(outcomes: list[Mapping[str, Any]], setting: str) -> None:
    assert solvers(outcomes, setting) == {None}


@pytest.mark.parametrize("setting", ["default", "float64"])
def test_fp64_never_enters_onednn(outcomes: list[Mapping[str, Any]], setting: str) -> None:
    assert solvers(outcomes, setting, "float64") == {None}


def test_the_instruction_set_that_a_setting_allows_is_the_one_that_runs(
    outcomes: list[Mapping[str, Any]],
) -> None:
    assert not any(_WIDER.search(each) for each in solvers(outcomes, "isa-avx2"))
    assert not any(re.search("avx", each) for each in solvers(outcomes, "isa-sse41"))
    if any(re.search("avx", each) for each in solvers(outcomes, "default")):
        assert solvers(outcomes, "isa-sse41") != solvers(outcomes, "default")
    if any(_WIDER.search(each) for each in solvers(outcomes, "default")):
        assert solvers(outcomes, "isa-avx2") != solvers(outcomes, "default")


def test_channels_last_asks_about_the_same_problem(outcomes: list[Mapping[str, Any]]) -> None:
    found = {each["problem"] for each in outcomes if each["setting"] == "channels-last"}
    assert found == {f"{PROBLEM}-nhwc", f"{FP64}-nhwc"}
