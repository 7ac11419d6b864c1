"""MIOpen's convolution solvers from ``data/solvers.toml``, and the variables that switch solvers off."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Optional

from rocmprobe.model.results import Outcome, Setting
from rocmprobe.model.results_file import from_json
from rocmprobe.text.tables import table
from rocmprobe.text.versions import within

FORCE = "MIOPEN_DEBUG_FIND_ONLY_SOLVER"
DERIVED = "no-faulty-solvers"
_FORCED = "only-"
#: Find mode NORMAL, which runs every solver that applies. The default mode skips solvers that are not
#: dynamic.
_FIND_NORMAL = {"MIOPEN_FIND_MODE": "1"}
#: Algorithm families in the order in which Find tries their solvers (src/conv/solver_finders.cpp). Naive
#: kernels come last.
_ORDER = ("Winograd", "Direct", "ImplicitGEMM", "GEMM", "FFT", "naive")
#: Direction of the plain convolution that computes a direction of a transposed convolution.
TRANSPOSED = {"fwd": "bwd-data", "bwd-data": "fwd", "bwd-weights": "bwd-weights"}
Question = tuple[str, str]
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Solver:
    """A convolution solver of MIOpen. The head of data/solvers.toml explains the fields."""

    name: str
    id: int
    family: str
    directions: tuple[str, ...]
    off: tuple[str, ...]
    source: str
    dtypes: tuple[str, ...] = tuple(_DTYPES.values())
    problem: str = ""
    not_on: Mapping[str, str] = field(default_factory=dict)
    since: str = ""
    until: str = ""

    def may_run(self, problem: str, direction: str, isa: Optional[str]) -> bool:
        """Return True if the table allows this solver for the problem, the direction and the ISA."""
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
    """Return every solver in data/solvers.toml."""
    return tuple(from_json(Solver, row) for row in _members())


def _members() -> Iterator[Mapping[str, object]]:
    for family in table("solvers")["family"]:
        common = {key: value for key, value in family.items() if key != "members"}
        for member in family["members"]:
            own = [member["off"]] if "off" in member else []
            yield {**common, **member, "off": [*own, *common["off"]]}


def left_out(name: str) -> bool:
    """Return True if data/solvers.toml omits the solver ``name`` on purpose."""
    return any(re.search(row["name"], name) for row in table("solvers")["left_out"])


@lru_cache(maxsize=1)
def by_name() -> Mapping[str, Solver]:
    return {solver.name: solver for solver in solvers()}


@lru_cache(maxsize=1)
def names_by_id() -> Mapping[int, str]:
    """Return the name of each solver, keyed by id. Leave out ids that MIOpen gave to two solvers."""
    count = Counter(solver.id for solver in solvers())
    return {solver.id: solver.name for solver in solvers() if count[solver.id] == 1}


def forced_setting(solver: Solver) -> Setting:
    """Return the setting that restricts MIOpen's Find to ``solver``."""
    return Setting(
        name=f"{_FORCED}{solver.name}", reason=f"{solver.name} alone: does it give correct results?",
        verdict="native-with-settings", env={FORCE: solver.name, **_FIND_NORMAL}, since=solver.since,
        until=solver.until, source="MIOpen src/find_controls.cpp", solver=solver.name,
    )  # fmt: skip


def in_play(
    problem: str, direction: str, isa: Optional[str], version: str, environ: Mapping[str, str]
) -> tuple[Solver, ...]:
    """Return the solvers that MIOpen's Find tries for a problem and a direction, in the order of the
    attempts.

    Leave out solvers that the environment variables ``environ`` exclude.
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
    """Return the smallest set of variables that switches off all ``faulty`` solvers, or None if impossible.

    ``sound`` has the correct solvers, keyed by problem and direction. For each key, at least one correct
    solver stays on.
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
            # Prefer the set that switches off the fewest correct solvers.
            best = min(fits, key=lambda each: (len(lost(each)), sorted(rank[name] for name in each)))
            return tuple(sorted(best, key=rank.__getitem__))
    return None


def _narrow_first(names: Iterable[str]) -> list[str]:
    wanted = {variable for name in names for variable in by_name()[name].off}
    reach = {variable: sum(variable in solver.off for solver in solvers()) for variable in wanted}
    return sorted(wanted, key=lambda variable: (reach[variable], variable))


def _covers(names: Collection[str], size: int) -> set[frozenset[str]]:
    """Return sets of at most ``size`` variables that switch off every solver of ``names``."""
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
    """Correct and faulty solvers from a sweep that ran each solver alone."""

    sound: Mapping[Question, frozenset[str]]
    faulty: frozenset[str]


def sweep_result(outcomes: Iterable[Outcome]) -> Swept:
    """Return the correct and the faulty solvers of a sweep. Ignore solvers without a result."""
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
    """Return the solver that ``outcome`` tested alone, or None if ``outcome`` is from another check."""
    if outcome.check != "solver":
        return None
    name = outcome.setting[len(_FORCED) :]
    return name if name in by_name() else None


@dataclass(frozen=True)
class DerivedSetting:
    """Variables for a setting that were computed from earlier outcomes.

    - ``env``: the variables, or None if no variables were found
    - ``state``: state of the setting's cases if ``env`` is None, e.g. "skipped"
    """

    env: Optional[Mapping[str, str]]
    state: str
    reason: str

    def applied(self, setting: Setting) -> Setting:
        """Return ``setting`` with the computed variables and values."""
        if self.env is None:
            return setting
        return replace(setting, env=self.env, reason=self.reason)


def derive_setting(outcomes: Iterable[Outcome]) -> DerivedSetting:
    """Return the fewest variables that switch off the faulty solvers in the outcomes of a solver sweep."""
    asked = tuple(outcomes)
    found = sweep_result(asked)
    if not asked:
        return DerivedSetting(None, "skipped", "no solver was tested: there is nothing to switch off")
    if not found.faulty:
        if all(outcome.state == "skipped" for outcome in asked):
            return DerivedSetting(
                None, "skipped", "the default is correct: no solver needs to be switched off"
            )
        what = "no solver fails alone" if found.sound else "no solver could be tested alone"
        return DerivedSetting(None, "skipped", f"{what}: there is nothing to switch off")
    names = ", ".join(sorted(found.faulty))
    variables = smallest_switches(found.faulty, found.sound)
    if variables is None:
        return DerivedSetting(
            None, "n/a", f"no set of switches disables {names} and leaves a solver that is always correct"
        )
    return DerivedSetting(
        dict.fromkeys(variables, "0"), "", f"switches off the solvers found faulty here: {names}"
    )


@lru_cache(maxsize=1)
def _switches() -> frozenset[str]:
    return frozenset(variable for solver in solvers() for variable in solver.off)


def is_switch(name: str, value: str) -> bool:
    """Return True if the environment variable ``name=value`` switches off a solver."""
    return value == "0" and name in _switches()


def are_switches(env: Mapping[str, str]) -> bool:
    """Return True if every variable in ``env`` switches off a solver."""
    return all(is_switch(name, value) for name, value in env.items())
