"""An override that the installed libraries do not need: they hold code for the silicon itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from rocmprobe.detect.stack.code_objects import serves
from rocmprobe.gpus import OVERRIDE
from rocmprobe.model import Fact, Gpu, Machine

#: Libraries with code objects of their own; what MIOpen lacks it compiles for the chip that it sees.
_NAMES = {"torch": "PyTorch", "rocblas": "rocBLAS"}


class Needless(NamedTuple):
    """What to do without the override, and the facts that say so."""

    advice: str
    sources: tuple[str, ...]


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
