"""The records of a journal, one class for each kind. They are described in ``docs/results.md``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.interpreters import Interpreter
from rocmprobe.engine.options import RunOptions
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.solvers import Cure
from rocmprobe.model import results
from rocmprobe.model.baseline import Baseline
from rocmprobe.model.schema import required_fields
from rocmprobe.simulate.machines import SimulatedMachine


@dataclass(frozen=True)
class Run:
    """The first record: the run as it began."""

    rocmprobe: str
    started: str
    options: RunOptions
    machine: results.Machine
    targets: tuple[Device, ...]
    settings: Mapping[str, tuple[results.Setting, ...]]
    simulation: Optional[SimulatedMachine]
    folder: str
    interpreter: Optional[Interpreter]
    boot: str = ""


@dataclass(frozen=True)
class Against:
    """The earlier run that this one is compared with."""

    baseline: Baseline


@dataclass(frozen=True)
class Plan:
    """The ids of all cases of the run."""

    cases: tuple[str, ...]


@dataclass(frozen=True)
class Intent:
    """A case that is about to run."""

    at: float
    case: str
    question: Case


@dataclass(frozen=True)
class Waiting:
    """A silent child, and the seconds until its timeout; 0 when it is heard again. In the phase ``device``
    the case waits for another run, and ``left`` is None."""

    case: str
    phase: str
    left: Optional[float]


@dataclass(frozen=True)
class Settled:
    """A case with its outcome."""

    at: float
    outcome: results.Outcome


@dataclass(frozen=True)
class Ended:
    """A child process that ended."""

    trial: results.Trial


@dataclass(frozen=True)
class Derived:
    """The result of the search for a derived setting."""

    device: str
    driver: str
    setting: str
    cure: Cure


@dataclass(frozen=True)
class Wedged:
    """A device that stopped answering."""

    device: str


@dataclass(frozen=True)
class Resumed:
    """The point from which a resumed run continues."""

    at: str
    boot: str = ""


@dataclass(frozen=True)
class Retry:
    """A case that runs again."""

    case: str


@dataclass(frozen=True)
class End:
    """The end of the run."""

    at: str


#: By the word of the field ``record``.
KINDS: Mapping[str, type[Any]] = {
    "run": Run, "baseline": Against, "plan": Plan, "intent": Intent, "waiting": Waiting,
    "outcome": Settled, "trial": Ended, "setting": Derived, "wedged": Wedged,
    "resumed": Resumed, "retry": Retry, "end": End,
}  # fmt: skip


def to_record(kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a record as plain JSON data. Raises TypeError for a field that its kind lacks."""
    plain: dict[str, Any] = results.to_json(KINDS[kind](**content))
    return plain


def from_record(record: Mapping[str, Any]) -> Any:
    """Return a record of a known kind as an object of its class, else None. Raises BadInput."""
    kind = KINDS.get(record["record"])
    return kind and results.from_json(kind, record)


def is_whole(record: Any) -> bool:
    """Return True if a line has a kind, and the fields of its kind as JSON has them. What is inside an object
    or an array is for ``from_record``."""
    if not isinstance(record, dict) or not isinstance(record.get("record"), str):
        return False
    fields = _required(record["record"])
    return all(isinstance(record.get(name, ...), types) for name, types in fields.items())


@cache
def _required(kind: str) -> Mapping[str, tuple[type, ...]]:
    if kind not in KINDS:
        return {}
    types = get_type_hints(KINDS[kind])
    return {name: _json_types(types[name]) for name in required_fields(KINDS[kind])}


def _json_types(kind: Any) -> tuple[type, ...]:
    if get_origin(kind) is Union:
        return tuple(each for inner in get_args(kind) for each in _json_types(inner))
    if is_dataclass(kind) or get_origin(kind) not in (None, tuple):
        return (dict,)
    return (list,) if get_origin(kind) is tuple else (int, float) if kind is float else (kind,)
