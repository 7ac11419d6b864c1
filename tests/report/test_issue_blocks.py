"""Issue blocks in full: the fields of each tracker's form, one failure, and what its maintainers ask for."""

from __future__ import annotations

import dataclasses

import pytest
import sample
from markdown_reading import fences, headings, sections

from rocmprobe.model.results import Fact, Machine, Results
from rocmprobe.report.issue.failure import TRACKERS, gravest
from rocmprobe.report.issue.issue import issue_block

ROCM_FIELDS = [
    "Problem Description", "Operating System", "CPU", "GPU", "ROCm Version", "ROCm Component",
    "Steps to Reproduce", "(Optional for Linux users) Output of /opt/rocm/bin/rocminfo --support",
    "Additional Information",
]  # fmt: skip
FIELDS = {
    "miopen": ROCM_FIELDS,
    "rocm": ROCM_FIELDS,
    "pytorch": ["🐛 Describe the bug", "Versions"],
    "ultralytics": [
        "Search before asking", "Ultralytics YOLO Component", "Bug", "Environment",
        "Minimal Reproducible Example", "Additional", "Are you willing to submit a PR?",
    ],
}  # fmt: skip


def with_facts(results: Results, **facts: object) -> Results:
    told = {name.replace("__", "."): Fact(value, "told") for name, value in facts.items()}
    machine = dataclasses.replace(results.machine, facts={**results.machine.facts, **told})
    return dataclasses.replace(results, machine=machine)


@pytest.mark.parametrize("tracker", TRACKERS)
def test_the_fields_of_the_form_in_its_order(tracker: str) -> None:
    assert headings(issue_block(sample.rdna1(), tracker, full=True)) == FIELDS[tracker]


def test_the_name_of_a_processor_stays_in_one_piece() -> None:
    results = with_facts(sample.rdna1(), cpu__name="Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz (@octocat)")
    told = sections(issue_block(results, "rocm", full=True))["CPU"]
    assert "Intel(R) Core(TM) i7-8700 CPU" in told
    assert "`Intel" not in told
    assert "(`@octocat`)" in told


@pytest.mark.parametrize("tracker", TRACKERS)
def test_first_what_fails_then_what_was_expected(tracker: str) -> None:
    block = issue_block(sample.rdna1(), tracker, full=True)
    assert block.startswith("**Do not file this: the machine was simulated")
    assert block.index("**What fails:**") < block.index("**What was expected:**")
    assert sample.STATUS in block
    assert "gfx1010 (RDNA1) was never in ROCm's list of supported GPUs" in block
    assert "SIMULATED" in block


def test_the_script_runs_without_rocmprobe_and_the_driver_has_its_line() -> None:
    found = dict(fences(sections(issue_block(sample.rdna1(), "miopen", full=True))["Steps to Reproduce"]))
    compile(found["python"], "repro.py", "exec")
    assert "rocmprobe" not in found["python"]
    assert found["sh"].startswith("HSA_OVERRIDE_GFX_VERSION=10.3.0 MIOpenDriver conv ")


def test_seven_questions_are_answered() -> None:
    event = {"kind": "gpu-reset", "address": None, "count": 2, "line": "amdgpu: GPU reset begin!"}
    results = dataclasses.replace(with_facts(sample.rdna1(), dmesg__events=[event]), simulated=None)
    told = sections(issue_block(results, "rocm", full=True))["Additional Information"]
    numbered = [line for line in told.splitlines() if line[:2] in [f"{number}." for number in range(1, 8)]]
    off, find, log, caches, supported, override, dmesg = numbered
    assert "`vendor-off` pass" in off
    assert "`bypass` pass" in off
    assert "`MIOPEN_FIND_MODE` was not set" in find
    assert "`MIOPEN_LOG_LEVEL=5 MIOPEN_ENABLE_LOGGING_CMD=1`" in log
    assert "its own user database and kernel cache, empty when the run began" in caches
    assert "gfx1010" in supported
    assert "Yes, to `10.3.0`; the GPU is `gfx1010`, the runtime treats it as `gfx1030`" in override
    assert "`gpu-reset`" in dmesg
    assert "`amdgpu: GPU reset begin!`" in dmesg
    assert "Not read" in issue_block(sample.rdna1(), "rocm", full=True)


