"""Issue texts by default: 30 lines with error, script, MIOpenDriver line, environment and report."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import sample
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_reading import fences, headings, sections
from runs import cli
from test_problems import any_problem
from tiers import examples

from rocmprobe.knowledge.settings import all_settings
from rocmprobe.model.problems import Problem
from rocmprobe.model.results import DIRECTIONS, Attempt, Fact, Results
from rocmprobe.model.results_file import write_results
from rocmprobe.report.issue.failure import TRACKERS
from rocmprobe.report.issue.issue import issue_block
from rocmprobe.report.issue.repeats import collapse

MAX_LINES = 30
SETTINGS = [setting for setting, _, _ in all_settings() if not setting.bypass and not setting.device]
EVENT = {"kind": "gpu-reset", "address": None, "count": 2, "line": "amdgpu: GPU reset begin!"}


def alone(state: str = "error", **rest: Any) -> Results:
    """Results in which one convolution fails by default, and nothing else ran."""
    results = sample.rdna1()
    outcome = next(each for each in results.outcomes if (each.rung, each.setting) == ("conv", "default"))
    return dataclasses.replace(results, outcomes=(dataclasses.replace(outcome, state=state, **rest),))


@pytest.mark.parametrize("tracker", TRACKERS)
def test_what_a_maintainer_needs_is_in_30_lines(tracker: str) -> None:
    block = issue_block(sample.rdna1(), tracker)
    assert len(block.splitlines()) <= MAX_LINES
    assert block.startswith("**Do not file this: the machine was simulated")
    assert f"\n{sample.STATUS}\n" in block
    assert "forward in float32 (input 2x16x28x28, weight 32x16x3x3, padding 1, bias) raises" in block
    ((language, code),) = [each for each in fences(block) if each[0]]
    comment, *lines = code.splitlines()
    assert (language, comment, len(lines)) == (
        "python", "# HSA_OVERRIDE_GFX_VERSION=10.3.0 python repro.py", 8
    )  # fmt: skip
    compile(code, "repro.py", "exec")
    assert "MIOpenDriver: `HSA_OVERRIDE_GFX_VERSION=10.3.0 MIOpenDriver conv -n 2" in block
    assert "gfx1010 posing as gfx1030" in block
    assert "attach `report.html` here" in block


def test_the_fields_are_those_of_the_form() -> None:
    found = {tracker: headings(issue_block(sample.rdna1(), tracker)) for tracker in TRACKERS}
    rocm = ["Problem Description", "Steps to Reproduce", "Operating System, CPU, GPU, ROCm Version"]
    assert found["miopen"] == found["rocm"] == rocm
    assert found["pytorch"] == ["🐛 Describe the bug", "Versions"]
    assert found["ultralytics"] == ["Bug", "Minimal Reproducible Example", "Environment"]
    assert "Paste the output of `python -m torch.utils.collect_env`" in issue_block(sample.rdna1(), "pytorch")


@settings(max_examples=examples(100))
@given(
    any_problem(), st.sampled_from(DIRECTIONS), st.sampled_from(SETTINGS),
    st.sampled_from(["error", "crash", "hang", "wrong"]), st.sampled_from(TRACKERS), st.booleans(),
)  # fmt: skip
def test_every_failure_fits(
    problem: Problem, direction: str, setting: Any, state: str, tracker: str, eventful: bool
) -> None:
    results = sample.rdna1()
    outcome = sample.outcome(
        setting.name, "convolution", "conv", state, problem=problem, direction=direction,
        evidence=tuple(f"line {number}" for number in range(40)),
    )  # fmt: skip
    facts = {**results.machine.facts, "dmesg.events": Fact([EVENT] if eventful else [])}
    found = dataclasses.replace(
        results, settings=(setting,), outcomes=(outcome,), options={**results.options, "note": "a note"},
        machine=dataclasses.replace(results.machine, facts=facts),
    )  # fmt: skip
    block = issue_block(found, tracker)
    assert len(block.splitlines()) <= MAX_LINES
    assert block.startswith(("**Do not file", "No failure in this run belongs in the tracker"))
    assert "\nline 0\n" in block or block.startswith("No failure")


def test_the_note_of_the_run_stands_before_the_failure() -> None:
    results = sample.rdna1()
    noted = dataclasses.replace(results, options={**results.options, "note": "An emulated card."})
    assert "\nNote on this run: An emulated card. `conv2d` forward" in issue_block(noted, "miopen")


def test_settings_that_fail_alike_share_a_line() -> None:
    results = sample.rdna1()
    block = issue_block(results, "miopen")
    assert "Fails in the same way under 2 settings: `default`, `gemm-only`." in block
    assert "Works without MIOpen (`vendor-off`, `bypass`" in block
    hanging = [
        dataclasses.replace(each, state="hang") if each.setting == "gemm-only" else each
        for each in results.outcomes
    ]
    block = issue_block(dataclasses.replace(results, outcomes=tuple(hanging)), "miopen")
    assert "Fails differently under `gemm-only` (hang)." in block
    assert "in the same way" not in block


def test_other_messages_are_other_failures() -> None:
    results = sample.rdna1()
    other = [
        dataclasses.replace(each, evidence=("RuntimeError: out of memory",))
        if each.setting == "gemm-only" and each.state == "error"
        else each
        for each in results.outcomes
    ]
    block = issue_block(dataclasses.replace(results, outcomes=tuple(other)), "miopen")
    assert "Fails differently under `gemm-only` (error)." in block


def test_the_error_comes_without_rocmprobe_s_own_frames() -> None:
    evidence = (
        sample.STATUS, "[rocmprobe] hipMalloc", "MIOpen(HIP): Info [KernDb] database not present",
        '  File "/x/rocmprobe/checks/convolution.py", line 3, in convolution', "    result = call(x)",
        "MIOpen Error: one", "MIOpen Error: one", "MIOpen Error: one",
        '  File "/x/torch/nn/functional.py", line 9, in conv2d',
    )  # fmt: skip
    block = issue_block(alone(evidence=evidence), "miopen")
    (error, *_) = [content for language, content in fences(block) if not language]
    assert error.splitlines() == [
        sample.STATUS, "MIOpen Error: one  [3 times]", '  File "/x/torch/nn/functional.py", line 9, in conv2d'
    ]  # fmt: skip


def test_wrong_numbers_have_their_limit() -> None:
    numerics = {"max_ratio": 0.25, "max_ratio_limit": 3.3e-6}
    block = issue_block(alone("wrong", numerics=numerics), "pytorch")
    assert "gives wrong numbers" in block
    numbers = "(largest error 0.25, limit 3.3e-06, both relative to the largest expected value)"
    assert numbers in block
    assert '"limit:", 3.3e-06)' in block


def test_a_torch_that_cannot_be_imported_needs_no_script() -> None:
    message = "import torch: OSError: libamdhip64.so.5: cannot open shared object file"
    attempts = (Attempt("error", "trial", message, 0.1),)
    block = issue_block(alone(phase="start", evidence=(message,), attempts=attempts), "pytorch")
    assert "`import torch` raises an exception in 1 of 1 attempt:" in block
    assert 'Run `python -c "import torch"`.' in block
    assert "databases and caches" not in block


def test_without_torch_the_driver_s_line_is_the_script() -> None:
    steps = sections(issue_block(alone(driver="capi"), "miopen"))["Steps to Reproduce"].strip()
    assert steps.startswith("MIOpenDriver: `HSA_OVERRIDE_GFX_VERSION=10.3.0 MIOpenDriver conv ")
    assert len(steps.splitlines()) == 1


def test_a_check_with_a_long_script_alone_names_the_command() -> None:
    block = issue_block(alone(check="im2col", rung="im2col", problem=None, direction=None), "rocm")
    assert "Script: attach the output of `rocmprobe repro results.json cuda:0/torch/default/" in block


def test_the_command_prints_30_lines_or_the_full_text(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_results(sample.rdna1(), path)
    done = cli("report", path, "--format", "issue", "--full")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == issue_block(sample.rdna1(), "miopen", full=True)
    assert len(done.stdout.splitlines()) > MAX_LINES
    done = cli("report", path, "--format", "md", "--full")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--full needs --format issue" in done.stderr


class TestRepeats:
    def test_lines_and_blocks_are_shown_once_with_their_count(self) -> None:
        lines = ["a", "b", "b", "b", "c", "d", "c", "d", "c", "d", "e"]
        assert collapse(lines) == ["a", "b  [3 times]", "c", "d", "[the 2 lines above: 3 times]", "e"]

    def test_times_and_addresses_may_differ(self) -> None:
        lines = ["Prefetch time: 0.1 ms at 0x7f01", "Prefetch time: 0.2 ms at 0x7f99"]
        assert collapse(lines) == [f"{lines[0]}  [2 times]"]

    def test_what_differs_stays(self) -> None:
        lines = ["Conv_3x3", "Conv_5x5", "solver 1", "solver 2", "one", "two", "one", "two"]
        assert collapse(lines[:6]) == lines[:6]
        assert collapse(lines[4:]) == ["one", "two", "[the 2 lines above: 2 times]"]

    @settings(max_examples=examples(200))
    @given(st.lists(st.sampled_from("abc"), max_size=60))
    def test_it_never_grows_and_keeps_every_distinct_line(self, lines: list[str]) -> None:
        made = collapse(lines)
        assert len(made) <= len(lines)
        assert {line[0] for line in made if not line.startswith("[")} == set(lines)

    def test_the_log_of_the_full_text_is_collapsed(self) -> None:
        results = sample.rdna1()
        trials = tuple(dataclasses.replace(each, log="MIOpen Error: x\n" * 500) for each in results.trials)
        block = issue_block(dataclasses.replace(results, trials=trials), "miopen", full=True)
        assert "MIOpen Error: x  [500 times]" in block
