"""The ladder: which cases it asks for, and the stack of cures that it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.budgets import BUDGETS
from rocmprobe.engine.ladder import Climbed, Ladder, default_cases
from rocmprobe.engine.setup import Setup
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.settings import with_cures
from rocmprobe.model.options import RunOptions
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import NO_SOLVER, Fact, Machine, Outcome, Setting

GPU = Device("cuda:0", "miopen")
FAMILIES = {"GEMM": "gemm", "IMPLICIT_GEMM": "igemm", "WINOGRAD": "winograd", "DIRECT": "direct"}
#: State of a case under a setting.
Rule = Callable[[Case, Setting], str]


def allowed(setting: Setting) -> set[str]:
    """Return the families of solvers that ``setting`` allows."""
    return {
        family for name, family in FAMILIES.items() if setting.env.get(f"MIOPEN_DEBUG_CONV_{name}") != "0"
    }


def is_convolution(case: Case) -> bool:
    return case.check.startswith("convolution")


def in_miopen(case: Case, setting: Setting) -> bool:
    return is_convolution(case) and setting.vendor_library and not setting.bypass


@dataclass
class Climb:
    """A ladder that was climbed to its end: its result, and the cases that ran, in order."""

    rule: Rule
    options: RunOptions = field(default_factory=RunOptions)
    variables: Mapping[str, str] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def setup(self) -> Setup:
        variables = {name: Fact(value) for name, value in self.variables.items()}
        machine = Machine(facts={"torch.version": Fact("2.6.0")}, variables=variables)
        settings = {GPU.device: with_cures("miopen", self.options.settings, "2.6.0")}
        return Setup(self.options, (GPU,), settings, BUDGETS["quick"], machine)

    def climbed(self, most: int = 10_000) -> Climbed:
        setup = self.setup
        planned = {case.id for case in default_cases(setup, GPU)}
        ladder = Ladder(setup, GPU, self.outcomes.get, planned)
        for _ in range(most):
            case = ladder.next()
            if case is None:
                assert ladder.climbed is not None
                return ladder.climbed
            state = self.rule(case, setup.setting(case))
            failure = NO_SOLVER if state == "n/a" else None
            self.outcomes[case.id] = Outcome(
                case.id, case.device, case.setting, case.check, case.rung, state, failure=failure,
                problem=case.problem, direction=case.direction, dtype=case.dtype,
            )  # fmt: skip
        raise AssertionError("the ladder does not end")

    @property
    def ran(self) -> list[str]:
        return list(self.outcomes)


def healthy(case: Case, setting: Setting) -> str:
    return "pass"


def faulty(*families: str) -> Rule:
    """Convolution fails if MIOpen tries a solver of one of ``families``."""

    def rule(case: Case, setting: Setting) -> str:
        return "hang" if in_miopen(case, setting) and set(families) & allowed(setting) else "pass"

    return rule


def test_nothing_is_cured_on_a_healthy_machine() -> None:
    climb = Climb(healthy)
    assert set(climb.climbed().stacks.values()) == {("default",)}
    assert {case.split("/")[1] for case in climb.ran} == {"default", "vendor-off", "bypass"}


def test_a_cure_of_a_low_rung_is_kept_for_all_rungs_above() -> None:
    climb = Climb(lambda case, setting: "pass" if "HSA_ENABLE_INTERRUPT" in setting.env else "hang")
    found = climb.climbed()
    assert found.base == found.stacks["float32"] == ("no-interrupt",)
    assert "cuda:0/no-interrupt/training-step/float32/x20" in climb.ran


def test_the_cures_of_copies_and_kernels_are_tried_for_a_failing_reduction() -> None:
    def rule(case: Case, setting: Setting) -> str:
        return "hang" if case.check == "reductions" and "HSA_ENABLE_SDMA" not in setting.env else "pass"

    assert Climb(rule).climbed().stacks["float32"] == ("no-sdma",)


@pytest.mark.parametrize("family", FAMILIES.values())
def test_a_faulty_family_is_forbidden_alone(family: str) -> None:
    climb = Climb(faulty(family))
    assert climb.climbed().stacks["float32"] == (f"no-{family}",)
    hangs = [case for case, outcome in climb.outcomes.items() if outcome.state == "hang"]
    assert len({case.split("/")[1] for case in hangs}) == 2, "only the default and the family alone hang"


def test_several_faulty_families_are_forbidden_together() -> None:
    climb = Climb(faulty("winograd", "direct", "gemm"))
    assert set(climb.climbed().stacks["float32"]) == {"no-winograd", "no-direct", "no-gemm"}


def test_a_family_without_a_solver_can_be_the_faulty_one() -> None:
    """GEMM gets no workspace. Alone, it has no solver. Among others, its failure is the convolution's."""

    def rule(case: Case, setting: Setting) -> str:
        if not in_miopen(case, setting) or "gemm" not in allowed(setting):
            return "pass"
        return "n/a" if allowed(setting) == {"gemm"} else "error"

    assert Climb(rule).climbed().stacks["float32"] == ("no-gemm",)