def test_one_failure_and_how_to_have_the_others() -> None:
    results = sample.rdna1()
    block = issue_block(results, "miopen", full=True)
    assert block.count("**What fails:**") == 1
    others = sum(each.state == "error" for each in results.outcomes) - 1
    assert f"{others} other tests failed" in block
    assert "`rocmprobe repro results.json ID`" in block


def test_the_gravest_is_under_default_then_by_state_then_low_on_the_ladder() -> None:
    results = sample.rdna1()
    found = gravest(results, "miopen")
    assert found is not None
    assert (found.outcome.setting, found.outcome.rung, found.outcome.dtype) == ("default", "conv", "float32")
    worse = tuple(
        dataclasses.replace(each, state="crash")
        if each.setting == "default" and each.rung == "batch-norm"
        else each
        for each in results.outcomes
    )
    found = gravest(dataclasses.replace(results, outcomes=worse), "miopen")
    assert found is not None
    assert (found.outcome.rung, found.state) == ("batch-norm", "crash")


def test_what_was_expected_to_fail_is_told_with_what_it_came_to() -> None:
    block = issue_block(sample.expected(), "miopen", full=True)
    assert "ends in **error**" in block
    assert "**Known:** it failed `https://example.org/1`" in block


def test_wrong_numbers_come_with_their_limits() -> None:
    results = sample.rdna1()
    errors = {"rms_range": 0.07, "rms_range_limit": 3.7e-7, "repeatable": True}
    wrong = dataclasses.replace(
        next(each for each in results.outcomes if each.rung == "conv"), state="wrong", numerics=errors
    )
    block = issue_block(dataclasses.replace(results, outcomes=(wrong,)), "pytorch", full=True)
    assert "Title: `conv2d forward float32: wrong numbers" in block
    assert "`rms_range` is 0.07, the limit 3.7e-07; a second run gives the same bits." in block


@pytest.mark.parametrize("tracker", TRACKERS)
def test_where_nothing_failed_one_line_says_so(tracker: str) -> None:
    block = issue_block(sample.healthy_cpu(), tracker, full=True)
    assert block == "Nothing failed in this run: there is nothing to report to a tracker.\n"


def test_another_s_matter_is_named() -> None:
    results = sample.rdna1()
    off = tuple(
        dataclasses.replace(each, state="error")
        for each in results.outcomes
        if each.setting == "vendor-off" and each.check == "convolution"
    )
    block = issue_block(dataclasses.replace(results, outcomes=off), "miopen", full=True)
    assert block == (
        "No failure in this run belongs in the tracker miopen; there are some for: rocm, pytorch, "
        "ultralytics.\n"
    )
    bypass = tuple(dataclasses.replace(each, setting="bypass") for each in off)
    block = issue_block(dataclasses.replace(results, outcomes=bypass), "pytorch", full=True)
    assert ", or in another" in block


def test_a_failure_of_a_cpu_is_no_matter_of_rocm_s() -> None:
    results = sample.healthy_cpu()
    failed = tuple(
        dataclasses.replace(each, state="wrong") if each.rung == "conv" else each for each in results.outcomes
    )
    broken = dataclasses.replace(results, outcomes=failed)
    assert issue_block(broken, "rocm", full=True).endswith("there are some for: pytorch, ultralytics.\n")
    block = issue_block(broken, "pytorch", full=True)
    assert "**Does it work with the vendor library off?**" in block
    assert "find mode" not in block
    assert "Support:" not in block


def test_a_failure_without_a_script_says_why() -> None:
    results = sample.rdna1()
    (step,) = (each for each in results.outcomes if (each.rung, each.setting) == ("train", "default"))
    alone = dataclasses.replace(results, outcomes=(dataclasses.replace(step, state="error"),))
    told = sections(issue_block(alone, "miopen", full=True))["Steps to Reproduce"]
    assert "There is no script without rocmprobe" in told


def test_a_machine_of_which_nothing_is_known() -> None:
    results = dataclasses.replace(sample.rdna1(), machine=Machine(), settings=sample.rdna1().settings)
    for tracker in TRACKERS:
        block = issue_block(results, tracker, full=True)
        assert headings(block) == FIELDS[tracker]
    assert "not known" in sections(issue_block(results, "rocm", full=True))["ROCm Version"]
