"""Several Python environments in one run: what each adds to the facts of the machine, and its targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from rocmprobe.detect import detect
from rocmprobe.model.results import BadInput, Environment, Fact, Machine, NothingToTest
from rocmprobe.run.interpreters import Interpreter, interpreters, pass_on
from rocmprobe.run.options import RunOptions
from rocmprobe.run.targets import Target, find_targets

#: Facts that change while the environments are looked at.
_OF_THE_MOMENT = ("memory.available_bytes",)


@dataclass(frozen=True)
class Compared:
    """What a run is about: the machine with the facts that its environments share, the targets of each, the
    environments, and by name how a worker is started in those that can be asked. Without environments, the
    machine and the targets of the Python that the run is in."""

    machine: Machine
    targets: tuple[Target, ...]
    environments: tuple[Environment, ...] = ()
    interpreters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def torch(self, name: str) -> Optional[str]:
        """The version of torch in an environment, of the only one for ""."""
        facts = next((each.facts for each in self.environments if each.name == name), {})
        version: Optional[str] = replace(self.machine, facts={**self.machine.facts, **facts}).value(
            "torch.version"
        )
        return version


def refuse_with_environments(options: RunOptions) -> None:
    """Raises BadInput for options that do not go with ``--python``."""
    if options.simulate:
        raise BadInput(
            "--python: a simulated machine has a torch of its own; leave out --simulate or --python"
        )
    if options.driver == "capi" or options.libraries:
        raise BadInput(
            "--python compares what PyTorch does in each environment; leave out --driver capi and --libraries"
        )


def compared(wanted: Sequence[str], device: str, machine: Machine) -> Compared:
    """The environments that ``wanted`` names, and the targets that ``device`` names in each. ``machine`` is
    this one, as the Python that the run is in sees it. One that cannot be asked says why.

    Raises BadInput as ``interpreters`` does, NothingToTest where no environment has what is to be tested.
    """
    found = interpreters(wanted)
    seen: dict[str, Machine] = {}
    targets: list[Target] = []
    unusable = {each.name: each.unusable for each in found}
    for each in found:
        if each.unusable:
            continue
        seen[each.name] = detect(python=each.imports)
        try:
            own = find_targets(device, seen[each.name])
        except NothingToTest as error:
            unusable[each.name] = str(error)
            continue
        targets += [replace(target, environment=each.name) for target in own]
    if not targets:
        raise NothingToTest("; ".join(f"--python {name}: {why}" for name, why in unusable.items()))
    pass_on(found)
    shared = _shared([machine, *seen.values()])
    environments = tuple(
        Environment(
            each.name,
            each.python,
            _beyond(seen[each.name].facts, shared) if each.name in seen else {},
            unusable[each.name],
        )
        for each in found
    )
    gpus = next(iter(seen.values())).gpus
    return Compared(
        Machine(gpus, shared, machine.variables), tuple(targets), environments, _asked(found, unusable)
    )


def _asked(found: Sequence[Interpreter], unusable: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    return {
        each.name: {"python": each.python, "reads_toml": each.reads_toml}
        for each in found
        if not unusable[each.name]
    }


def _shared(machines: Sequence[Machine]) -> dict[str, Fact]:
    """The facts that are the same in all of them, and those of the moment, as the first one has them."""
    first, *others = (machine.facts for machine in machines)
    return {
        name: fact
        for name, fact in first.items()
        if name in _OF_THE_MOMENT or all(each.get(name) == fact for each in others)
    }


def _beyond(facts: Mapping[str, Fact], shared: Mapping[str, Fact]) -> dict[str, Fact]:
    return {name: fact for name, fact in facts.items() if name not in shared}