def test_a_fault_of_large_images_only_is_cured() -> None:
    def rule(case: Case, setting: Setting) -> str:
        large = case.check == "convolution-at-size"
        return faulty("gemm")(case, setting) if large else "pass"

    assert Climb(rule).climbed().stacks["float32"] == ("no-gemm",)


def test_the_size_from_which_it_fails_is_searched_for() -> None:
    def rule(case: Case, setting: Setting) -> str:
        large = case.check == "convolution-at-size" and parse_problem(str(case.problem)).input_size[0] > 42
        return faulty("gemm")(case, setting) if large else "pass"

    climb = Climb(rule)
    climb.climbed()
    sizes = {
        parse_problem(str(outcome.problem)).input_size[0]: outcome.state
        for outcome in climb.outcomes.values()
        if (outcome.check, outcome.setting) == ("convolution-at-size", "default")
    }
    assert {42: "pass", 43: "hang"}.items() <= sizes.items()


def test_miopen_is_switched_off_if_no_family_works() -> None:
    climb = Climb(lambda case, setting: "hang" if in_miopen(case, setting) else "pass")
    assert climb.climbed().stacks["float32"] == ("vendor-off",)


def test_a_cure_of_products_in_half_precision_holds_for_the_whole_program() -> None:
    def rule(case: Case, setting: Setting) -> str:
        broken = case.check == "matmul" and case.dtype == "float16"
        return "error" if broken and "TORCH_BLAS_PREFER_HIPBLASLT" not in setting.env else "pass"

    climb = Climb(rule)
    stacks = climb.climbed().stacks
    assert set(stacks.values()) == {("no-hipblaslt",)}
    assert "cuda:0/no-hipblaslt/training-step/float32/x20" in climb.ran

    def rule_against_float32(case: Case, setting: Setting) -> str:
        if "TORCH_BLAS_PREFER_HIPBLASLT" in setting.env and (case.check, case.dtype) == ("gemm", "float32"):
            return "wrong"
        return rule(case, setting)

    stacks = Climb(rule_against_float32).climbed().stacks
    assert (stacks["float32"], stacks["float16"]) == (("default",), ("no-hipblaslt",))


def test_a_failing_convolution_in_half_precision_changes_nothing_for_float32() -> None:
    def rule(case: Case, setting: Setting) -> str:
        return "wrong" if in_miopen(case, setting) and case.dtype == "float16" else "pass"

    stacks = Climb(rule).climbed().stacks
    assert stacks["float32"] == ("default",)
    assert stacks["float16"] == ("vendor-off",)


def test_a_member_that_later_members_replace_is_left_out() -> None:
    """The first cure of convolution does not help at a larger size, where MIOpen must be off."""

    def rule(case: Case, setting: Setting) -> str:
        if not in_miopen(case, setting):
            return "pass"
        large = case.check == "convolution-at-size"
        return "hang" if large or "gemm" in allowed(setting) else "pass"

    assert Climb(rule).climbed().stacks["float32"] == ("vendor-off",)


