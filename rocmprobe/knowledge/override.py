"""An override that the installed libraries do not need: they hold code for the silicon itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model.results import Fact, Gpu, Machine

#: Libraries with code objects of their own; what MIOpen lacks it compiles for the chip that it sees.
_NAMES = {"torch": "PyTorch", "rocblas": "rocBLAS"}


class Needless(NamedTuple):
    """What to do without the override, and the facts that say so."""

    advice: str
    sources: tuple[str, ...]


def serves(targets: Fact, isa: str) -> bool:
    """Whether a fact like ``torch.targets`` has code for an ISA, by its own name or a family's.

    A family is written gfx10-1-generic or gfx11-generic in a code object and gfx101x in a wheel's name.
    """
    family = {f"{isa[:-2]}-{isa[-2]}-generic", f"{isa[:-2]}-generic", f"{isa[:-1]}x"}
    bases = {target.partition(":")[0] for target in targets.value or ()}
    return isa in bases or bool(family & bases)


def holding(targets: Mapping[str, Fact], isa: Optional[str]) -> tuple[str, ...]:
    """Those of torch and rocBLAS whose ``targets`` are known and serve ``isa``; none where one of them does
    not, since without it little runs."""
    known = {name: targets[name] for name in _NAMES if name in targets and targets[name].value is not None}
    return tuple(known) if isa and all(serves(fact, isa) for fact in known.values()) else ()


def needless(machine: Machine, gpu: Gpu) -> Optional[Needless]:
    """What to say where ``gpu`` poses as another chip and what is installed holds code for its own; None
    where it does not pose, or that is not known."""
    native, effective = gpu.native_isa.value, gpu.effective_isa.value
    if not native or not effective or native == effective:
        return None
    targets = {name: machine.facts.get(f"{name}.targets", Fact()) for name in _NAMES}
    names = holding(targets, native)
    if not names:
        return None
    variables = [name for name in machine.variables if name.startswith(OVERRIDE)] or [OVERRIDE]
    what = " and ".join(_NAMES[name] for name in names)
    verb = "holds" if len(names) == 1 else "hold"
    return Needless(
        f"Run `unset {' '.join(variables)}` and try again: the installed {what} {verb} code for {native} "
        "itself.",
        tuple(
            f"{name}.targets: {' '.join(targets[name].value)}, from {targets[name].source}" for name in names
        ),
    )
