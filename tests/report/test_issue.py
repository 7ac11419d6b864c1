"""Issue texts: about 30 lines with error, MIOpenDriver line, environment and report, and a script."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import sample
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_reading import fences, headings, sections
from runs import cli
from test_problems import any_problem
from tiers import examples

from rocmprobe.knowledge.settings import all_settings
from rocmprobe.model.problems import Problem
from rocmprobe.model.results import DIRECTIONS, Attempt, Fact, Machine, Results
from rocmprobe.model.results_file import write_results
from rocmprobe.report.issue.failure import gravest
from rocmprobe.report.issue.issue import issue_text

MAX_LINES = 36
SETTINGS = [setting for setting, _, _ in all_settings() if not setting.bypass and not setting.device]
EVENT = {"kind": "gpu-reset", "address": None, "count": 2, "line": "amdgpu: GPU reset begin!"}


def alone(state: str = "error", **rest: Any) -> Results:
    """Results in which one convolution fails by default, and nothing else ran."""
    results = sample.rdna1()
    outcome = next(each for each in results.outcomes if (each.rung, each.setting) == ("conv", "default"))
    return dataclasses.replace(results, outcomes=(dataclasses.replace(outcome, state=state, **rest),))


def without_script(block: str) -> list[str]:
    """The lines of the text outside of its script."""
    (script,) = [content for language, content in fences(block) if language] or [""]
    return block.replace(script, "").splitlines()


def test_what_a_maintainer_needs_is_in_36_lines_and_a_script() -> None:
    block = issue_text(sample.rdna1())
    assert len(without_script(block)) <= MAX_LINES
    assert block.startswith("**Do not file this: the machine was simulated")
    assert headings(block) == ["Problem", "Reproduction", "Environment"]
    assert "Title: `conv2d forward float32: RuntimeError: miopenStatusUnknownError, AMD" in block
    assert f"\n{sample.STATUS}\n" in block
    assert "forward in float32 (input 2x16x28x28, weight 32x16x3x3, padding 1, bias) raises" in block
    ((language, code),) = [each for each in fences(block) if each[0]]
    compile(code, "repro.py", "exec")
    assert language == "python"
    assert "'HSA_OVERRIDE_GFX_VERSION': '10.3.0'," in code
    assert "import rocmprobe" not in code
    assert "MIOpenDriver: `HSA_OVERRIDE_GFX_VERSION=10.3.0 MIOpenDriver conv -n 2" in block
    assert "gfx1010 posing as gfx1030" in block
    assert "gfx1010 (RDNA1) was never in ROCm's list of supported GPUs" in block
    assert "attach `report.html` here" in block


def test_without_torch_the_driver_s_line_is_the_reproduction() -> None:
    block = issue_text(alone(check="miopen-direct", rung="direct"))
    assert (
        "in float32 (input 2x16x28x28, weight 32x16x3x3, padding 1, bias), called without PyTorch," in block
    )
    *_, last = sections(block)["Reproduction"].strip().splitlines()
    assert last.startswith("MIOpenDriver: `HSA_OVERRIDE_GFX_VERSION=10.3.0 MIOpenDriver conv ")
    # A failure in PyTorch comes first.
    results = sample.rdna1()
    direct = dataclasses.replace(results.outcomes[0], id="direct", check="miopen-direct", state="crash")
    with_it = dataclasses.replace(results, outcomes=(direct, *results.outcomes))
    assert gravest(with_it) == gravest(results)


@settings(max_examples=examples(100))
@given(
    any_problem(), st.sampled_from(DIRECTIONS), st.sampled_from(SETTINGS),
    st.sampled_from(["error", "crash", "hang", "wrong"]), st.booleans(),
)  # fmt: skip
def test_every_failure_fits(
    problem: Problem, direction: str, setting: Any, state: str, eventful: bool
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
    block = issue_text(found)
    assert len(without_script(block)) <= MAX_LINES
    assert block.startswith("**Do not file")
    assert "\nline 0\n" in block
    assert ("`gpu-reset`, 2 of it, first `amdgpu: GPU reset begin!`." in block) == eventful


def test_the_note_of_the_run_stands_before_the_failure() -> None:
    results = sample.rdna1()
    noted = dataclasses.replace(results, options={**results.options, "note": "An emulated card."})
    assert "\nNote on this run: An emulated card. `conv2d` forward" in issue_text(noted)


def test_settings_that_fail_alike_share_a_line() -> None:
    results = sample.rdna1()
    block = issue_text(results)
    assert "Fails in the same way under 2 settings: `default`, `gemm-only`." in block
    assert "Works without MIOpen (`vendor-off`, `bypass`" in block
    hanging = [
        dataclasses.replace(each, state="hang") if each.setting == "gemm-only" else each
        for each in results.outcomes
    ]
    block = issue_text(dataclasses.replace(results, outcomes=tuple(hanging)))
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
    block = issue_text(dataclasses.replace(results, outcomes=tuple(other)))
    assert "Fails differently under `gemm-only` (error)." in block


def test_the_error_comes_without_rocmprobe_s_own_frames() -> None:
    evidence = (
        sample.STATUS, "MIOpen(HIP): Info [KernDb] database not present",
        '  File "/x/rocmprobe/checks/convolution.py", line 3, in convolution', "    result = call(x)",
        "MIOpen Error: one", "MIOpen Error: one",
        '  File "/x/torch/nn/functional.py", line 9, in conv2d',
    )  # fmt: skip
    block = issue_text(alone(evidence=evidence))
    (error, *_) = [content for language, content in fences(block) if not language]
    assert error.splitlines() == [
        sample.STATUS, "MIOpen Error: one", '  File "/x/torch/nn/functional.py", line 9, in conv2d'
    ]  # fmt: skip


def test_wrong_numbers_have_their_limit() -> None:
    numerics = {"max_ratio": 0.25, "max_ratio_limit": 3.3e-6}
    block = issue_text(alone("wrong", numerics=numerics))
    assert "gives wrong numbers" in block
    numbers = "(largest error 0.25, limit 3.3e-06, both relative to the largest expected value)"
    assert numbers in block


def test_a_torch_that_cannot_be_imported_needs_no_script() -> None:
    message = "import torch: OSError: libamdhip64.so.5: cannot open shared object file"
    attempts = (Attempt("error", "trial", message, 0.1),)
    block = issue_text(alone(phase="start", evidence=(message,), attempts=attempts))
    assert "`import torch` raises an exception in 1 of 1 attempt:" in block
    assert 'Run `python -c "import torch"`.' in block
    assert "databases and caches" not in block


def test_a_check_without_a_script_names_the_command() -> None:
    block = issue_text(alone(check="lstm", rung="primitives", problem=None, direction=None))
    assert "`rocmprobe run --settings default --only lstm`" in sections(block)["Reproduction"]


def test_the_full_text_has_every_failure_and_the_whole_environment() -> None:
    results = sample.rdna1()
    block = issue_text(results, full=True)
    assert headings(block) == ["Problem", "Reproduction", "Environment", "All failures"]
    listed = sections(block)["All failures"]
    failed = [each for each in results.outcomes if each.state == "error"]
    assert all(f"`{each.id}` | error |" in listed for each in failed)
    assert listed.count("\n| `") == len(failed)
    environment = sections(block)["Environment"]
    assert all(name in environment for name in (*results.machine.facts, *results.machine.variables))


def test_the_command_prints_the_short_or_the_full_text(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_results(sample.rdna1(), path)
    done = cli("report", path, "--format", "issue", "--full")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == issue_text(sample.rdna1(), full=True)
    done = cli("report", path, "--format", "md", "--full")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--full needs --format issue" in done.stderr


def test_the_gravest_is_under_default_then_by_state_then_low_on_the_ladder() -> None:
    results = sample.rdna1()
    found = gravest(results)
    assert found is not None
    assert (found.outcome.setting, found.outcome.rung, found.outcome.dtype) == ("default", "conv", "float32")
    worse = tuple(
        dataclasses.replace(each, state="crash")
        if each.setting == "default" and each.rung == "batch-norm"
        else each
        for each in results.outcomes
    )
    found = gravest(dataclasses.replace(results, outcomes=worse))
    assert found is not None
    assert (found.outcome.rung, found.state) == ("batch-norm", "crash")


def test_failures_in_miopen_come_first() -> None:
    results = sample.rdna1()
    worse = tuple(
        dataclasses.replace(each, state="crash") if each.rung == "gemm" else each for each in results.outcomes
    )
    found = gravest(dataclasses.replace(results, outcomes=worse))
    assert found is not None
    assert found.outcome.rung == "conv"


def test_an_expected_failure_shows_what_is_known() -> None:
    block = issue_text(sample.expected())
    assert " raises an exception in 2 of 2 attempts:" in block
    assert "Known: it failed `https://example.org/1`." in block


def test_where_nothing_failed_one_line_says_so() -> None:
    for full in (False, True):
        block = issue_text(sample.healthy_cpu(), full)
        assert block == "Nothing failed in this run: there is nothing to report to an issue tracker.\n"


def test_failures_of_the_bypass_are_for_no_tracker() -> None:
    results = sample.rdna1()
    bypass = tuple(
        dataclasses.replace(each, state="error") for each in results.outcomes
        if each.setting == "bypass" and each.check == "convolution"
    )  # fmt: skip
    block = issue_text(dataclasses.replace(results, outcomes=bypass))
    assert block.startswith("No failure in this run is one of PyTorch or the vendor library")


def test_a_failure_of_a_cpu_says_nothing_about_miopen() -> None:
    results = sample.healthy_cpu()
    failed = tuple(
        dataclasses.replace(each, state="wrong") if each.rung == "conv" else each for each in results.outcomes
    )
    block = issue_text(dataclasses.replace(results, outcomes=failed))
    assert "gives wrong numbers" in block
    assert "MIOpen" not in block


def test_a_machine_of_which_nothing_is_known() -> None:
    results = dataclasses.replace(sample.rdna1(), machine=Machine())
    assert "- GPU: none\n- OS: unknown, kernel unknown; CPU: unknown" in issue_text(results)