def test_failures_now_and_then_are_blamed_on_the_copies() -> None:
    def rule(case: Case, setting: Setting) -> str:
        if "HSA_ENABLE_INTERRUPT" in setting.env:
            return "pass"
        if case.check == "repeated" and case.repeats > 1:
            return "hang"
        return "flaky" if case.check == "convolution" else "pass"

    found = Climb(rule).climbed()
    assert found.base == found.stacks["float32"] == ("no-interrupt",)


def test_a_cure_of_a_failure_now_and_then_is_repeated() -> None:
    def rule(case: Case, setting: Setting) -> str:
        if not in_miopen(case, setting) or "winograd" not in allowed(setting):
            return "pass"
        return "hang" if case.repeats > 1 else "flaky"

    climb = Climb(rule)
    assert climb.climbed().stacks["float32"] == ("no-winograd",)
    assert any(case.startswith("cuda:0/no-winograd/") and case.endswith("/x100") for case in climb.ran)


def test_the_own_environment_is_kept_if_everything_works_in_it() -> None:
    climb = Climb(healthy, variables={"MIOPEN_FIND_MODE": "2"})
    assert climb.climbed().stacks["float32"] == ("as-found",)


def test_a_clean_environment_cures_the_own_one() -> None:
    def rule(case: Case, setting: Setting) -> str:
        return "hang" if setting.inherit_environment and is_convolution(case) else "pass"

    climb = Climb(rule, variables={"MIOPEN_DEBUG_CONV_WINOGRAD": "0"})
    assert climb.climbed().stacks["float32"] == ("default",)


def test_a_resumed_search_continues() -> None:
    whole = Climb(faulty("winograd", "gemm"))
    expected = whole.climbed()
    for kept in range(0, len(whole.ran), 40):
        some = dict(list(whole.outcomes.items())[:kept])
        resumed = Climb(faulty("winograd", "gemm"), outcomes=some)
        assert resumed.climbed() == expected
        assert resumed.ran == whole.ran


@pytest.mark.parametrize("setting", ["default", "no-gemm"])
def test_a_case_during_which_the_run_was_killed_is_repeated(setting: str) -> None:
    whole = Climb(faulty("gemm"))
    expected = whole.climbed()
    known = list(whole.outcomes.items())
    place = next(
        number
        for number, (_, each) in enumerate(known)
        if each.setting == setting and each.check == "convolution"
    )
    name, killed = known[place]
    some = dict(known[:place])
    some[name] = replace(killed, state="aborted", failure="run-died")
    resumed = Climb(faulty("gemm"), outcomes=some)
    assert resumed.climbed() == expected
    assert resumed.outcomes == whole.outcomes


def test_no_cure_is_tried_if_the_user_named_the_settings() -> None:
    climb = Climb(faulty("gemm"), RunOptions(settings="default,vendor-off"))
    assert climb.climbed().stacks["float32"] == ("default",)
    assert {case.split("/")[1] for case in climb.ran} <= {"default", "vendor-off"}


def test_only_the_selected_checks_run() -> None:
    climb = Climb(faulty("gemm"), RunOptions(only=("convolution",)))
    assert climb.climbed().stacks["float32"] == ("no-gemm",)
    assert {case.split("/")[2] for case in climb.ran} == {"convolution"}


def test_a_cure_of_a_high_rung_is_tested_on_convolution_too() -> None:
    def rule(case: Case, setting: Setting) -> str:
        return "error" if case.check == "training-step" and "HSA_ENABLE_SDMA" not in setting.env else "pass"

    climb = Climb(rule)
    assert climb.climbed().stacks["float32"] == ("no-sdma",)
    checks = {outcome.check for outcome in climb.outcomes.values() if outcome.setting == "no-sdma"}
    assert {"convolution", "convolution-at-size", "training-step"} <= checks
