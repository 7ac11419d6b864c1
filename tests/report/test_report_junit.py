"""The JUnit file, as CI services read it."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

import sample
from rendering import Rendered, render


def suite(rendered: Rendered) -> ET.Element:
    found = ET.parse(rendered.junit).getroot().find("testsuite")
    assert found is not None
    return found


def test_counts_and_attributes_are_those_of_the_run(rdna1: Rendered) -> None:
    root = suite(rdna1)
    outcomes = sample.rdna1().outcomes
    assert int(root.attrib["tests"]) == len(outcomes) == len(root.findall("testcase"))
    assert int(root.attrib["failures"]) == sum(each.state == "error" for each in outcomes)
    assert int(root.attrib["skipped"]) == sum(each.state == "blocked" for each in outcomes)
    assert "hostname" not in root.attrib
    assert root.attrib["timestamp"] == "2026-11-20T14:03:11+00:00"
    assert float(root.attrib["time"]) == 58
    properties = {each.attrib["name"]: each.attrib["value"] for each in root.findall("properties/property")}
    assert properties["simulated"] == "rdna1-rocm52-conv-dead"
    assert properties["verdict"] == "bypass"


def test_cases_carry_state_and_evidence(rdna1: Rendered) -> None:
    cases = suite(rdna1).findall("testcase")
    failed = next(case for case in cases if case.find("failure") is not None)
    failure = failed.find("failure")
    assert failure is not None
    assert sample.STATUS in failure.attrib["message"]
    blocked = next(case for case in cases if case.find("skipped") is not None)
    skipped = blocked.find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith("blocked: ")
    states = {each.attrib["value"] for each in failed.findall("properties/property[@name='state']")}
    assert states == {"error"}


def test_seconds_of_a_case_are_those_of_its_attempts(tmp_path: Path) -> None:
    """What a yardstick does, in ``timings`` as well, is no time."""
    timings = {"fwd": 1.0, "gemm_flops": 1e10, "copy_bytes": 1e9}
    outcomes = [
        sample.outcome("default", "throughput", "conv", "pass", timings=timings, seconds=seconds)
        for seconds in (0.0, 0.25)
    ]
    root = suite(render(dataclasses.replace(sample.healthy_cpu(), outcomes=tuple(outcomes)), tmp_path))
    assert [float(case.attrib["time"]) for case in root.findall("testcase")] == [0.0, 0.25]


def test_hostile_text_leaves_it_well_formed(hostile: Rendered) -> None:
    root = suite(hostile)
    assert len(root.findall("testcase")) == len(sample.rdna1().outcomes)
    text = hostile.junit.read_text("utf-8")
    assert not any(ord(character) < 32 and character not in "\n\t" for character in text)


def test_long_texts_are_cut_and_names_stay_whole(tmp_path: Path) -> None:
    said = "y" * 30_000
    outcomes = tuple(
        dataclasses.replace(
            sample.outcome("default", "convolution", "conv", "error", evidence=(said,), seconds=seconds),
            id=name,
        )
        for name, seconds in (("x::y[z]", -1.0), ("d", 1.0))
    )
    changed = dataclasses.replace(sample.healthy_cpu(), outcomes=outcomes, started="once")
    root = suite(render(changed, tmp_path))
    assert not {"hostname", "timestamp"} & set(root.attrib)
    cases = root.findall("testcase")
    assert [each.attrib["name"] for each in cases] == ["x::y[z]", "d"]
    assert [each.attrib["classname"] for each in cases] == ["convolution.default"] * 2
    assert [float(each.attrib["time"]) for each in cases] == [0, 2]
    failure = cases[0].find("failure")
    assert failure is not None
    assert len(failure.attrib["message"]) <= 1000
    assert failure.text is not None
    assert len(failure.text) <= 20_000
    assert "cut here" in failure.text


def test_every_state_is_a_result_that_readers_know(tmp_path: Path) -> None:
    expected = {
        "pass": [], "slow": [], "xpass": [], "wrong": ["failure"], "hang": ["failure"],
        "probe-error": ["error"],
        "xfail": ["skipped pytest.xfail"], "blocked": ["skipped pytest.skip"], "n/a": ["skipped pytest.skip"],
    }  # fmt: skip
    outcomes = tuple(
        dataclasses.replace(
            sample.outcome("default", "gemm", "gemm", state, message=f"why {state}"), id=f"case {state}"
        )
        for state in expected
    )
    root = suite(render(dataclasses.replace(sample.healthy_cpu(), outcomes=outcomes), tmp_path))
    assert [root.attrib[name] for name in ("tests", "failures", "errors", "skipped")] == ["9", "2", "1", "3"]
    for case, (state, found) in zip(root.findall("testcase"), expected.items()):
        said = [each for each in case if each.tag != "properties"]
        assert [f"{each.tag} {each.get('type', '')}".strip() for each in said] == found
        assert all(each.attrib["message"].startswith(f"{state}: why {state}") for each in said)
