"""Who is an outlier, with which fact, and who is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gathered import outcome, put, results, table
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.collection.outliers import FEWEST, SHARE, LatestState, MachineGroup, outliers
from rocmprobe.model.states import state_of


def found(folder: Path, machines: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    for name, runs in machines.items():
        for number, run in enumerate(runs):
            put(folder / name / f"{number}.json", run)
    return table(folder)["outliers"]


def alike(number: int, state: str = "pass") -> dict[str, list[dict[str, Any]]]:
    return {f"node{each}": [results(outcome(state))] for each in range(number)}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("kernel.release", {"facts": {"kernel.release": "5.4.0"}}),
        ("amdgpu.version", {"facts": {"amdgpu.version": "6.2"}}),
        ("packages.linux-firmware", {"facts": {"packages": {"linux-firmware": "2019"}}}),
        ("gpu.vbios", {"gpu": {"vbios": "113-OTHER"}}),
        ("gpu.vram_bytes", {"gpu": {"vram_bytes": 2**32}}),
        ("variables.HSA_ENABLE_SDMA", {"variables": {"HSA_ENABLE_SDMA": "0"}}),
        ("rocmprobe", {"rocmprobe": "0.0.9"}),
    ],
)
def test_the_machine_that_differs_is_named_with_the_fact_that_only_it_has(
    tmp_path: Path, name: str, changed: dict[str, Any]
) -> None:
    machines = {**alike(4), "odd": [results(outcome("crash", cause="SIGSEGV"), **changed)]}
    (each,) = found(tmp_path, machines)
    assert each["machines"] == ["odd"]
    (cell,) = each["cells"]
    assert (cell["check"], cell["state"], cell["majority"], cell["machines"], cell["of"]) == (
        "gemm", "crash", "pass", 4, 5,
    )  # fmt: skip
    assert [fact["name"] for fact in each["facts"]] == [name]


def test_without_a_fact_of_its_own_it_is_named_all_the_same(tmp_path: Path) -> None:
    (each,) = found(tmp_path, {**alike(3), "odd": [results(outcome("wrong"))]})
    assert each["machines"] == ["odd"]
    assert each["facts"] == []


def test_two_that_differ_alike_are_one_finding_with_what_they_share(tmp_path: Path) -> None:
    odd = [results(outcome("hang"), facts={"kernel.release": "5.4.0"})]
    (each,) = found(tmp_path, {**alike(6), "odd1": odd, "odd2": odd})
    assert each["machines"] == ["odd1", "odd2"]
    assert each["facts"] == [{"name": "kernel.release", "value": "5.4.0", "others": {"6.8.0": 6}}]


@pytest.mark.parametrize(
    "machines",
    [
        {**alike(2), "odd": [results(outcome("crash"))]},
        {**alike(3), "odd1": [results(outcome("crash"))], "odd2": [results(outcome("hang"))]},
        {**alike(5), "odd": [results(outcome("flaky"))]},
        {**alike(5), "odd": [results(outcome("blocked"))]},
        {**alike(5), "odd": [results(outcome("crash"), gpu={"revision": "0xca"})]},
        {**alike(5), "odd": [results(outcome("crash"), gpu={"pci_id": "0x7310"})]},
        {**alike(5), "odd": [results(outcome("crash"), facts={"torch.version": "2.1.0"})]},
        {**alike(5), "odd": [results(outcome("crash"), variables={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})]},
        {**alike(5), "odd": [results(outcome("crash", setting="vendor-off"))]},
        {**alike(5), "odd": [results(), results(outcome("crash"), day=2)]},
        {**alike(5), "odd": [results(outcome("crash"))], "shaky": [results(outcome("flaky")),
                                                                  results(outcome("crash"), day=2)]},
    ],
    ids=["two-agree", "below-75-percent", "flaky", "blocked", "revision", "pci-id", "stack", "override",
         "setting", "changed-in-its-last-run", "as-an-unsteady-one"],
)  # fmt: skip
def test_nobody_is_an_outlier(tmp_path: Path, machines: dict[str, list[dict[str, Any]]]) -> None:
    assert found(tmp_path, machines) == []


def test_runs_that_asked_other_problems_are_not_compared(tmp_path: Path) -> None:
    more = results(outcome("pass", problem="a"), outcome("wrong", problem="b"), day=2)
    same = [results(outcome("pass", problem="a"))]
    machines = {**{f"node{number}": same for number in range(5)}, "long": [*same, more]}
    assert found(tmp_path, machines) == []
    assert table(tmp_path)["changes"] == []


def test_a_change_that_a_second_run_confirms_makes_an_outlier(tmp_path: Path) -> None:
    states = ("pass", "crash", "crash")
    odd = [results(outcome(state), day=day) for day, state in enumerate(states, 1)]
    (each,) = found(tmp_path, {**alike(5), "odd": odd})
    assert each["machines"] == ["odd"]


STATES = st.sampled_from(["pass", "crash", "hang", "flaky", "blocked"])


@given(st.lists(st.tuples(STATES, st.booleans()), max_size=12))
def test_an_outlier_is_steady_and_against_a_majority(machines: list[tuple[str, bool]]) -> None:
    seen = {
        (number, 0): LatestState(state, (state,) if state == "flaky" or unsteady else ())
        for number, (state, unsteady) in enumerate(machines)
    }
    place = MachineGroup(0, 0, {0: seen}, dict.fromkeys(seen, 0))
    steady = [state.state for state in seen.values() if not state.states and state_of(state.state).learned]
    for each in outliers(place, lambda number: {}):
        (cell,) = each.cells
        assert all(seen[unit].state == cell.state and not seen[unit].states for unit in each.machines)
        assert cell.machines == steady.count(cell.majority) >= max(FEWEST, SHARE * len(steady))
        assert cell.state != cell.majority
