"""What a change of one outcome, fact or setting may do to a recommendation: a rule of its own, written from
docs/how-it-decides.md and not from the code, and the changes to try."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.recommendation.recommend import recommend
from rocmprobe.model.results import Fact, Machine, Outcome, Results

FAILURES = ("wrong", "crash", "flaky")
WORKING = ("pass", "slow", "xpass")
#: What every program needs, whatever its purpose.
_BELOW = ("copy", "repeated", "elementwise", "gemm", "matmul", "reductions")
_MODELS = ("train-resnet", "train-detector", "train-unet", "train-depthwise")
_MEASUREMENTS = ("throughput", "start-up", "memory")
#: What is asked under few settings, and answers for the others that are like them.
_FOR_OTHERS = ("problem-matrix", "gradients", "gradient-flow", *_MODELS)


def answers(results: Results) -> dict[str, tuple[str, str | None]]:
    """Verdict and setting by dtype and purpose."""
    found = recommend(Evidence(results), results.findings)
    assert found is not None
    return {key: (row["verdict"], row["setting"]) for key, row in found.per.items()}


def concerns(outcome: Outcome, state: str, dtype: str, purpose: str) -> bool:
    """Whether an outcome in a failing ``state`` speaks against its setting."""
    check = outcome.check
    if check in _BELOW:
        return outcome.dtype in ("float32", dtype)
    if purpose in ("inference", "changing-sizes"):
        return check in ("convolution", "problem-matrix") and (outcome.dtype, outcome.direction) == (
            dtype,
            "fwd",
        )
    if (check, state) == ("memory", "wrong"):
        return False
    if check in ("training-step", "gradients"):
        return True
    if check in ("batch-norm", *_MODELS):
        return outcome.dtype in ("float32", dtype)
    own = ("convolution", "problem-matrix", "gradient-flow", "autocast-step", *_MEASUREMENTS)
    return check in own and outcome.dtype == dtype


def with_outcome(results: Results, number: int, **changes: Any) -> Results:
    outcomes = list(results.outcomes)
    outcomes[number] = dataclasses.replace(outcomes[number], **changes)
    return dataclasses.replace(results, outcomes=tuple(outcomes))


def check_outcomes(results: Results) -> int:
    """Every outcome fails, in one state after the other: the answers that it speaks against change, no other
    one does. One that is right by another word changes none. Returns how many changes were tried."""
    before, tried = answers(results), 0
    first = next(iter(before))
    for number, outcome in enumerate(results.outcomes):
        states = [FAILURES[number % len(FAILURES)]]
        states += [WORKING[number % len(WORKING)]] if outcome.state in WORKING else []
        for state in states:
            after = answers(with_outcome(results, number, state=state, failure=None))
            tried += 1
            for key, answer in before.items():
                if key not in after or _only_ranks(outcome, key):
                    continue
                if after[first] != before[first] and after[key] == after[first]:
                    # One setting for all dtypes is preferred, so another dtype can follow the first one.
                    continue
                hit = state in FAILURES and _speaks_against(results, outcome, state, key, answer)
                told = f"{outcome.id} {outcome.state} -> {state}: {key} {answer} -> {after[key]}"
                assert (after[key] != answer) == hit, told
    return tried


def _only_ranks(outcome: Outcome, key: str) -> bool:
    """A layer that most programs lack ranks settings and speaks against none. For inference a measurement
    that fails speaks against nothing either, but there is a time less to go by."""
    if outcome.check in ("rnn", "lstm", "gru", "attention", "data-loader"):
        return True
    timed = {"inference": "throughput", "changing-sizes": "changing-sizes"}
    return outcome.check == timed.get(key.partition("/")[2])


def _speaks_against(
    results: Results, outcome: Outcome, state: str, key: str, answer: tuple[str, str | None]
) -> bool:
    """One failure more takes nothing from an answer that there is none."""
    dtype, purpose = key.split("/")
    return (
        answer[1] is not None
        and outcome.device == results.outcomes[0].device
        and concerns(outcome, state, dtype, purpose)
        and _answers_for(results, outcome, *answer)
    )


def _answers_for(results: Results, outcome: Outcome, verdict: str, chosen: str | None) -> bool:
    if outcome.setting == chosen:
        return True
    if outcome.check in _BELOW:
        return outcome.setting == "default" and chosen != "cpu"
    near = "default" if verdict.startswith("native") else verdict
    own = {each.check for each in results.outcomes if each.setting == chosen}
    if outcome.check == "batch-norm" and "training-step" in own:
        return False
    return outcome.setting == near and outcome.check in _FOR_OTHERS and outcome.check not in own


def check_facts(results: Results) -> int:
    """No fact about the machine changes what is recommended."""
    before, tried = answers(results), 0
    for machine in _machines(results.machine):
        assert answers(dataclasses.replace(results, machine=machine)) == before
        tried += 1
    return tried


def _machines(machine: Machine) -> Iterator[Machine]:
    yield Machine()
    for name in machine.facts:
        yield dataclasses.replace(machine, facts={**machine.facts, name: Fact(None, "it could not be read")})
    for name in machine.variables:
        others = {key: fact for key, fact in machine.variables.items() if key != name}
        yield dataclasses.replace(machine, variables=others)
    for isa in ("gfx1030", "gfx942", None):
        cards = tuple(dataclasses.replace(gpu, native_isa=Fact(isa, "another card")) for gpu in machine.gpus)
        yield dataclasses.replace(machine, gpus=cards)


def without_setting(results: Results, name: str) -> Results:
    """As if it had never been asked."""
    return dataclasses.replace(
        results,
        settings=tuple(each for each in results.settings if each.name != name),
        outcomes=tuple(each for each in results.outcomes if each.setting != name),
    )


def check_settings(results: Results) -> int:
    """A setting that nobody recommends is not missed, but ``default`` and ``bypass``, which answer for
    others; one that is recommended gives way."""
    before, tried = answers(results), 0
    for setting in results.settings:
        chosen = {name for _, name in before.values()}
        less = without_setting(results, setting.name)
        if not less.outcomes or (setting.name in ("default", "bypass") and setting.name not in chosen):
            continue
        after = answers(less)
        tried += 1
        for key, (_, name) in before.items():
            if key in after:
                assert (after[key][1] != name) == (name == setting.name), f"without {setting.name}: {key}"
    return tried


CHECKS: tuple[Callable[[Results], int], ...] = (check_outcomes, check_facts, check_settings)
