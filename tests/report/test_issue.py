"""Issue texts: about 30 lines with error, MIOpenDriver line, environment and report, and a script."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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


def changed(results: Results, of: Callable[[Outcome], bool], **fields: Any) -> Results:
    """Results in which the outcomes that ``of`` selects have other fields."""
    outcomes = tuple(dataclasses.replace(each, **fields) if of(each) else each for each in results.outcomes)
    return dataclasses.replace(results, outcomes=outcomes)


def below(rung: str) -> Results:
    """Results in which a layer below convolution fails, too."""
    (failed,) = alone().outcomes
    more = dataclasses.replace(failed, check=rung, rung=rung, problem=None, direction=None)
    return dataclasses.replace(sample.rdna1(), outcomes=(*sample.rdna1().outcomes, more))


def only(results: Results, setting: str) -> Results:
    kept = [each for each in results.outcomes if (each.setting, each.check) == (setting, "convolution")]
    return dataclasses.replace(results, outcomes=tuple(kept))


NO_IMPORT = "import torch: OSError: libamdhip64.so.5: cannot open shared object file"
ALIKE = "Fails in the same way under 2 settings: `default`, `gemm-only`."


@pytest.mark.parametrize(
    ("results", "present", "absent"),
    [
        pytest.param(dataclasses.replace(sample.rdna1(), options={"note": "An emulated card."}),
                     ["\nNote on this run: An emulated card. `conv2d` forward"], [], id="a note"),
        pytest.param(sample.rdna1(), [ALIKE, "Works without MIOpen (`vendor-off`, `bypass`"], [],
                     id="settings that fail alike share a line"),
        pytest.param(changed(sample.rdna1(), lambda each: each.setting == "gemm-only", state="hang"),
                     ["Fails differently under `gemm-only` (hang)."], ["in the same way"],
                     id="another state is another failure"),
        pytest.param(changed(sample.rdna1(), lambda each: each.setting == "gemm-only" and each.fails,
                             evidence=("RuntimeError: out of memory",)),
                     ["Fails differently under `gemm-only` (error)."], [],
                     id="another message is another failure"),
        pytest.param(alone("wrong", numerics={"max_ratio": 0.25, "max_ratio_limit": 3.3e-6}),
                     ["gives wrong numbers", "(largest error 0.25, limit 3.3e-06, both relative to the "
                      "largest expected value)"], [], id="wrong numbers have their limit"),
        pytest.param(alone(phase="start", evidence=(NO_IMPORT,),
                           attempts=(Attempt("error", "trial", NO_IMPORT, 0.1),)),
                     ["`import torch` raises an exception in 1 of 1 attempt:",
                      'Run `python -c "import torch"`.'], ["databases and caches"],
                     id="an import that fails needs no script"),
        pytest.param(alone(check="lstm", rung="primitives", problem=None, direction=None),
                     ["`rocmprobe run --settings default --only lstm`"], [], id="a check without a script"),
        pytest.param(sample.expected(), [" raises an exception in 2 of 2 attempts:",
                                         "Known: it failed `https://example.org/1`."], [],
                     id="an expected failure"),
        pytest.param(changed(only(sample.rdna1(), "bypass"), lambda each: True, state="error"),
                     ["No failure in this run is a bug of PyTorch or the vendor library"], [],
                     id="failures of the bypass are for no tracker"),
        pytest.param(changed(sample.healthy_cpu(), lambda each: each.rung == "conv", state="wrong"),
                     ["gives wrong numbers"], ["MIOpen"], id="a failure of a CPU"),
        pytest.param(dataclasses.replace(sample.rdna1(), machine=Machine()),
                     ["- GPU: none\n- OS: unknown, kernel unknown; CPU: unknown"], [], id="no facts"),
        *(pytest.param(results, [f"Tracker: `https://github.com/{name}/issues`\n"], [], id=f"for {name}")
          for results, name in ((alone(), "ROCm/rocm-libraries"), (below("gemm"), "ROCm/rocm-libraries"),
                                (below("copy"), "ROCm/rocm-systems"),
                                (below("elementwise"), "pytorch/pytorch"))),
    ],
)  # fmt: skip
def test_the_text(results: Results, present: list[str], absent: list[str]) -> None:
    block = text_of(results)
    assert [words for words in present if words not in block] == []
    assert [words for words in absent if words in block] == []


@pytest.mark.parametrize("full", [False, True])
def test_nothing_failed(full: bool) -> None:
    nothing = "Nothing failed in this run: there is nothing to report to an issue tracker.\n"
    assert text_of(sample.healthy_cpu(), full) == nothing


@pytest.mark.parametrize(("crashes", "rung"), [("", "conv"), ("batch-norm", "batch-norm"), ("gemm", "gemm")])
def test_the_gravest_is_under_default_then_by_state_then_low_on_the_ladder(crashes: str, rung: str) -> None:
    found = gravest(changed(sample.rdna1(), lambda each: each.rung == crashes, state="crash"))
    assert found is not None
    assert (found.outcome.setting, found.outcome.rung, found.outcome.dtype) == ("default", rung, "float32")


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
