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

from rocmprobe.judge.summary import summarize
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS, Attempt, Configuration, Fact, Machine, Outcome, Results
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


def text_of(results: Results, full: bool = False) -> str:
    return issue_text(summarize(results), full)


def without_script(block: str) -> list[str]:
    """The lines of the text outside of its script."""
    (script,) = [content for language, content in fences(block) if language] or [""]
    return block.replace(script, "").splitlines()


def test_what_a_maintainer_needs_is_in_36_lines_and_a_script() -> None:
    block = text_of(sample.rdna1())
    assert len(without_script(block)) <= MAX_LINES
    assert block.startswith("**Do not file this: the machine was simulated")
    assert headings(block) == ["Problem", "Reproduction", "Environment"]
    assert "Title: `conv2d forward float32: RuntimeError: miopenStatusUnknownError, AMD" in block
    assert f"\n{sample.STATUS}\n" in block
    # Of the ordinary convolutions that fail, the one with the least work.
    assert "forward in float32 (input 2x64x14x14, weight 64x64x1x1) raises" in block
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
    block = text_of(alone(check="miopen-direct", rung="direct"))
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
    block = text_of(found)
    assert len(without_script(block)) <= MAX_LINES
    assert block.startswith("**Do not file")
    assert "\nline 0\n" in block
    assert ("`gpu-reset`, 2 of it, first `amdgpu: GPU reset begin!`." in block) == eventful


def test_the_note_of_the_run_stands_before_the_failure() -> None:
    results = sample.rdna1()
    noted = dataclasses.replace(results, options={**results.options, "note": "An emulated card."})
    assert "\nNote on this run: An emulated card. `conv2d` forward" in text_of(noted)


def test_settings_that_fail_alike_share_a_line() -> None:
    results = sample.rdna1()
    block = text_of(results)
    assert "Fails in the same way under 2 settings: `default`, `gemm-only`." in block
    assert "Works without MIOpen (`vendor-off`, `bypass`" in block
    hanging = [
        dataclasses.replace(each, state="hang") if each.setting == "gemm-only" else each
        for each in results.outcomes
    ]
    block = text_of(dataclasses.replace(results, outcomes=tuple(hanging)))
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
    block = text_of(dataclasses.replace(results, outcomes=tuple(other)))
    assert "Fails differently under `gemm-only` (error)." in block


def test_the_error_comes_without_rocmprobe_s_own_frames() -> None:
    evidence = (
        sample.STATUS, "MIOpen(HIP): Info [KernDb] database not present",
        '  File "/x/rocmprobe/checks/convolution.py", line 3, in convolution', "    result = call(x)",
        "MIOpen Error: one", "MIOpen Error: one",
        '  File "/x/torch/nn/functional.py", line 9, in conv2d',
    )  # fmt: skip
    block = text_of(alone(evidence=evidence))
    (error, *_) = [content for language, content in fences(block) if not language]
    assert error.splitlines() == [
        sample.STATUS, "MIOpen Error: one", '  File "/x/torch/nn/functional.py", line 9, in conv2d'
    ]  # fmt: skip


def test_wrong_numbers_have_their_limit() -> None:
    numerics = {"max_ratio": 0.25, "max_ratio_limit": 3.3e-6}
    block = text_of(alone("wrong", numerics=numerics))
    assert "gives wrong numbers" in block
    numbers = "(largest error 0.25, limit 3.3e-06, both relative to the largest expected value)"
    assert numbers in block


def test_a_torch_that_cannot_be_imported_needs_no_script() -> None:
    message = "import torch: OSError: libamdhip64.so.5: cannot open shared object file"
    attempts = (Attempt("error", "trial", message, 0.1),)
    block = text_of(alone(phase="start", evidence=(message,), attempts=attempts))
    assert "`import torch` raises an exception in 1 of 1 attempt:" in block
    assert 'Run `python -c "import torch"`.' in block
    assert "databases and caches" not in block


def test_a_check_without_a_script_names_the_command() -> None:
    block = text_of(alone(check="lstm", rung="primitives", problem=None, direction=None))
    assert "`rocmprobe run --settings default --only lstm`" in sections(block)["Reproduction"]


