"""The ladder: rungs from a copy to the training of a network, and the search for the cures of failing rungs.

The search climbs the ladder under the user's own environment, then under a clean one. If a rung fails, the
search tries its cures on the failing case, the smallest change first, and keeps the first that works for all
rungs above. The kept cures are the *stack*: a setting composed of several settings (``no-sdma+no-gemm``).

The search is a function of the outcomes of a run, so a resumed run continues it. It is written as if it could
wait for an outcome: a missing outcome ends the function with ``_Missing``, and the function starts again from
the beginning when the outcome is there.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Optional

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.plan import Request, cases_under
from rocmprobe.engine.setup import Setup
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.settings import AS_FOUND, DEFAULT, Versions, reason_without_effect
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import NO_SOLVER, BadInput, Outcome, Setting
from rocmprobe.model.size_search import next_size
from rocmprobe.model.states import RUN_DIED

_HALF = ("float16", "bfloat16")
#: Families of MIOpen's solvers: the setting that allows only this family, and the setting that forbids it.
FAMILIES = (
    ("gemm-only", "no-gemm"),
    ("igemm-only", "no-igemm"),
    ("winograd-only", "no-winograd"),
    ("direct-only", "no-direct"),
)
AT_SIZE = "convolution-at-size"
#: Settings without MIOpen's convolution, which the first answer compares to the stack.
ALTERNATIVES = ("vendor-off", "bypass")
#: Number of repetitions of a case that fails now and then. 100 tries miss a failure that happens in one of 20
#: with a probability of 0.6 %.
REPEATS = 100


@dataclass(frozen=True)
class Rung:
    """A step of the ladder.

    - ``carries``: True if no rung above can work if this one fails
    - ``tries``: number of repetitions of each case on a GPU, where a fault can happen now and then. 20 tries
      of three cases find a failure that happens in one of 20 with a probability of 95 %
    - ``also``: other rungs whose cures are tried, because the checks of this rung use them, too
    - ``repeats``: number of repetitions of a failed case under a cure. 10 tries miss a failure that happens
      in one of 3 with a probability of 2 %
    """

    name: str
    requests: tuple[Request, ...]
    carries: bool = True
    repeats: int = 10
    tries: int = 1
    also: tuple[str, ...] = ()


RUNGS = (
    Rung("copy", (Request("copy", dtypes=("float32", *_HALF)),), repeats=3),
    Rung(
        "kernel",
        (
            Request("elementwise", dtypes=("float32", *_HALF)),
            Request("im2col"),
            Request("repeated"),
        ),
        also=("copy",),
    ),
    Rung("gemm", (Request("gemm", dtypes=("float32", *_HALF)), Request("matmul", dtypes=_HALF)), tries=20),
    Rung(
        "reduction",
        (Request("reductions", dtypes=("float32", "float16")),),
        tries=20,
        also=("copy", "kernel"),
    ),
    Rung(
        "conv",
        (
            Request("convolution", problems="native", directions=True),
            Request(AT_SIZE, problems="sizes", directions=True),
        ),
    ),
    Rung("batch-norm", (Request("batch-norm", dtypes=("float32", "float16")),), carries=False, tries=20),
    Rung(
        "layers",
        (
            *(Request(name, dtypes=("float32", "float16")) for name in ("rnn", "lstm", "gru")),
            Request("ctc-loss"),
            Request("convolution-relu", dtypes=("float32", "float16")),
            Request("convolution-add-relu", dtypes=("float32", "float16")),
        ),
        carries=False,
        tries=20,
    ),
    Rung("attention", (Request("attention", dtypes=("float32", *_HALF)),), carries=False, tries=20),
    Rung(
        "train", (Request("training-step"), Request("autocast-step", dtypes=_HALF[:1])), repeats=3, tries=20
    ),
    Rung("data-loader", (Request("data-loader"),), carries=False, repeats=1),
)
_RUNG = {rung.name: rung for rung in RUNGS}
_BELOW_CONVOLUTION = RUNGS[: RUNGS.index(_RUNG["conv"])]
_FROM_CONVOLUTION = RUNGS[RUNGS.index(_RUNG["conv"]) :]


def default_cases(setup: Setup, target: Device) -> Iterator[Case]:
    """Yield the cases of all rungs under the setting ``default``."""
    setting = setup.named(target.device, DEFAULT)
    for rung in RUNGS:
        for request in rung.requests:
            yield from cases_under(request, target, setting, setup.options)


class _Missing(Exception):
    """Raised when the search needs the outcome of ``case``."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.id)
        self.case = case


