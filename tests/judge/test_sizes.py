"""The size of the image from which convolution fails: its bisection, and the finding about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import run

from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.sizes import sizes
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import Outcome
from rocmprobe.model.size_search import MOST_TRIALS, next_size, resized, size_of

BASE = parse_problem("conv2d-fp32-n2-c16-i44x44-k32-f3x3-p1")


def outcome(size: int, state: str, setting: str = "default") -> Outcome:
    text = resized(replace(BASE, input_size=(size, size)), size).text
    return Outcome(
        f"cuda:0/{setting}/convolution-at-size/{text}/fwd", "cuda:0", setting, "convolution-at-size", "conv",
        state, problem=text, direction="fwd",
    )  # fmt: skip


def trials(failing: int, passing: int, limit: int) -> list[Outcome]:
    """All trials of a bisection on a device that fails from ``limit`` pixels on."""
    top = replace(BASE, input_size=(failing, failing))
    below = replace(BASE, input_size=(passing, passing)) if passing else None
    made: list[Outcome] = []
    while (problem := next_size(top, below, made)) is not None:
        assert passing < size_of(problem) < failing
        made.append(outcome(size_of(problem), "wrong" if size_of(problem) >= limit else "pass"))
    return made


@given(st.data())
def test_bisection_finds_the_limit_in_eight_trials(data: st.DataObject) -> None:
    failing = data.draw(st.integers(2, 224))
    passing = data.draw(st.integers(0, failing - 1))
    limit = data.draw(st.integers(passing + 1, failing))
    made = trials(failing, passing, limit)
    assert len(made) <= MOST_TRIALS
    tested = {size_of(parse_problem(each.problem or "")): each.fails for each in made}
    fails = min((size for size, bad in tested.items() if bad), default=failing)
    works = max((size for size, bad in tested.items() if not bad), default=passing)
    assert (fails, works) == (limit, limit - 1)


@given(st.lists(st.tuples(st.integers(1, 600), st.sampled_from(["pass", "wrong", "n/a", "blocked"]))))
def test_bisection_ends_whatever_the_outcomes_are(known: Sequence[tuple[int, str]]) -> None:
    made = [outcome(size, state) for size, state in known]
    top = replace(BASE, input_size=(600, 600))
    for _ in range(MOST_TRIALS):
        problem = next_size(top, None, made)
        if problem is not None:
            made.append(outcome(size_of(problem), "n/a"))
    assert next_size(top, None, made) is None


def test_another_problem_says_nothing_about_the_size() -> None:
    other = replace(BASE, batch=4, input_size=(40, 40))
    assert next_size(BASE, other, []) == next_size(BASE, None, [])


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({42: "pass", 43: "hang", 44: "hang"}, "Convolution fails from 43 pixels on; 42 and fewer work"),
        ({44: "wrong", 32: "pass"}, "Convolution fails with 44 pixels; 32 work"),
        ({44: "wrong"}, "Convolution fails with 44 pixels"),
        ({44: "wrong", 64: "pass", 32: "pass"}, "Convolution fails with 44 pixels; 32 and 64 work"),
    ],
)
def test_the_title_says_only_what_was_tested(states: dict[int, str], words: str) -> None:
    made = run()
    made = replace(made, outcomes=(*made.outcomes, *(outcome(size, state) for size, state in states.items())))
    (found,) = sizes(Evidence(made))
    assert (found.title, found.severity) == (words, "error")
    assert found.evidence[0].startswith("default, fwd, 3x3, 16 to 32 channels")


def test_the_own_environment_and_a_setting_that_works_are_named() -> None:
    made = run()
    outcomes = (outcome(44, "hang", "as-found"), outcome(44, "pass"))
    (found,) = sizes(Evidence(replace(made, outcomes=(*made.outcomes, *outcomes))))
    assert found.id == "convolution-sizes-as-found"
    assert (
        found.title == "Convolution in your own environment fails with 44 pixels; all work with the defaults"
    )


def test_if_small_images_fail_too_the_size_is_not_blamed() -> None:
    made = run({"default/convolution/*/fwd": "wrong"})
    made = replace(made, outcomes=(*made.outcomes, outcome(44, "wrong")))
    assert list(sizes(Evidence(made))) == []


def test_nothing_is_said_if_every_size_works() -> None:
    made = run()
    assert list(sizes(Evidence(replace(made, outcomes=(*made.outcomes, outcome(44, "pass")))))) == []