def test_the_full_text_has_every_failure_and_the_whole_environment() -> None:
    results = sample.rdna1()
    block = text_of(results, full=True)
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
    assert done.stdout == text_of(sample.rdna1(), full=True)
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


def test_failures_below_miopen_come_first() -> None:
    results = sample.rdna1()
    worse = tuple(
        dataclasses.replace(each, state="crash") if each.rung == "gemm" else each for each in results.outcomes
    )
    found = gravest(dataclasses.replace(results, outcomes=worse))
    assert found is not None
    assert found.outcome.rung == "gemm"


def test_an_expected_failure_shows_what_is_known() -> None:
    block = text_of(sample.expected())
    assert " raises an exception in 2 of 2 attempts:" in block
    assert "Known: it failed `https://example.org/1`." in block


def test_where_nothing_failed_one_line_says_so() -> None:
    for full in (False, True):
        block = text_of(sample.healthy_cpu(), full)
        assert block == "Nothing failed in this run: there is nothing to report to an issue tracker.\n"


def test_failures_of_the_bypass_are_for_no_tracker() -> None:
    results = sample.rdna1()
    bypass = tuple(
        dataclasses.replace(each, state="error") for each in results.outcomes
        if each.setting == "bypass" and each.check == "convolution"
    )  # fmt: skip
    block = text_of(dataclasses.replace(results, outcomes=bypass))
    assert block.startswith("No failure in this run is a bug of PyTorch or the vendor library")


def test_the_tracker_is_that_of_the_lowest_layer_that_failed() -> None:
    assert "Tracker: `https://github.com/ROCm/rocm-libraries/issues`\n" in text_of(alone())
    lower = {"gemm": "ROCm/rocm-libraries", "copy": "ROCm/rocm-systems", "elementwise": "pytorch/pytorch"}
    for rung, name in lower.items():
        results = sample.rdna1()
        failed = next(each for each in results.outcomes if (each.rung, each.setting) == ("conv", "default"))
        below = dataclasses.replace(failed, check=rung, rung=rung, problem=None, direction=None)
        block = text_of(dataclasses.replace(results, outcomes=(*results.outcomes, below)))
        assert f"Tracker: `https://github.com/{name}/issues`\n" in block


def test_a_failure_of_a_cpu_says_nothing_about_miopen() -> None:
    results = sample.healthy_cpu()
    failed = tuple(
        dataclasses.replace(each, state="wrong") if each.rung == "conv" else each for each in results.outcomes
    )
    block = text_of(dataclasses.replace(results, outcomes=failed))
    assert "gives wrong numbers" in block
    assert "MIOpen" not in block


def test_a_machine_of_which_nothing_is_known() -> None:
    results = dataclasses.replace(sample.rdna1(), machine=Machine())
    assert "- GPU: none\n- OS: unknown, kernel unknown; CPU: unknown" in text_of(results)


def at_size(
    setting: str, states: dict[int, str], direction: str = "fwd", check: str = "convolution-at-size"
) -> list[Outcome]:
    """Outcomes of one convolution with images of several sizes, keyed by pixels."""
    return [
        sample.outcome(
            setting, check, "conv", state, direction=direction,
            problem=parse_problem(f"conv2d-fp32-n2-c16-i{size}x{size}-k32-f3x3-p1"),
        )
        for size, state in states.items()
    ]  # fmt: skip


NO_GEMM, NO_DIRECT, AS_FOUND = (
    next(each for each, _, _ in all_settings() if each.name == name)
    for name in ("no-gemm", "no-direct", "as-found")
)


def sized(*outcomes: Outcome, recommended: str = "", **fields: Any) -> Results:
    """Results of an AMD card with these outcomes only."""
    results = sample.rdna1()
    recommendation = dataclasses.replace(
        results.recommendation, configuration=Configuration(recommended or None)
    )
    rows = (*results.settings, NO_GEMM, NO_DIRECT, AS_FOUND)
    return dataclasses.replace(
        results, outcomes=outcomes, settings=rows, recommendation=recommendation, **fields
    )


def reproduction(results: Results) -> list[str]:
    """The lines after the script."""
    *_, last = sections(text_of(results))["Reproduction"].split("```")
    return [line for line in last.splitlines() if line]