class _Unusable(Exception):
    """Raised when torch cannot be imported, so that no rung can be tested."""


#: A stack: names of settings.
Stack = tuple[str, ...]


@dataclass(frozen=True)
class Climbed:
    """The result of the search: the stack for each dtype.

    ``base`` is the part of the float32 stack that rungs below convolution need.
    """

    stacks: Mapping[str, Stack]
    base: Stack

    def settings(self, setup: Setup, target: Device) -> Sequence[tuple[Setting, Sequence[str]]]:
        """Return each stack with its dtypes, and the alternatives if the base has cures."""
        found: dict[str, list[str]] = {}
        for dtype, stack in self.stacks.items():
            found.setdefault(name_of(stack), []).append(dtype)
        if self.base not in ((DEFAULT,), (AS_FOUND,)):
            for name in ALTERNATIVES:
                found.setdefault(name_of((*self.base, name)), ["float32"])
        return [(setup.named(target.device, name), dtypes) for name, dtypes in found.items()]


class Ladder:
    """The search on one device.

    ``find`` returns the outcome of a case id, or None. ``planned`` has the ids of the run's cases: the ladder
    climbs only cases that the run has under the setting ``default``.
    """

    def __init__(
        self,
        setup: Setup,
        target: Device,
        find: Callable[[str], Optional[Outcome]],
        planned: Container[str],
    ) -> None:
        self._setup = setup
        self.target = target
        self._find = find
        self._planned = planned
        self._rows = {row.name: row for row in setup.settings[target.device]}
        self._cures = setup.options.settings in ("default", "all")
        self._failed: list[Case] = []
        #: The cases of a rung by dtype and stack. The search needs them again after each outcome.
        self._made: dict[tuple[str, str, Stack], tuple[Case, ...]] = {}
        #: The first case that failed at size, and the stack.
        self._too_large: Optional[tuple[Case, Stack]] = None
        #: True if there are enough outcomes to recommend a configuration, if not yet the best one.
        self.answerable = False
        #: The result, or None while the search needs more outcomes.
        self.climbed: Optional[Climbed] = None

    def next(self) -> Optional[Case]:
        """Return the next case to run, or None if the search is over."""
        if self.climbed is None:
            try:
                self.climbed = self._search()
            except _Missing as missing:
                return missing.case
            except _Unusable:
                self.climbed = Climbed({"float32": (DEFAULT,)}, (DEFAULT,))
        return None

    @cached_property
    def _versions(self) -> Versions:
        machine = self._setup.machine
        rocm = machine.value("torch.hip") or machine.value("rocm.version")
        library = self.target.backend == "miopen"
        return Versions(
            "MIOpen" if library else self.target.backend,
            machine.value("miopen.version") if library else None,
            machine.value("torch.version"),
            rocm,
        )

    def _search(self) -> Climbed:
        self._failed, self._too_large = [], None
        self._test_named_settings()
        stack = self._own_environment() or (DEFAULT,)
        if stack == (DEFAULT,):
            stack, whole = self._climbed(_BELOW_CONVOLUTION, "float32", stack)
            if whole:
                stack = self._also_for_half(stack)
                stack, whole = self._climbed(_FROM_CONVOLUTION, "float32", stack)
            if whole:
                stack = self._minimal(stack)
        stacks = {"float32": stack}
        for dtype in _HALF:
            stacks[dtype], _ = self._climbed(RUNGS, dtype, stack)
        # Test each stack as a whole, because a rung was climbed before the cures of the rungs above it.
        for dtype, whole_stack in stacks.items():
            for rung in _FROM_CONVOLUTION if whole_stack != (DEFAULT,) else ():
                self._first_failure(rung, dtype, whole_stack)
        self._alternatives(stack)
        self._bisect_size()
        return Climbed(stacks, self._base(stack))

    def _also_for_half(self, stack: Stack) -> Stack:
        """Return ``stack`` with cures of copies, kernels and products in half precision.

        A program with autocast computes in both precisions in one process, so the whole ladder is climbed
        with these cures. A cure under which float32 fails is left to the stack of its dtype.
        """
        for dtype in _HALF:
            cured, whole = self._climbed(_BELOW_CONVOLUTION, dtype, stack)
            if whole and not any(self._first_failure(rung, "float32", cured) for rung in _BELOW_CONVOLUTION):
                stack = cured
        return stack

    def _test_named_settings(self) -> None:
        """Test the rungs below convolution under the settings that the user named, if they change these."""
        for row in () if self._cures else self._rows.values():
            if row.changes_lower_layers:
                for rung in _BELOW_CONVOLUTION:
                    for dtype in ("float32", *_HALF):
                        self._first_failure(rung, dtype, (row.name,))

    def _bisect_size(self) -> None:
        """Find the size of the image from which the first convolution that failed at size fails."""
        if self._too_large is None:
            return
        case, stack = self._too_large
        outcomes = [self._outcome(case, stack)]
        failing = parse_problem(str(case.problem))
        while problem := next_size(failing, None, outcomes):
            outcomes.append(self._outcome(replace(case, problem=problem.text), stack))

    def _base(self, stack: Stack) -> Stack:
        """Return the members of ``stack`` that cure rungs below convolution."""
        below = {rung.name for rung in _BELOW_CONVOLUTION}
        return tuple(name for name in stack if below.intersection(self._rows[name].cures)) or (DEFAULT,)

    def _alternatives(self, stack: Stack) -> None:
        """Test convolution and training without MIOpen's convolution."""
        base = self._base(stack)
        for name in ALTERNATIVES:
            if name in self._rows and name not in base and self._can_join(base, name):
                for rung in (_RUNG["conv"], _RUNG["train"]):
                    self._first_failure(
                        rung, "float32", self._joined(base, name), self._too_large is not None
                    )
        self.answerable = True

    def _own_environment(self) -> Optional[Stack]:
        """Return the stack "as-found" if every rung works in the user's own environment.

        Return None if a rung fails, or if a clean environment is the same.
        """
        # The catalogue's variables are about GPUs.
        on_gpu = self.target.backend == "miopen"
        if (
            not on_gpu
            or AS_FOUND not in self._rows
            or not self._setup.changes_environment(self.target.device)
        ):
            return None
        if any(self._first_failure(rung, "float32", (AS_FOUND,)) for rung in RUNGS):
            return None
        return (AS_FOUND,)

    def _climbed(self, rungs: tuple[Rung, ...], dtype: str, stack: Stack) -> tuple[Stack, bool]:
        """Return the stack after ``rungs``, and False if a rung that carries the others stays broken."""
        for rung in rungs:
            cured = self._working(rung, dtype, stack)
            if cured is None and rung.carries:
                return stack, False
            stack = cured or stack
        return stack, True

    def _working(self, rung: Rung, dtype: str, stack: Stack) -> Optional[Stack]:
        """Return ``stack`` if the rung works under it, the stack with the first cure that works, or None."""
        failing = self._first_failure(rung, dtype, stack)
        if failing is None:
            return stack
        state = self._outcome(failing, stack).state
        if state == "flaky":
            lower = self._cured_below(rung, dtype, stack)
            if lower is not None:
                return self._working(rung, dtype, lower)
        if state == "hang" and rung in _FROM_CONVOLUTION:
            # Each trial of a cure can hang, too, so first find out what works in seconds.
            self._alternatives(stack)
        failing = replace(failing, repeats=REPEATS if state == "flaky" else max(rung.repeats, rung.tries))
        cured = self._cured(rung, dtype, stack, failing)
        if cured is not None:
            self._failed.append(failing)
        return cured

    def _cured_below(self, rung: Rung, dtype: str, stack: Stack) -> Optional[Stack]:
        """Repeat the rungs below ``rung``, because a failure now and then belongs to the lowest layer.

        Return the stack with a cure of the first rung that fails, or None.
        """
        for below in RUNGS[: min(RUNGS.index(rung), len(_BELOW_CONVOLUTION))]:
            for lower_dtype in dict.fromkeys(("float32", dtype)):
                for case in self._cases(below, lower_dtype, stack):
                    often = replace(case, repeats=3 if case.check in ("copy", "repeated") else REPEATS)
                    if self._outcome(often, stack).fails:
                        return self._cured(below, lower_dtype, stack, often)
        return None

    def _cured(self, rung: Rung, dtype: str, stack: Stack, failing: Case) -> Optional[Stack]:
        """Return the first stack that cures the rung, or None. If the user named settings, try no cure."""
        for candidate in self._candidates(rung, dtype, stack, failing) if self._cures else ():
            if self._selects(failing, candidate) and self._holds(rung, dtype, candidate, failing):
                return candidate
        return None

    def _holds(self, rung: Rung, dtype: str, stack: Stack, failing: Case) -> bool:
        """Return True if the failing case works under ``stack``, and the other cases of the rung do too."""
        if not self._outcome(failing, stack).works:
            return False
        return self._first_failure(rung, dtype, stack) is None

    def _first_failure(self, rung: Rung, dtype: str, stack: Stack, at_size: bool = True) -> Optional[Case]:
        """Return the first case of the rung that fails under ``stack``, or None.

        Leave out convolutions at the sizes of real images unless ``at_size`` is True.
        """
        for case in self._cases(rung, dtype, stack):
            if case.check == AT_SIZE and not at_size:
                continue
            outcome = self._outcome(case, stack)
            if outcome.fails and case.check == AT_SIZE and self._too_large is None:
                self._too_large = case, stack
            if outcome.fails or outcome.failure == NO_SOLVER:
                return case
        return None

    def _candidates(self, rung: Rung, dtype: str, stack: Stack, failing: Case) -> Iterator[Stack]:
        """Yield stacks that can cure the rung, the smallest change first."""
        switches = {name for pair in FAMILIES for name in pair}
        rows = [
            row
            for row in self._rows.values()
            if {rung.name, *rung.also} & set(row.cures) and self._applies(row)
        ]
        if rung.name == "conv":
            yield from self._without_families(rung, dtype, stack, failing)
            # The cures below replace what was switched off in the library.
            stack = tuple(name for name in stack if name not in switches) or (DEFAULT,)
            rows = [row for row in rows if row.name not in switches]
        for row in rows:
            if row.name not in stack and self._can_join(stack, row.name):
                yield self._joined(stack, row.name)

    def _without_families(self, rung: Rung, dtype: str, stack: Stack, failing: Case) -> Iterator[Stack]:
        """Yield stacks without the families of solvers that fail alone.

        A family alone ends in one trial, and only a guilty one can hang, so this needs fewer hangs than
        switching off one family after the other.
        """
        below = tuple(name for name in stack if name not in {off for _, off in FAMILIES}) or (DEFAULT,)
        pairs = [
            (only, off)
            for only, off in FAMILIES
            if {only, off} <= self._rows.keys()
            and self._can_join(below, only)
            and self._selects(failing, self._joined(below, only))
        ]
        guilty: dict[str, None] = {}
        case: Optional[Case] = failing
        while case is not None:
            outcomes = {off: self._outcome(case, self._joined(below, only)) for only, off in pairs}
            if not any(outcome.works for outcome in outcomes.values()):
                return
            known = len(guilty)
            guilty.update({off: None for off, outcome in outcomes.items() if outcome.fails})
            if len(guilty) == known:
                break
            candidate = self._joined(below, *guilty)
            yield candidate
            # The candidate fails, perhaps only with larger images. Then other families are guilty, too.
            worse = self._first_failure(rung, dtype, candidate)
            case = replace(worse, repeats=failing.repeats) if worse else None
        # A family without a solver for the case alone can be the one that fails among others.
        idle = [off for off, outcome in outcomes.items() if not outcome.works and off not in guilty]
        for off in idle:
            yield self._joined(below, *guilty, off)
        if len(idle) > 1:
            yield self._joined(below, *guilty, *idle)

    def _minimal(self, stack: Stack) -> Stack:
        """Leave out each member without which every case that failed still works, the last one first."""
        for name in reversed(stack):
            fewer = tuple(member for member in stack if member != name)
            outcomes = (self._outcome(case, fewer) for case in self._failed) if fewer else ()
            if fewer and all(outcome.works for outcome in outcomes):
                stack = fewer
        return stack

    def _applies(self, row: Setting) -> bool:
        return (
            (bool(row.env) or not row.unset or self._setup.owns(row.unset))
            and self._setup.reason_not_here(row, self.target) is None
            and reason_without_effect(row, self._versions) is None
            and row.device != "cpu"
        )

    def _joined(self, stack: Stack, *names: str) -> Stack:
        """Return the stack with further members, in the order of the settings: equal sets are equal."""
        members = {*stack, *names} - {DEFAULT}
        return tuple(name for name in self._rows if name in members) or (DEFAULT,)

    def _can_join(self, stack: Stack, name: str) -> bool:
        try:
            self._setup.named(self.target.device, name_of(self._joined(stack, name)))
        except BadInput:
            return False
        return True

    def _cases(self, rung: Rung, dtype: str, stack: Stack) -> Sequence[Case]:
        """Return the cases of the rung in ``dtype`` that the user selected."""
        key = rung.name, dtype, stack
        if key not in self._made:
            self._made[key] = tuple(self._made_cases(rung, dtype, stack))
        return self._made[key]

    def _made_cases(self, rung: Rung, dtype: str, stack: Stack) -> Iterator[Case]:
        options, setting = self._setup.options, self._setup.named(self.target.device, name_of(stack))
        for request in rung.requests:
            if options.purpose == "inference" and rung.name in ("train", "data-loader"):
                continue
            for case in cases_under(request, self.target, setting, options):
                tries = rung.tries if self.target.backend == "miopen" else 1
                plain = replace(case, setting=DEFAULT, needs=(), if_failed=())
                if case.dtype == dtype and plain.id in self._planned and self._selects(plain, stack):
                    yield replace(plain, repeats=tries)

    def _selects(self, case: Case, stack: Stack) -> bool:
        """Return True if the user's options select ``case`` under ``stack``, however often it is repeated."""
        once = replace(case, setting=name_of(stack), repeats=1)
        return self._setup.options.selects(once.check, once.id)

    def _outcome(self, case: Case, stack: Stack) -> Outcome:
        """Return the outcome of ``case`` under ``stack``. Raise _Missing if there is none yet."""
        under_stack = replace(case, setting=name_of(stack))
        outcome = self._find(under_stack.id)
        # The search for cures needs the outcome of a case during which the run was killed.
        ended = outcome is not None and outcome.failure == RUN_DIED and self._cures
        if outcome is None or ended:
            raise _Missing(under_stack)
        if outcome.failure == "torch-unusable":
            raise _Unusable
        return outcome


def name_of(stack: Stack) -> str:
    """Return the name of the setting that is composed of the members of ``stack``."""
    return "+".join(stack)
