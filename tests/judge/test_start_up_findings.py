"""The finding about slow first calls, from times that were never measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import synthetic
from rows import every_row
from synthetic import TIMED, diagnose

from rocmprobe.judge.findings.first_calls import start_ups
from rocmprobe.model.results import Outcome, Results


def first_calls(
    setting: str, cold: float, warm: float, starts: int = 3, spread: float = 0.1, **timings: Any
) -> Outcome:
    times = {"steady": 0.01, "steady_p10": 0.009, "steady_p90": 0.012}
    for word, middle in (("cold", cold), ("warm", warm)):
        times.update({f"{word}_first_call": middle, f"{word}_starts": starts})
        times[f"{word}_first_call_min"] = middle * (1 - spread)
        times[f"{word}_first_call_max"] = middle * (1 + spread)
    return Outcome(
        f"cuda:0/{setting}/start-up/{TIMED}", "cuda:0", setting, "start-up", "conv", "pass",
        problem=TIMED, timings={**times, **timings},
    )  # fmt: skip


def run(*outcomes: Outcome, changes: Any = (), **fields: Any) -> Results:
    results = synthetic.run(dict(changes), **fields)
    return replace(results, outcomes=(*results.outcomes, *outcomes))


def slow(results: Results) -> list[Any]:
    return [finding for finding in diagnose(results) if finding.id == "slow-first-call"]


def test_the_quickest_setting_that_is_right_is_named() -> None:
    # A quicker setting is named.
    results = run(first_calls("default", 40.0, 0.8), first_calls("find-fast", 3.0, 0.7))
    (finding,) = slow(results)
    assert (finding.severity, finding.cause, finding.layer) == ("info", "cold-compile-slow", "miopen-find")
    assert "40 s with MIOpen's defaults, and 3.0 s with find mode FAST" in finding.title
    assert "In a second process it took 0.8 s" in finding.advice

    # The quickest of several.
    others = [first_calls(name, each, 0.5) for name, each in (("no-igemm", 9.0), ("find-fast", 2.0))]
    (finding,) = slow(run(first_calls("default", 40.0, 0.8), *others))
    assert "find mode FAST" in finding.title

    # A setting that is wrong is no way out.
    calls = first_calls("default", 40.0, 0.8), first_calls("find-fast", 3.0, 0.7)
    assert slow(run(*calls, changes={"find-fast/convolution/*": "wrong"})) == []

    # A simulated machine has no times of its own.
    calls = first_calls("default", 40.0, 0.8), first_calls("find-fast", 3.0, 0.7)
    assert slow(run(*calls, simulated="somewhere")) == []

    # A start up that breaks speaks against the setting.
    broken = replace(first_calls("default", 3.0, 1.0), state="crash", timings={})
    findings = {finding.id for finding in diagnose(run(broken))}
    assert "native-convolution" in findings


@every_row(
    ("cold", "other"),
    [(40.0, 30.0), (4.0, 0.5), (40.0, 19.0)],
)
def test_no_finding(cold: float, other: float) -> None:
    assert slow(run(first_calls("default", cold, 0.8), first_calls("find-fast", other, 0.7))) == []


@every_row(
    ("cold", "warm", "starts", "survives"),
    [(3.0, 1.0, 3, True), (1.0, 1.0, 3, False), (1.1, 1.0, 3, False), (3.0, 1.0, 1, None)],
)
def test_whether_the_cache_survives(cold: float, warm: float, starts: int, survives: Any) -> None:
    (found,) = start_ups(run(first_calls("default", cold, warm, starts)).outcomes)
    assert found.cache_survives is survives


@every_row("value", [None, "3", float("nan"), -1.0, True, [1.0]])
@every_row("name", ["cold_first_call", "warm_first_call_max", "steady"])
def test_odd_times_are_passed_over(name: str, value: Any) -> None:
    assert start_ups(run(first_calls("default", 3.0, 1.0, **{name: value})).outcomes) == []
