"""MIOpen's convolution solvers from ``data/solvers.toml``: which may run a problem, what switches one off,
and the fewest switches that take all faulty ones away."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Optional

from rocmprobe.knowledge.settings import within
from rocmprobe.model.results import Outcome, Setting
from rocmprobe.model.results_file import from_json
from rocmprobe.text.tables import table

#: What names the one solver that Find may consider.
FORCE = "MIOPEN_DEBUG_FIND_ONLY_SOLVER"
#: The setting whose variables are found out on the machine itself.
DERIVED = "no-faulty-solvers"
_FORCED = "only-"
#: The default find mode passes over solvers that are not dynamic; NORMAL runs whatever applies.
_FIND_NORMAL = {"MIOPEN_FIND_MODE": "1"}
#: In the order in which Find tries them (src/conv/solver_finders.cpp); naive kernels are its last resort.
_ORDER = ("Winograd", "Direct", "ImplicitGEMM", "GEMM", "FFT", "naive")
#: A transposed convolution runs as the gradient of a plain one.
TRANSPOSED = {"fwd": "bwd-data", "bwd-data": "fwd", "bwd-weights": "bwd-weights"}
#: A problem's text and a direction.
Question = tuple[str, str]
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Solver:
    """One row of the table, which explains the fields."""

    name: str
    family: str
    directions: tuple[str, ...]
    off: tuple[str, ...]
    source: str
    id: Optional[int] = None
    dtypes: tuple[str, ...] = tuple(_DTYPES.values())
    problem: str = ""
    not_on: Mapping[str, str] = field(default_factory=dict)
    since: str = ""
    until: str = ""

    def may_run(self, problem: str, direction: str, isa: Optional[str]) -> bool:
        """Whether nothing is known against it for a problem (its text) and direction on an effective ISA."""
        kind, dtype = problem.split("-", 2)[:2]
        name = _DTYPES.get(dtype, "")
        asked = TRANSPOSED[direction] if "transpose" in kind else direction
        known = [self.not_on[key] for key in ("any", name) if key in self.not_on]
        return (
            asked in self.directions
            and name in self.dtypes
            and re.search(self.problem, problem) is not None
            and not any(re.search(pattern, (isa or "").partition(":")[0]) for pattern in known)
        )


@lru_cache(maxsize=1)
def solvers() -> tuple[Solver, ...]:
    """Every solver of the table: those that seldom fail first."""
    return tuple(from_json(Solver, row) for row in table("solvers")["solver"])


@lru_cache(maxsize=1)
def by_name() -> Mapping[str, Solver]:
    return {solver.name: solver for solver in solvers()}


@lru_cache(maxsize=1)
def names_by_id() -> Mapping[int, str]:
    return {solver.id: solver.name for solver in solvers() if solver.id is not None}


def forced_setting(solver: Solver) -> Setting:
    """The setting under which Find may consider this solver alone."""
    return Setting(
        name=f"{_FORCED}{solver.name}", reason=f"{solver.name} alone: does it give right numbers?",
        verdict="native-with-settings", env={FORCE: solver.name, **_FIND_NORMAL}, since=solver.since,
        until=solver.until, source="MIOpen src/find_controls.cpp", solver=solver.name,
    )  # fmt: skip


def in_play(
    problem: str, direction: str, isa: Optional[str], version: str, environ: Mapping[str, str]
) -> tuple[Solver, ...]:
    """The solvers that Find would try for a problem and direction, in the order in which it tries them.

    A model for simulated machines: what the table lets pass, of the MIOpen ``version`` ("" for any), without
    those that ``environ`` switches off or does not name.
    """
    only = [word for word in environ.get(FORCE, "").split(";") if word]
    found = [
        solver
        for solver in solvers()
        if solver.may_run(problem, direction, isa)
        and not (version and not within(version, solver.since, solver.until))
        and not any(environ.get(name) == "0" for name in solver.off)
        and (not only or solver.name in only or str(solver.id) in only)
    ]
    return tuple(sorted(found, key=lambda solver: _ORDER.index(solver.family)))


def smallest_switches(
    faulty: Iterable[str], sound: Mapping[Question, Collection[str]]
) -> Optional[tuple[str, ...]]:
    """The fewest variables that switch off every ``faulty`` solver and leave, for each question of ``sound``,
    one of the solvers that are right there. Among equals the ones that cost the fewest sound solvers, then
    those that are narrower. None where no set of variables does it.

    A solver that is faulty for one question counts as faulty for all.
    """
    bad = sorted(set(faulty))
    good = {question: set(names) - set(bad) for question, names in sound.items()}
    every = set().union(*good.values()) if good else set()
    rank = {name: place for place, name in enumerate(_narrow_first(bad))}

    def lost(variables: frozenset[str]) -> set[str]:
        return {name for name in every if variables & set(by_name()[name].off)}

    for size in range(len(rank) + 1):
        fits = [
            variables
            for variables in _covers(bad, size)
            if all(names - lost(variables) for names in good.values())
        ]
        if fits:
            best = min(fits, key=lambda each: (len(lost(each)), sorted(rank[name] for name in each)))
            return tuple(sorted(best, key=rank.__getitem__))
    return None


def _narrow_first(names: Iterable[str]) -> list[str]:
    """The variables of these solvers, those that switch the fewest solvers off first."""
    wanted = {variable for name in names for variable in by_name()[name].off}
    reach = {variable: sum(variable in solver.off for solver in solvers()) for variable in wanted}
    return sorted(wanted, key=lambda variable: (reach[variable], variable))


def _covers(names: Collection[str], size: int) -> set[frozenset[str]]:
    """Sets of at most ``size`` variables, without a needless one, that switch off every solver of ``names``.

    Whatever covers all must hold a variable of the first that is not covered yet."""
    found: set[frozenset[str]] = set()

    def extend(chosen: frozenset[str]) -> None:
        left = next((name for name in names if not chosen & set(by_name()[name].off)), None)
        if left is None:
            found.add(chosen)
        elif len(chosen) < size:
            for variable in by_name()[left].off:
                extend(chosen | {variable})

    extend(frozenset())
    return found


@dataclass(frozen=True)
class Swept:
    """What the solvers came to that were run alone: names by question (problem and direction)."""

    sound: Mapping[Question, frozenset[str]]
    faulty: frozenset[str]


def swept(outcomes: Iterable[Outcome]) -> Swept:
    """The sound and the faulty solvers among ``outcomes``. A solver that does not apply, or of which nothing
    was learned, is neither; a question that no solver ran is left out."""
    sound: dict[Question, set[str]] = {}
    faulty: set[str] = set()
    for outcome in outcomes:
        name = solver_of(outcome)
        if name is None or not outcome.learned:
            continue
        right = sound.setdefault((outcome.problem or "", outcome.direction or ""), set())
        if outcome.works:
            right.add(name)
        else:
            faulty.add(name)
    return Swept({question: frozenset(names) for question, names in sound.items()}, frozenset(faulty))


def solver_of(outcome: Outcome) -> Optional[str]:
    """The solver that an outcome of the sweep is about, or None for any other outcome."""
    if outcome.check != "solver":
        return None
    name = outcome.setting[len(_FORCED) :]
    return name if name in by_name() else None


@dataclass(frozen=True)
class Cure:
    """What a derived setting comes to: its variables and why; or None, and what its questions come to. The
    rest is of ``by-layer``, by the names that ``Setting`` has."""

    env: Optional[Mapping[str, str]]
    state: str
    reason: str
    torch: Mapping[str, Any] = field(default_factory=dict)
    search: str = ""
    verdict: str = ""
    pytorch_layers: tuple[str, ...] = ()

    def applied(self, setting: Setting) -> Setting:
        """``setting`` as it was found out; as it is where it came to nothing."""
        if self.env is None:
            return setting
        return replace(
            setting, env=self.env, reason=self.reason, torch={**setting.torch, **self.torch},
            search=self.search or setting.search, verdict=self.verdict or setting.verdict,
            pytorch_layers=self.pytorch_layers,
        )  # fmt: skip


def cure(outcomes: Iterable[Outcome]) -> Cure:
    """The smallest set of switches for the sweep's ``outcomes``."""
    asked = tuple(outcomes)
    found = swept(asked)
    if not asked:
        return Cure(None, "skipped", "no solver was tested: there is nothing to switch off")
    if not found.faulty:
        if all(outcome.state == "skipped" for outcome in asked):
            return Cure(None, "skipped", "default is right: no solver needs to be switched off")
        what = "no solver fails alone" if found.sound else "no solver could be judged alone"
        return Cure(None, "skipped", f"{what}: there is nothing to switch off")
    names = ", ".join(sorted(found.faulty))
    variables = smallest_switches(found.faulty, found.sound)
    if variables is None:
        return Cure(None, "n/a", f"no switches turn {names} off and leave a solver that is right everywhere")
    return Cure(dict.fromkeys(variables, "0"), "", f"switches off what was found faulty here: {names}")


@lru_cache(maxsize=1)
def _switches() -> frozenset[str]:
    """The variables that switch solvers of the table off, one by one or by family."""
    return frozenset(variable for solver in solvers() for variable in solver.off)


def is_switch(name: str, value: str) -> bool:
    """Whether the variable ``name`` switches solvers of the table off with this ``value``."""
    return value == "0" and name in _switches()


def are_switches(env: Mapping[str, str]) -> bool:
    """Whether these variables do nothing but switch solvers of the table off."""
    return all(is_switch(name, value) for name, value in env.items())
