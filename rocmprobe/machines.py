"""Simulated machines: recorded facts and the faults of one machine, from ``data/machines/*.toml``.

A fault fires where the simulated machine would enter MIOpen (library ``miopen``) or rocBLAS (library
``rocblas``); everything it is matched against is data, so a new machine needs no code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Optional

from rocmprobe._toml import tomllib
from rocmprobe.model import BadInput, Fact, Gpu, Machine

LIBRARIES = ("miopen", "rocblas")
#: raise: RuntimeError(message); wrong: one output channel doubled; signal: the child dies by ``signal``;
#: exit: os._exit(3); hang: sleeps for ever; busy: spins for ever.
EFFECTS = ("raise", "wrong", "signal", "exit", "hang", "busy")


@dataclass(frozen=True)
class Fault:
    """One rule. Empty tuples match everything; ``problem`` is a regular expression over the problem's
    text; ``unless`` names variables and values that keep the fault away. ``chance`` below 1 makes the
    fault come and go. ``stderr`` lines are printed as the library would, at the file-descriptor level."""

    library: str
    effect: str
    settings: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    problem: str = ""
    unless: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    signal: str = "SIGSEGV"
    stderr: Mapping[str, str] = field(default_factory=dict)
    chance: float = 1.0
    source: str = ""

    def matches(
        self, setting: str, problem: str, dtype: str, direction: str, environ: Mapping[str, str]
    ) -> bool:
        return (
            (not self.settings or setting in self.settings)
            and (not self.dtypes or dtype in self.dtypes)
            and (not self.directions or direction in self.directions)
            and re.search(self.problem, problem) is not None
            and not any(environ.get(name) == value for name, value in self.unless.items())
        )


@dataclass(frozen=True)
class SimulatedMachine:
    """A machine that is not there: its facts, and what goes wrong on it. ``budgets`` (seconds by name)
    stand in for those of the level, so that a machine that hangs need not be waited for in full."""

    name: str
    summary: str
    machine: Machine
    faults: tuple[Fault, ...]
    source: str
    budgets: Mapping[str, float]


def machine_names() -> tuple[str, ...]:
    folder = resources.files("rocmprobe").joinpath("data/machines")
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml")))


def load_machine(name: str) -> SimulatedMachine:
    """The simulated machine called ``name``, or the one in the file ``name`` if it ends in ``.toml``.

    Raises BadInput for an unknown name, or a file that is missing, not TOML, or has unknown fields.
    """
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text("utf-8")
        except OSError as error:
            raise BadInput(f"--simulate: {name}: {error.strerror}; name a machine or a TOML file") from error
        title = Path(name).stem
    else:
        if name not in machine_names():
            raise BadInput(f"--simulate: no machine {name!r}; there are {', '.join(machine_names())}")
        text = resources.files("rocmprobe").joinpath(f"data/machines/{name}.toml").read_text("utf-8")
        title = name
    try:
        return _machine(title, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, TypeError, KeyError, ValueError) as error:
        raise BadInput(f"--simulate: {name}: {error}; compare with docs/results.md, machines") from error


def _machine(name: str, data: Mapping[str, Any]) -> SimulatedMachine:
    origin = f"simulated machine {name}"

    def fact(value: Any) -> Fact:
        return Fact(value, origin)

    gpus = tuple(Gpu(**{key: fact(value) for key, value in row.items()}) for row in data.get("gpus", ()))
    machine = Machine(
        gpus,
        {key: fact(value) for key, value in data.get("facts", {}).items()},
        {key: fact(value) for key, value in data.get("variables", {}).items()},
    )
    faults = tuple(_fault(row) for row in data.get("faults", ()))
    return SimulatedMachine(name, data["summary"], machine, faults, data["source"], data.get("budgets", {}))


def _fault(row: Mapping[str, Any]) -> Fault:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
    }
    fault = Fault(**fields)
    for what, value, known in (("library", fault.library, LIBRARIES), ("effect", fault.effect, EFFECTS)):
        if value not in known:
            raise ValueError(f"{what} {value!r} is not one of {', '.join(known)}")
    re.compile(fault.problem)
    return fault


def torch_version(machine: Machine) -> Optional[tuple[int, int]]:
    """(major, minor) of the machine's torch, which decides what enters MIOpen."""
    match = re.match(r"(\d+)\.(\d+)", str(machine.value("torch.version") or ""))
    return (int(match[1]), int(match[2])) if match else None
