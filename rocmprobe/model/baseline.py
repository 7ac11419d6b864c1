"""A former run to hold a new one against: what came of each of its questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.model.changes import BASELINE, Expected
from rocmprobe.model.results import BadInput, Machine, Outcome, Results
from rocmprobe.model.states import RUN_DIED


@dataclass(frozen=True)
class Baseline:
    """``path`` as the user named it; ``states`` by the id of the question, as they came, whatever was
    expected of them then. What was in flight when somebody ended that run is left out."""

    path: str
    started: str
    rocmprobe: str
    states: Mapping[str, str]

    def expected(self, outcome: Outcome) -> Expected:
        """What to say of an outcome that failed here."""
        reason = f"it came to {self.states[outcome.id]} in the baseline, a run of {self.started}"
        return Expected(outcome.state, BASELINE, reason)


def states(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """The state that each question came to, by its id, which stays the same from run to run."""
    return {outcome.id: came_to(outcome) for outcome in outcomes if outcome.cause != RUN_DIED}


def came_to(outcome: Outcome) -> str:
    """The state of an outcome, whatever was expected of it."""
    return outcome.expected.state if outcome.expected else outcome.state


def baseline_of(former: Results, path: str, machine: Machine, simulated: Optional[str]) -> Baseline:
    """``former``, read from ``path``, as the baseline of a run on ``machine``.

    Raises BadInput where it holds no outcome, is of another machine's GPUs, or of a simulated machine where
    this is not, or of another one: what comes of a question there says nothing here.
    """
    if not former.outcomes:
        raise BadInput(
            f"--baseline: {path}: it holds no outcome; name the results.json of a run that has some"
        )
    if former.simulated != simulated:
        theirs, ours = (
            f"the simulated machine {name}" if name else "a real one"
            for name in (former.simulated, simulated)
        )
        raise BadInput(
            f"--baseline: {path}: it is of {theirs}, this run of {ours}; name a run of the same machine"
        )
    if cards(former.machine) != cards(machine):
        raise BadInput(
            f"--baseline: {path}: it is of {named(former.machine)}, here is {named(machine)}; name a run "
            "of the same machine"
        )
    return Baseline(path, former.started, former.rocmprobe, states(former.outcomes))


def cards(machine: Machine) -> list[tuple[str, ...]]:
    """What identifies the GPUs of a machine; in the order that the questions name."""
    return [
        tuple(str(fact.value) for fact in (gpu.native_isa, gpu.pci_id, gpu.revision)) for gpu in machine.gpus
    ]


def named(machine: Machine) -> str:
    """The GPUs of a machine, for a sentence."""
    names = [f"{gpu.name.value or 'a GPU'} ({gpu.native_isa.value or 'ISA unknown'})" for gpu in machine.gpus]
    return " ".join(" and ".join(names).split())[:200] or "a machine without a GPU"
