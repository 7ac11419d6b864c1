"""Every kind of fault in every phase of a child: told right, nothing after it lost, nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from runs import Background, machine_file, wait_until

from rocmprobe.model.results import FAILURES, Outcome, Trial
from rocmprobe.model.results_file import read_results
from rocmprobe.simulate.machines import PHASES

pytestmark = pytest.mark.thorough

_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGKILL")
_EFFECTS = (
    "exit", "raise", "hang", "busy", "ignore-term", "flood", "garbage", "memory", "grandchild",
    "grandchild-exit",
)  # fmt: skip
#: Fields of each kind of fault.
KINDS = {
    **{name: {"effect": "signal", "signal": name} for name in _SIGNALS},
    **{name: {"effect": name} for name in _EFFECTS},
}
#: The problem without a fault.
FINE = "conv2d-fp32-n1-c1-i8x8-k3-f3x3"
#: Short times, because every hang lasts until the timeout. The fork server has a long one, because no fault
#: can affect its start. Every fault is tested, however many hangs and crashes there were.
BUDGETS = {
    "server": 120, "start": 3, "first_call": 2, "steady": 2, "teardown": 3, "hangs": 1000, "crashes": 1000,
}  # fmt: skip
#: Each row is a run of its own, at the same time as the others: mostly they wait for hangs.
TOGETHER = (("import", "teardown"), ("prepare",), ("first-call",), ("steady",))


class Told(NamedTuple):
    """What the outcome must say of a fault."""

    state: str
    cause: str | None = None
    activity: str | None = None
    exit: str = "0"


def told(phase: str, kind: str) -> Told:
    """By kind; at import an exception is torch's, in preparing it is rocmprobe's own, and after the
    answer nothing touches the outcome."""
    exits = {"exit": "3", "grandchild-exit": "3", **{kind: kind for kind in KINDS if kind.startswith("SIG")}}
    hangs = {"hang": "idle", "busy": "busy", "ignore-term": "idle"}
    if phase == "teardown":
        raised = {"raise": "1", "memory": "1"}
        return Told("pass", exit={**exits, **raised, **dict.fromkeys(hangs, "killed")}.get(kind, "0"))
    if kind in exits:
        return Told("crash", kind if kind.startswith("SIG") else "exit", exit=exits[kind])
    if kind in hangs:
        return Told("hang", "timeout", hangs[kind], "killed")
    if kind in ("raise", "memory"):
        if phase == "import":
            return Told("error", "torch-unusable")
        if phase == "prepare":
            return Told("probe-error")
        return Told("error", "exception" if kind == "raise" else "out-of-memory")
    return Told("pass")


def fault_problem(phase: str, kind: str) -> str:
    """The problem on which the fault ``kind`` in ``phase`` happens."""
    number = PHASES.index(phase) * len(KINDS) + list(KINDS).index(kind)
    return f"conv2d-fp32-n1-c{number + 1}-i8x8-k4-f3x3"


def fault(phase: str, kind: str) -> dict[str, Any]:
    return {
        "library": "miopen", "phase": phase, **KINDS[kind], "settings": ["default"], "directions": ["fwd"],
        "problem": f"^{fault_problem(phase, kind)}$", "message": "a fault of the simulated machine",
    }  # fmt: skip


class Broken(NamedTuple):
    outcomes: dict[str, Outcome]
    trials: dict[str, Trial]
    runs: list[Background]
    temporary: Path


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broken]:
    """A machine with every fault, its phases side by side."""
    folder = tmp_path_factory.mktemp("matrix")
    temporary = folder / "tmp"
    temporary.mkdir()
    faults = [fault(phase, kind) for phase in PHASES for kind in KINDS]
    machine = machine_file(folder / "machine.toml", *faults, fresh=True, **BUDGETS)
    runs = []
    for phases in TOGETHER:
        asked = [fault_problem(phase, kind) for phase in phases for kind in KINDS] + [FINE]
        arguments = [argument for text in asked for argument in ("--problem", text)]
        arguments += [
            "--simulate",
            str(machine),
            "--only",
            "*/default/convolution/*",
            "--purpose",
            "inference",
        ]
        runs.append(Background(folder / phases[0], *arguments, env={"TMPDIR": str(temporary)}))
    printed = [run.process.communicate(timeout=300)[0] for run in runs]
    found = Broken({}, {}, runs, temporary)
    for run, text in zip(runs, printed):
        assert run.process.returncode == 1, text
        results = read_results(run.folder / "results.json")
        assert not results.partial
        found.outcomes.update({f"{run.folder.name} {each.problem}": each for each in results.outcomes})
        found.trials.update({each.id: each for each in results.trials})
    yield found
    for run in runs:
        for pid in run.alive():
            os.kill(pid, 9)


# One test, because each process of pytest that has one of several would make these slow runs.
@pytest.mark.parametrize(("phase", "kind"), [(phase, kind) for phase in PHASES for kind in KINDS])
def test_a_fault_is_told_by_phase_state_cause_and_activity(broken: Broken, phase: str, kind: str) -> None:
    run = next(phases[0] for phases in TOGETHER if phase in phases)
    outcome, expected = broken.outcomes[f"{run} {fault_problem(phase, kind)}"], told(phase, kind)
    exit_status = broken.trials[outcome.trial].exit
    assert Told(outcome.state, outcome.failure, outcome.activity, exit_status) == expected, outcome.evidence
    assert outcome.failure is None or outcome.failure in FAILURES
    if expected.state != "pass":
        assert outcome.phase == {"import": "start"}.get(phase, phase)
    if expected.state in ("crash", "hang"):
        last = {"import": None, "prepare": "ready"}.get(phase, f"phase {phase}")
        ending = dict(outcome.ending)
        assert ending.pop("oom_killed") in (None, False)
        assert ending == {"status": exit_status, "phase": outcome.phase, "after": last}
    else:
        assert not outcome.ending
        assert broken.trials[outcome.trial].exit_crash == (exit_status != "0")


def test_the_problem_after_all_the_faults_is_right_and_nothing_is_left(broken: Broken) -> None:
    assert [broken.outcomes[f"{phases[0]} {FINE}"].state for phases in TOGETHER] == ["pass"] * len(TOGETHER)
    assert wait_until(lambda: not any(run.alive() for run in broken.runs), 5)
    assert list(broken.temporary.iterdir()) == []