def test_the_smallest_size_that_fails_the_largest_that_works_and_the_variable_that_cures() -> None:
    failing = at_size("default", {224: "hang", 44: "hang", 43: "hang", 42: "pass", 28: "pass"})
    # Other tests say nothing about this one.
    others = [
        *at_size("default", {43: "pass"}, "bwd-data"),
        *at_size("default", {43: "pass"}, check="convolution"),
        *at_size("no-direct", {44: "pass"}),
    ]
    cured = at_size("no-gemm", {44: "pass", 43: "pass"})
    results = sized(*failing, *others, *cured, *at_size("vendor-off", {43: "pass"}))
    driver, works, cure = reproduction(results)
    line = "HSA_OVERRIDE_GFX_VERSION=10.3.0 MIOpenDriver conv -n 2 -c 16 -H {0} -W {0} -k 32 "
    assert driver.startswith(f"MIOpenDriver: `{line.format(43)}")
    assert works.startswith(f"Works under the same setting: `{line.format(42)}")
    assert cure == "Works with other variables (setting `no-gemm`): `MIOPEN_DEBUG_CONV_GEMM=0`"


def test_the_recommended_setting_is_the_cure_if_it_was_tested() -> None:
    failing = at_size("default", {43: "wrong"})
    cured = [*at_size("no-gemm", {43: "pass"}), *at_size("no-direct", {43: "pass"})]
    (_, cure) = reproduction(sized(*failing, *cured, recommended="no-direct"))
    assert cure == "Works with other variables (setting `no-direct`): `MIOPEN_DEBUG_CONV_DIRECT=0`"
    # It is not if the case did not run there.
    (_, cure) = reproduction(sized(*failing, *cured[:1], recommended="no-direct"))
    assert "`no-gemm`" in cure


def test_the_owner_s_variables_are_unset() -> None:
    results = sample.rdna1()
    names = {
        "MIOPEN_DEBUG_CONV_GEMM": "1",
        "MIOPEN_DEBUG_CONV_FFT": "0",
        "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
    }
    owner = {name: Fact(value, "environment") for name, value in names.items()}
    machine = dataclasses.replace(results.machine, variables=owner)
    outcomes = [*at_size("as-found", {43: "crash"}), *at_size("default", {43: "pass"})]
    *_, cure = reproduction(sized(*outcomes, machine=machine))
    assert cure == (
        "Works with other variables (setting `default`, with empty databases and caches): "
        "`env -u MIOPEN_DEBUG_CONV_GEMM -u MIOPEN_DEBUG_CONV_FFT`"
    )


def test_another_problem_that_works_differs_as_little_as_possible() -> None:
    def problem(text: str, state: str) -> Outcome:
        return sample.outcome(
            "default", "convolution", "conv", state, problem=parse_problem(text), direction="fwd"
        )

    failing = problem("conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1", "wrong")
    pointwise = problem("conv2d-fp32-n2-c64-i14x14-k64-f1x1", "pass")
    larger = problem("conv2d-fp32-n2-c16-i56x56-k32-f3x3-p1", "pass")
    _, works = reproduction(sized(failing, pointwise, larger))
    assert "MIOpenDriver conv -n 2 -c 16 -H 56 -W 56 -k 32 -y 3 -x 3" in works
    _, works = reproduction(sized(failing, pointwise))
    assert "MIOpenDriver conv -n 2 -c 64 -H 14 -W 14 -k 64 -y 1 -x 1" in works
    # PyTorch does not send a grouped convolution with dilation to MIOpen.
    grouped = problem("conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1-d2-g2", "pass")
    assert len(reproduction(sized(failing, grouped))) == 1


def test_only_what_was_tested_is_said() -> None:
    failing = at_size("default", {43: "hang"})
    untested = at_size("no-gemm", {43: "blocked"})
    assert len(reproduction(sized(*failing, *untested, recommended="no-gemm"))) == 1
    # No variable makes the difference to the bypass, or to PyTorch's own kernels.
    without = [*at_size("vendor-off", {43: "pass"}), *at_size("bypass", {43: "pass"})]
    assert len(reproduction(sized(*failing, *without, recommended="bypass"))) == 1
