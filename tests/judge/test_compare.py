"""What is told of two runs: noise never, a planted change always."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import every_row
from synthetic import STATUS, card, run

from rocmprobe.judge.comparison.compare import as_data, compare, verdict, worse
from rocmprobe.judge.comparison.environment_changes import ABSENT
from rocmprobe.model.results import BadInput, Fact, Outcome, Results, Setting, Trial

CPU = run(backend="onednn")
SETTINGS = ("default", "gemm-only", "vendor-off", "bypass")
PROBLEMS = ("one", "two", "three")
SECONDS = {"fwd": 4.4e-3, "bwd_data": 4.4e-3, "bwd_weights": 5.0e-3, "fwd_bwd": 14e-3}
YARDSTICKS = {"gemm": 3.3e-4, "copy": 5.1e-3}
WORK = {"gemm_flops": 33554432.0, "copy_bytes": 134217728.0}
#: Standard deviations of logarithms of times: what a time, a process, and a whole run are off by. On an idle
#: CPU, and on one that does other things, where times were seen to differ by a factor of three.
IDLE = (0.03, 0.015, 0.02)
BUSY = (0.4, 0.2, 0.2)


def timed(
    chance: random.Random, noise: tuple[float, float, float], slow: Mapping[str, float] = {}
) -> Results:
    """A run whose times scatter; ``slow``: factors by setting."""
    of_a_time, of_a_process, of_a_run = noise
    speed = chance.gauss(0, of_a_run)
    outcomes = []
    for setting in SETTINGS:
        process = speed + chance.gauss(0, of_a_process)
        for problem in PROBLEMS:
            timings: dict[str, float] = dict(WORK)
            for name, seconds in {**SECONDS, **YARDSTICKS}.items():
                factor = slow.get(setting, 1.0) if name in SECONDS else 1.0
                value = seconds * factor * 2.718281828 ** (process + chance.gauss(0, of_a_time))
                low, high = (1 + abs(chance.gauss(0, of_a_time)) for _ in range(2))
                timings.update({name: value, f"{name}_p10": value / low, f"{name}_p90": value * high})
            outcomes.append(Outcome(
                f"cpu/torch/{setting}/throughput/{problem}", "cpu", "torch", setting, "throughput", "conv",
                "pass", problem=problem, timings=timings,
            ))  # fmt: skip
    return dataclasses.replace(CPU, outcomes=tuple(outcomes))


def longer(outcome: Outcome, factor: float, names: Iterable[str]) -> Outcome:
    """With the times of these names, their deciles included, multiplied."""
    timings = {
        name: value * (factor if name.partition("_p")[0] in names else 1)
        for name, value in outcome.timings.items()
    }
    return dataclasses.replace(outcome, timings=timings)


def steady(results: Results) -> Results:
    """With yardsticks that say that the device ran at one speed."""
    return dataclasses.replace(results, outcomes=tuple(
        dataclasses.replace(each, timings={**each.timings, **YARDSTICKS, **WORK}) if each.timings else each
        for each in results.outcomes
    ))  # fmt: skip


def told(old: Results, new: Results) -> str:
    return verdict(compare(old, new, "old.json", "new.json"))


@every_row("noise", [IDLE, BUSY])
def test_noise_is_no_change(noise: tuple[float, float, float]) -> None:
    chance = random.Random(9)
    runs = [timed(chance, noise) for _ in range(100)]
    assert {told(*pair) for pair in zip(runs, runs[1:])} == {"no change"}


def test_a_slow_down_of_a_fifth_is_told_nearly_always_and_its_mending_as_often() -> None:
    chance = random.Random(5)
    pairs = [(timed(chance, IDLE), timed(chance, IDLE, {"bypass": 1.2})) for _ in range(100)]
    answers = [told(*pair) for pair in pairs]
    assert set(answers) <= {"1 setting slower", "no change"}
    assert answers.count("1 setting slower") >= 85
    back = [told(new, old) for old, new in pairs]
    assert [answer.replace("faster", "slower") for answer in back] == answers


def test_a_copy_with_longer_times_is_slower_even_where_the_times_scatter() -> None:
    chance = random.Random(1)
    old = timed(chance, BUSY)
    outcomes = tuple(
        longer(each, 1.2, SECONDS) if each.setting == "default" else each for each in old.outcomes
    )
    new = dataclasses.replace(old, outcomes=outcomes)
    comparison = compare(old, new, "old.json", "new.json")
    assert verdict(comparison) == "1 setting slower"
    assert worse(comparison)
    assert {(each.setting, each.what) for each in comparison.measurements.changed} == {
        ("default", what) for what in ("all", *SECONDS)
    }
    assert {round(each.ratio, 6) for each in comparison.measurements.changed} == {1.2}


def test_a_single_problem_is_named_where_it_is_far_off() -> None:
    chance = random.Random(2)
    old, new = timed(chance, IDLE), timed(chance, IDLE)
    first, *others = new.outcomes
    slower = longer(first, 3, ("fwd", "fwd_bwd"))
    changed = dataclasses.replace(new, outcomes=(slower, *others))
    comparison = compare(old, changed, "old.json", "new.json")
    assert verdict(comparison) == "no change; 1 single time differs"
    assert not worse(comparison)
    assert {each.id for each in comparison.measurements.changed_as("more")} == {first.id}


def test_a_device_whose_speed_changed_gives_no_verdict_on_time() -> None:
    chance = random.Random(3)
    old = timed(chance, IDLE)
    everything = (*SECONDS, *YARDSTICKS)
    throttled = dataclasses.replace(old, outcomes=tuple(longer(each, 2, everything) for each in old.outcomes))
    comparison = compare(old, throttled, "old.json", "new.json")
    assert verdict(comparison) == "no change"
    assert comparison.measurements.drift == {"cpu": pytest.approx(2)}
    assert len(comparison.measurements.changed_as("too noisy")) == len(SETTINGS) * (1 + len(SECONDS))

    # Without yardsticks no time is called changed.
    comparison = compare(run(), run(seconds={"bypass": (9.0, 9.0, 9.0)}), "old.json", "new.json")
    assert verdict(comparison) == "no change"
    assert comparison.measurements.drift == {}
    assert {each.setting for each in comparison.measurements.changed_as("too noisy")} == {"bypass"}

    # A busy processor says nothing of the GPU.
    settings = (Setting("default", "why", "native"), Setting("cpu", "why", "cpu", device="cpu"))
    old = dataclasses.replace(
        steady(run(seconds={"cpu": (5.0, 5.0, 5.0), "default": (1.0, 1.0, 1.0)})), settings=settings
    )
    new = dataclasses.replace(old, outcomes=tuple(
        longer(each, 2, YARDSTICKS) if each.setting == "cpu"
        else longer(each, 1.2, SECONDS) if each.setting == "default" else each
        for each in old.outcomes
    ))  # fmt: skip
    comparison = compare(old, new, "old.json", "new.json")
    assert comparison.measurements.drift == {"cuda:0": pytest.approx(1), "cpu": pytest.approx(2)}
    assert verdict(comparison) == "1 setting slower"


def test_failures_and_slow_downs_are_both_told() -> None:
    old = steady(run())
    broken = steady(run({"default/convolution/*": STATUS}, seconds={"bypass": (1.2, 1.2, 1.2)}))
    comparison = compare(old, broken, "old.json", "new.json")
    assert verdict(comparison) == "6 regressions, 1 setting slower"
    assert worse(comparison)
    mended = compare(broken, old, "old.json", "new.json")
    assert verdict(mended) == "6 fixed, 1 setting faster"
    assert not worse(mended)


def test_a_run_is_no_change_to_itself_and_the_answer_is_json() -> None:
    comparison = compare(run(), run(), "old.json", "new.json")
    assert verdict(comparison) == "no change"
    assert not worse(comparison)
    assert comparison.environment == ()
    data = json.loads(json.dumps(as_data(comparison)))
    assert (data["verdict"], data["worse"], data["changed"]) == ("no change", False, [])
    assert data["compared"] == len(run().outcomes)


def with_new_sizes(costs: float) -> Results:
    outcome = Outcome(
        "cpu/torch/default/changing-sizes/float32", "cpu", "torch", "default", "changing-sizes", "conv",
        "pass",
        timings={"new_size_median": costs, "new_size_p10": costs * 0.9, "new_size_p90": costs * 1.2},
    )  # fmt: skip
    return steady(dataclasses.replace(CPU, outcomes=(outcome,)))


def test_clear_factors_of_sizes_memory_and_first_calls() -> None:
    # New sizes by a clear factor.
    assert told(with_new_sizes(0.1), with_new_sizes(0.25)) == "no change"
    assert told(with_new_sizes(0.1), with_new_sizes(90.0)) == "1 setting slower for new sizes"
    assert told(with_new_sizes(90.0), with_new_sizes(0.1)) == "1 setting faster for new sizes"

    # Memory and first calls by a clear factor.
    assert told(with_memory(1000), with_memory(1200, 0.12)) == "no change"
    assert told(with_memory(1000), with_memory(1300)) == "1 problem with more memory"
    assert (
        told(with_memory(1000, 0.05), with_memory(700, 0.2))
        == "1 setting slower to start, 1 problem with less memory"
    )


def with_memory(peak: int, starts: float = 0.05) -> Results:
    outcome = Outcome(
        "cpu/torch/default/memory/p", "cpu", "torch", "default", "memory", "conv", "pass",
        memory={"peak_bytes": peak, "saved_bytes": 4096, "largest_batch": peak},
        timings={"cold_first_call": starts, "cold_first_call_min": starts, "cold_first_call_max": starts},
    )  # fmt: skip
    return steady(dataclasses.replace(CPU, outcomes=(outcome,)))


def other_card(**facts: Any) -> Results:
    machine = card()
    gpu = dataclasses.replace(machine.gpus[0], **{name: Fact(value, "x") for name, value in facts.items()})
    slow = {"default": (9.0, 9.0, 9.0)}
    return steady(run(seconds=slow, machine=dataclasses.replace(machine, gpus=(gpu,))))


def broken(results: Results) -> Results:
    outcomes = (dataclasses.replace(each, state="crash") for each in results.outcomes)
    return dataclasses.replace(results, outcomes=tuple(outcomes))


@every_row(
    ("new", "why", "words"),
    [
        (other_card(pci_id="1002:731f"), "different GPUs", "(gfx1010), PCI 1002:731f."),
        (other_card(native_isa="gfx1030"), "different GPUs", "one: real, AMD Radeon RX 5600 XT (gfx1030)"),
        (dataclasses.replace(other_card(), simulated="conv-hang"), "a simulated machine and a real one",
         "The new one: simulated (conv-hang)"),
    ],
)  # fmt: skip
def test_strangers_are_not_compared_and_that_passes_no_job(new: Results, why: str, words: str) -> None:
    for other in (new, broken(new)):
        comparison = compare(steady(run()), other, "old.json", "new.json")
        assert (comparison.compared, comparison.changed, comparison.measurements.times) == (0, (), 0)
        assert verdict(comparison) == f"not comparable: {why}"
        assert worse(comparison)
        assert as_data(comparison)["not_comparable"] == {"cuda:0": why}
        (note,) = comparison.notes
        assert words in note
    assert told(steady(run()), other_card()) == "1 setting slower"


def test_processors_are_told_apart() -> None:
    # A processor beside another card is compared all the same.
    def of(results: Results, state: str) -> Results:
        beside = dataclasses.replace(CPU.outcomes[0], state=state)
        return dataclasses.replace(results, outcomes=(*results.outcomes, beside))

    comparison = compare(of(run(), "pass"), of(other_card(pci_id="1"), "crash"), "o", "n")
    assert verdict(comparison) == "not comparable: different GPUs; on the other devices: 1 regression"
    assert [each.id for each in comparison.changed] == [CPU.outcomes[0].id]

    # Processors are told apart by name and cores.
    def of(name: str, cores: int) -> Results:
        found = timed(random.Random(1), IDLE)
        facts = {"cpu.name": Fact(name, "x"), "cpu.allowed": Fact(cores, "x")}
        return dataclasses.replace(found, machine=dataclasses.replace(found.machine, facts=facts))

    assert compare(of("A", 2), of("A", 2), "o", "n").measurements.times == len(SECONDS) * 12
    for other in (of("B", 2), of("A", 4)):
        assert compare(of("A", 2), other, "o", "n").measurements.times == 0


def test_what_worked_and_is_blocked_fails_a_job_and_what_is_skipped_or_slow_does_not() -> None:
    def of(state: str) -> Results:
        return run({"default/convolution/*": state})

    blocked = compare(of("pass"), of("blocked"), "o", "n")
    assert (verdict(blocked), worse(blocked)) == ("6 without a result", True)
    for before, after in (("error", "blocked"), ("pass", "skipped"), ("pass", "n/a"), ("pass", "slow")):
        assert not worse(compare(of(before), of(after), "o", "n"))


def environment(results: Results, **changes: Any) -> Results:
    machine = results.machine
    facts = {**machine.facts, **{name: Fact(value, "x") for name, value in changes.pop("facts", {}).items()}}
    gpu = dataclasses.replace(
        machine.gpus[0], **{name: Fact(value, "x") for name, value in changes.pop("gpu", {}).items()}
    )
    variables = changes.pop("variables", machine.variables)
    return dataclasses.replace(results, machine=dataclasses.replace(
        machine, facts=facts, gpus=(gpu,), variables=variables), **changes)  # fmt: skip


def test_the_environment_is_told_without_what_differs_in_any_two_runs() -> None:
    db = {"path": "~/.config/miopen", "files": 1, "exists": False}
    old = environment(
        run(),
        facts={"kernel.release": "6.1", "memory.available_bytes": 1, "dmesg.events": [], "miopen.user_db": db,
                      "host": "<ip-11111>"},
        gpu={"temperature_edge_c": 40, "vbios": "1"}, settings=(Setting("default", "why", "native"),),
        trials=(Trial("1", "cuda:0", "torch", "default", "fork", "0", library="3.4.0"),),
    )  # fmt: skip
    new = environment(
        run(), rocmprobe="0.2.0", options={"level": "long"},
        facts={"kernel.release": "6.8", "memory.available_bytes": 2, "dmesg.events": ["reset"],
               "miopen.user_db": {**db, "files": 9, "exists": True}, "host": "<ip-22222>"},
        gpu={"temperature_edge_c": 80, "vbios": "2"},
        variables={"MIOPEN_FIND_MODE": Fact("1", "environment")},
        settings=(Setting("default", "other words", "native", {"MIOPEN_LOG_LEVEL": "6"}),),
        trials=(Trial("1", "cuda:0", "torch", "default", "fork", "0", library="3.5.1"),),
    )  # fmt: skip
    found = {each.name: (each.before, each.after) for each in compare(old, new, "o", "n").environment}
    assert found == {
        "rocmprobe": ("0.1.0", "0.2.0"), "options.level": (ABSENT, "long"),
        "options.purpose": ("training", ABSENT), "facts.kernel.release": ("6.1", "6.8"),
        "gpus.0.vbios": ("1", "2"), "variables.HSA_OVERRIDE_GFX_VERSION": ("10.3.0", ABSENT),
        "variables.MIOPEN_FIND_MODE": (ABSENT, "1"),
        "settings.default.env.MIOPEN_LOG_LEVEL": (ABSENT, "6"), "library.cuda:0.torch": ("3.4.0", "3.5.1"),
    }  # fmt: skip


def test_what_only_one_run_measured_is_no_difference() -> None:
    """A run with ``--verify`` tries one setting of all."""
    settings = tuple(Setting(name, "why", "native") for name in ("default", "gemm-only", "vendor-off"))
    trial = Trial("1", "cpu", "torch", "cpu", "fork", "0", library="oneDNN 3.4")
    whole = environment(
        run(), settings=settings, facts={"kernel.release": "6.1", "deep.hip": "6.1"}, trials=(trial,)
    )
    verified = environment(run(), settings=settings[:1], facts={"kernel.release": "6.1"})
    assert compare(whole, verified, "o", "n").environment == ()
    assert compare(verified, whole, "o", "n").environment == ()


def test_the_library_of_a_device_is_not_that_of_the_setting_that_runs_last_on_the_processor() -> None:
    def of(*libraries: str) -> Results:
        settings = (Setting("default", "why", "native"), Setting("cpu", "why", "cpu", device="cpu"))
        names = ("default", "vendor-off", "cpu")
        trials = tuple(
            Trial(name, "cuda:0", "torch", name, "fork", "0", library=library)
            for name, library in zip(names, libraries)
        )
        return environment(run(), settings=settings, trials=trials)

    old = of("MIOpen 2.17", "MIOpen 2.17", "oneDNN 3.4")
    found = compare(old, of("MIOpen 3.2", "MIOpen 2.17", "oneDNN 3.4"), "o", "n").environment
    assert [(each.name, each.before, each.after) for each in found] == [
        ("library.cuda:0.torch", "MIOpen 2.17", "MIOpen 2.17, MIOpen 3.2")
    ]
    (other,) = compare(old, of("MIOpen 2.17", "MIOpen 2.17", "oneDNN 3.5"), "o", "n").environment
    assert other.name == "library.cpu.torch"


def test_a_comparison_of_nothing_does_not_pass() -> None:
    old = dataclasses.replace(run(), outcomes=run().outcomes[:3])
    new = dataclasses.replace(run(), outcomes=run().outcomes[3:6], partial=True)
    comparison = compare(old, new, "old.json", "new.json")
    assert worse(comparison)
    assert verdict(comparison).startswith("nothing was compared")
    assert "The new run is incomplete: some of its tests did not run." in comparison.notes
    with pytest.raises(BadInput, match=r"new\.json: contains no outcomes"):
        compare(old, dataclasses.replace(new, outcomes=()), "old.json", "new.json")


@given(
    st.lists(st.one_of(st.floats(), st.none(), st.text(max_size=2), st.integers()), min_size=14, max_size=14)
)
def test_odd_numbers_in_a_file_break_nothing(odd: list[Any]) -> None:
    old = timed(random.Random(4), IDLE)
    first, *others = old.outcomes
    timings = dict(zip([*first.timings, "cold_first_call", "cold_first_call_min"], odd))
    strange = dataclasses.replace(first, timings=timings, memory={"peak_bytes": odd[0]})
    new = dataclasses.replace(old, outcomes=(strange, *others))
    for pair in ((old, new), (new, old), (new, new)):
        assert json.dumps(as_data(compare(*pair, "o", "n")), allow_nan=False)
