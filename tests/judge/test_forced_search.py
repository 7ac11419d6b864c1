"""The finding about searches that a variable of the owner forces, from outcomes that never happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import synthetic
from rows import every_row
from synthetic import FP32, Change, diagnose

from rocmprobe.model.results import Fact, Finding, Machine

HANG = {"state": "hang", "phase": "first-call", "activity": "gpu-busy"}
FORWARD = f"convolution/{FP32}/fwd"


def card(**variables: str) -> Machine:
    facts = {name: Fact(value, "environment") for name, value in variables.items()}
    return replace(synthetic.card(), variables=facts)


def found(changes: dict[str, Change], machine: Machine, **fields: Any) -> list[Finding]:
    results = synthetic.run(changes, machine=machine, wanted="default,as-found", **fields)
    assert results.setting("as-found")
    return [finding for finding in diagnose(results) if finding.id == "forced-search"]


def called(seconds: float) -> dict[str, Any]:
    return {"timings": {"first_call": seconds}}


def test_a_search_that_ended_is_no_hang_and_has_both_times() -> None:
    changes = {f"as-found/{FORWARD}": called(1800.0), f"default/{FORWARD}": called(0.25)}
    (finding,) = found(changes, card(MIOPEN_FIND_ENFORCE="3"))
    assert (finding.severity, finding.cause, finding.layer) == ("warning", "cold-compile-slow", "miopen-find")
    assert finding.title == (
        "Not a hang: MIOpen searches, because MIOPEN_FIND_ENFORCE=3; a first call takes 30 min, and "
        "0.25 s in a clean environment"
    )
    assert finding.evidence == (
        f"First call, {FP32} fwd float32: 30 min in your own environment; 0.25 s in a clean one",
    )
    assert finding.advice.startswith("Unset MIOPEN_FIND_ENFORCE.")
    assert "keep MIOpen's databases" in finding.advice


def test_a_search_that_was_interrupted_is_probably_no_hang() -> None:
    (finding,) = found({f"as-found/{FORWARD}": HANG}, card(MIOPEN_FIND_ENFORCE="4"))
    assert finding.title == "Probably not a hang: MIOpen searches, because MIOPEN_FIND_ENFORCE=4"
    assert "no end within the time limit in your own environment; not timed in a clean" in finding.evidence[0]
    # The time that is known stands there.
    changes = {f"as-found/{FORWARD}": HANG, f"default/{FORWARD}": called(0.25)}
    (finding,) = found(changes, card(MIOPEN_FIND_ENFORCE="4"))
    assert finding.title.endswith("; the same first call takes 0.25 s in a clean environment")


@every_row(
    "variables",
    [
        {"MIOPEN_FIND_ENFORCE": "SEARCH"}, {"MIOPEN_FIND_ENFORCE": "search_db_update"},
        {"MIOPEN_FIND_MODE": "1"}, {"MIOPEN_FIND_MODE": "normal"}, {"MIOPEN_FIND_MODE": "HYBRID"},
    ],
)  # fmt: skip
def test_values_that_force_a_search(variables: dict[str, str]) -> None:
    (finding,) = found({f"as-found/{FORWARD}": HANG}, card(**variables))
    ((name, value),) = variables.items()
    assert f"because {name}={value}" in finding.title


@every_row(
    "variables",
    [
        {}, {"MIOPEN_FIND_ENFORCE": "1"}, {"MIOPEN_FIND_ENFORCE": "ALWAYS"}, {"MIOPEN_FIND_MODE": "2"},
        {"MIOPEN_FIND_MODE": "DYNAMIC_HYBRID"}, {"MIOPEN_LOG_LEVEL": "3"},
    ],
)  # fmt: skip
def test_other_values_do_not(variables: dict[str, str]) -> None:
    assert not found({f"as-found/{FORWARD}": HANG}, card(**variables))


@every_row(
    "changes",
    [
        {},
        # It hangs without the variable, too.
        {f"as-found/{FORWARD}": HANG, f"default/{FORWARD}": HANG},
        # It waits for the driver.
        {f"as-found/{FORWARD}": {**HANG, "activity": "idle"}},
        # It hangs where nothing is searched.
        {f"as-found/{FORWARD}": {**HANG, "phase": "steady"}},
        {"as-found/training-step/*": {**HANG, "phase": "start"}},
        # It is as slow without the variable.
        {f"as-found/{FORWARD}": called(30.0), f"default/{FORWARD}": called(25.0)},
        # It is not slow.
        {f"as-found/{FORWARD}": called(3.0), f"default/{FORWARD}": called(0.1)},
        # Another setting lacks the variable.
        {f"vendor-off/{FORWARD}": HANG},
    ],
)
def test_what_the_variable_did_not_cause(changes: dict[str, Change]) -> None:
    assert not found(changes, card(MIOPEN_FIND_ENFORCE="3"))


def test_two_variables_are_both_named() -> None:
    machine = card(MIOPEN_FIND_ENFORCE="3", MIOPEN_FIND_MODE="1")
    (finding,) = found({f"as-found/{FORWARD}": HANG}, machine)
    assert "because MIOPEN_FIND_ENFORCE=3 and MIOPEN_FIND_MODE=1" in finding.title
    assert "Unset MIOPEN_FIND_ENFORCE and MIOPEN_FIND_MODE." in finding.advice


def test_a_cpu_has_no_miopen() -> None:
    machine = Machine(variables={"MIOPEN_FIND_ENFORCE": Fact("3", "environment")})
    assert not found({f"as-found/{FORWARD}": HANG}, machine, backend="onednn")


def test_the_databases_are_kept_if_only_searches_fail() -> None:
    machine = card(MIOPEN_FIND_ENFORCE="3")
    for changes, ids in (
        ({f"as-found/{FORWARD}": HANG}, ["forced-search"]),
        ({f"as-found/{FORWARD}": HANG, "as-found/training-step/*": "wrong"}, ["as-found", "forced-search"]),
    ):
        results = synthetic.run(changes, machine=machine, wanted="default,as-found")
        shown = [finding.id for finding in diagnose(results)]
        assert [name for name in shown if name in ("as-found", "forced-search")] == ids
