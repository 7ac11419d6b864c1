"""An earlier run with which a new run is compared."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.model.changes import BASELINE, Expected
from rocmprobe.model.facts import FactName
from rocmprobe.model.results import BadInput, Machine, Outcome, Results
from rocmprobe.model.states import RUN_DIED

#: Facts with the versions of a run's software. The first known fact is the version.
_VERSIONS: Mapping[str, tuple[FactName, ...]] = {
    "torch": ("torch.version",), "rocm": ("rocm.version", "torch.hip", "hip.version"),
    "miopen": ("miopen.version",), "amdgpu": ("amdgpu.version", "amdgpu.origin"),
    "kernel": ("kernel.release",),
}  # fmt: skip


@dataclass(frozen=True)
class Baseline:
    """The states of the cases in an earlier run.

    ``states`` maps the id of each finished case to its observed state, e.g. "wrong" instead of "xfail".
    """

    path: str
    started: str
    rocmprobe: str
    states: Mapping[str, str]

    def expected(self, outcome: Outcome) -> Expected:
        """Return an ``Expected`` with this baseline as the reason.

        ``states`` must contain the outcome's id.
        """
        reason = f"its state was {self.states[outcome.id]} in the baseline, a run of {self.started}"
        return Expected(outcome.state, BASELINE, reason)


def states(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Return the observed state of each finished case, keyed by case id.

    Leave out repeated cases (with an id such as ".../x100"), which run only while a cure is searched for.
    """
    return {
        outcome.id: observed_state(outcome)
        for outcome in outcomes
        if outcome.failure != RUN_DIED and not re.search(r"/x\d+$", outcome.id)
    }


def observed_state(outcome: Outcome) -> str:
    """Return the observed state of an outcome, e.g. "wrong" instead of "xfail"."""
    return outcome.expected.state if outcome.expected else outcome.state


def baseline_of(
    former: Results, path: str, machine: Machine, simulated: Optional[str], devices: Collection[str]
) -> Baseline:
    """Return the run ``former`` as the baseline of a run of ``devices`` on ``machine``.

    ``simulated`` is the name of the new run's simulated machine, or None for a real machine.

    Raise BadInput if ``former`` has no outcomes, if its GPUs or its simulated machine differ from those of
    the new run, or if it did not test one of ``devices``.
    """
    if not former.outcomes:
        raise BadInput(
            f"--baseline: {path}: it has no outcomes; name the results.json of a run with outcomes"
        )
    if different := different_machines(former, machine, simulated):
        theirs, ours = different
        raise BadInput(
            f"--baseline: {path}: it is from {theirs}, this run from {ours}; name a run of the same machine"
        )
    tested = {outcome.device for outcome in former.outcomes}
    if missing := sorted(set(devices) - tested):
        raise BadInput(
            f"--baseline: {path}: it tested {', '.join(sorted(tested))}, this run tests "
            f"{', '.join(missing)}; name a run of the same device, or choose the device with --device"
        )
    return Baseline(path, former.started, former.rocmprobe, states(former.outcomes))


def different_machines(
    former: Results, machine: Machine, simulated: Optional[str]
) -> Optional[tuple[str, str]]:
    """Return a description of each machine if the GPUs or the simulated machines differ, else None."""
    if former.simulated != simulated:
        names = (former.simulated, simulated)
        theirs, ours = (f"the simulated machine {name}" if name else "a real machine" for name in names)
        return theirs, ours
    if _gpu_identities(former.machine) != _gpu_identities(machine):
        return describe_gpus(former.machine), describe_gpus(machine)
    return None


def _gpu_identities(machine: Machine) -> list[tuple[str, ...]]:
    """Return native ISA, PCI id and revision of each GPU."""
    return [
        tuple(str(fact.value) for fact in (gpu.native_isa, gpu.pci_id, gpu.revision)) for gpu in machine.gpus
    ]


def describe_gpus(machine: Machine) -> str:
    """Return the names, ISAs, PCI ids and revisions of a machine's GPUs as part of a sentence."""
    names = []
    for gpu in machine.gpus:
        native, effective = gpu.native_isa.value, gpu.effective_isa.value
        isa = f"{native or 'ISA unknown'}{f' as {effective}' if effective not in (None, native) else ''}"
        known = [str(value) for value in (isa, gpu.pci_id.value, gpu.revision.value) if value]
        names.append(f"{gpu.name.value or 'a GPU'} ({' '.join(known)})")
    return " ".join(" and ".join(names).split())[:200] or "a machine without a GPU"


def versions(machine: Machine) -> dict[str, str]:
    """Return the versions of the machine's software, "" where unknown."""
    known = {name: [machine.value(fact) for fact in facts] for name, facts in _VERSIONS.items()}
    return {name: str(next(filter(None, values), "")) for name, values in known.items()}


def identity(machine: Machine, rocmprobe: str) -> dict[str, str]:
    """Return what the outcomes of a run depend on: the processors and the versions of the software."""
    return {
        "GPU": describe_gpus(machine),
        "CPU": str(machine.value("cpu.name") or ""),
        "torch of this machine": str(machine.value("simulation.torch") or ""),
        **versions(machine),
        "rocmprobe": rocmprobe,
    }
