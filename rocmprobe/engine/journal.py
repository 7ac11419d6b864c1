"""The journal of a run: a file with one JSON line per event, shared by all processes of the run.

The format is described in ``docs/results.md``.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Optional, Union, get_args, get_origin, get_type_hints

from rocmprobe.checks import DIRECT
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.solvers import DerivedSetting
from rocmprobe.model.baseline import Baseline
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import BadInput, Machine, Outcome, Setting, Trial
from rocmprobe.model.results_file import from_json, to_json
from rocmprobe.simulate.machines import SimulatedMachine
from rocmprobe.text import reading
from rocmprobe.text.redact import redacted

NAME = "journal.jsonl"


@dataclass(frozen=True)
class Run:
    """The first record of a journal."""

    rocmprobe: str
    started: str
    options: RunOptions
    machine: Machine
    targets: tuple[Device, ...]
    settings: Mapping[str, tuple[Setting, ...]]
    simulation: Optional[SimulatedMachine]
    folder: str
    boot: str = ""

    @property
    def devices(self) -> list[str]:
        return [target.device for target in self.targets]


@dataclass(frozen=True)
class Against:
    """The earlier run to which this run is compared."""

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
    """A case that waits for its child process, or for a device that another run uses (phase "device").

    ``left`` is the number of seconds until the timeout, or None while the case waits for a device. When the
    wait ends, ``left`` is 0.
    """

    case: str
    phase: str
    left: Optional[float]


@dataclass(frozen=True)
class Settled:
    """The outcome of a case."""

    at: float
    outcome: Outcome


@dataclass(frozen=True)
class Ended:
    """A child process that ended."""

    trial: Trial


@dataclass(frozen=True)
class Derived:
    """The environment variables chosen for a setting, or the reason why there are none."""

    device: str
    setting: str
    cure: DerivedSetting


@dataclass(frozen=True)
class Wedged:
    """A device that does not respond any more."""

    device: str


@dataclass(frozen=True)
class Resumed:
    """The resumption of a run."""

    at: str
    boot: str = ""


@dataclass(frozen=True)
class Retry:
    """A case whose outcome is discarded before a retry."""

    case: str


@dataclass(frozen=True)
class End:
    """The end of the run."""

    at: str


KINDS: Mapping[str, type[Any]] = {
    "run": Run, "baseline": Against, "plan": Plan, "intent": Intent, "waiting": Waiting,
    "outcome": Settled, "trial": Ended, "setting": Derived, "wedged": Wedged,
    "resumed": Resumed, "retry": Retry, "end": End,
}  # fmt: skip


def to_record(kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's content as JSON data. Raise TypeError for an unknown field."""
    plain: dict[str, Any] = to_json(KINDS[kind](**content))
    return plain


def from_record(record: Mapping[str, Any]) -> Any:
    """Return a record as an object of its class, or None if the kind is unknown.

    Raise BadInput if a field is invalid.
    """
    kind = KINDS.get(record["record"])
    return kind and from_json(kind, record)


def is_whole(record: Any) -> bool:
    """Return True if ``record`` has all required fields with the right JSON types.

    The content of objects and arrays is not checked.
    """
    if not isinstance(record, dict) or not isinstance(record.get("record"), str):
        return False
    fields = _required(record["record"])
    return all(isinstance(record.get(name, ...), types) for name, types in fields.items())


@cache
def _required(kind: str) -> Mapping[str, tuple[type, ...]]:
    if kind not in KINDS:
        return {}
    types = get_type_hints(KINDS[kind])
    required = (each.name for each in fields(KINDS[kind]) if each.default is each.default_factory is MISSING)
    return {name: _json_types(types[name]) for name in required}


def _json_types(kind: Any) -> tuple[type, ...]:
    if get_origin(kind) is Union:
        return tuple(each for inner in get_args(kind) for each in _json_types(inner))
    if is_dataclass(kind) or get_origin(kind) not in (None, tuple):
        return (dict,)
    return (list,) if get_origin(kind) is tuple else (int, float) if kind is float else (kind,)


class CannotWrite(OSError):
    """Raised if the journal cannot be written."""


@dataclass
class RunState:
    """The state of a run according to its journal.

    ``questions`` are the started cases, keyed by id. ``derived`` is keyed by device and setting.
    """

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    questions: dict[str, Case] = field(default_factory=dict)
    wedged: set[str] = field(default_factory=set)
    derived: dict[tuple[str, str], DerivedSetting] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    planned: set[str] = field(default_factory=set)
    finished: Optional[str] = None
    boot: str = ""

    def add(self, record: Mapping[str, Any]) -> None:
        """Update the state with one record. Raise BadInput if a field is invalid."""
        found = from_record(record)
        if isinstance(found, Intent):
            self.questions[found.case] = found.question
        elif isinstance(found, Settled):
            self.outcomes[found.outcome.id] = found.outcome
        elif isinstance(found, Retry):
            self.questions.pop(found.case, None)
            self.outcomes.pop(found.case, None)
        elif isinstance(found, Resumed):
            # The reason why cases were blocked can be gone, e.g. because the machine was restarted.
            self.wedged.clear()
            self.outcomes = {case: each for case, each in self.outcomes.items() if each.state != "blocked"}
            self.finished, self.boot = None, found.boot
        elif isinstance(found, Wedged):
            self.wedged.add(found.device)
        elif isinstance(found, Derived):
            # If several processes wrote a record for the same setting, the first record applies.
            self.derived.setdefault((found.device, found.setting), found.cure)
        elif isinstance(found, Ended):
            self.trials.append(found.trial)
        elif isinstance(found, Plan):
            self.planned.update(found.cases)
        elif isinstance(found, End):
            self.finished = found.at
        elif isinstance(found, Run):
            self.boot = found.boot


class Appended:
    """Incremental reader of the journal at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[dict[str, Any]]:
        """Return the records appended since the last call."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(parsed(whole.splitlines()))


class BaseJournal(ABC):
    """A journal and the state of its run."""

    def __init__(self) -> None:
        self._state = RunState()

    @abstractmethod
    def append(self, record: str, **content: Any) -> None:
        """Add a record of the kind ``record``."""

    @property
    def state(self) -> RunState:
        """The state of the run, including records of other processes."""
        return self._state

    def outcome(self, outcome: Outcome) -> None:
        """Record an outcome."""
        self.append("outcome", at=time.time(), outcome=outcome)

    def intent(self, case: Case) -> None:
        """Record that ``case`` is about to run."""
        self.append("intent", at=time.time(), case=case.id, question=case)

    def find(self, case_id: str) -> Optional[Outcome]:
        """Return the recorded outcome of a case, or None."""
        return self.state.outcomes.get(case_id)

    def count(self, state: str, case: Case, of: Literal["setting", "check"] = "setting") -> int:
        """Count the outcomes in ``state`` with the device and setting of ``case``.

        If ``of`` is "check", compare the check instead of the setting.
        """

        def kind(each: Union[Case, Outcome]) -> tuple[object, ...]:
            # Failures of the checks without torch must not block the other checks of a setting.
            return each.device, getattr(each, of), each.check in DIRECT

        wanted = kind(case)
        found = self.state.outcomes.values()
        return sum(outcome.state == state and kind(outcome) == wanted for outcome in found)

    def derive(self, case: Case, cure: DerivedSetting) -> None:
        """Record the environment variables ``cure``, chosen for the setting of ``case``."""
        self.append("setting", device=case.device, setting=case.setting, cure=cure)

    def derived(self, case: Case) -> Optional[DerivedSetting]:
        """Return what ``derive`` recorded for the setting of ``case``, or None."""
        return self.state.derived.get((case.device, case.setting))

    def wedged(self, device: str) -> bool:
        """Return True if the device was recorded as unresponsive."""
        return device in self.state.wedged


class Journal(BaseJournal):
    """A journal on disk, to which several processes can append."""

    def __init__(self, folder: Path, redact: bool) -> None:
        super().__init__()
        self.path = folder / NAME
        self._redact = redact
        self._appended = Appended(self.path)

    def append(self, record: str, **content: Any) -> None:
        """Write one record and wait until it is on disk. Raise CannotWrite if this fails."""
        plain = to_record(record, content)
        line = json.dumps({"record": record, **(redacted(plain) if self._redact else plain)}) + "\n"
        try:
            self._append(line)
        except OSError as error:
            raise CannotWrite(error.errno, error.strerror, str(self.path)) from error

    def _append(self, line: str) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            # Start a new line if another process was killed in the middle of a line.
            torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
            data = ("\n" * bool(torn) + line).encode()
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @property
    def state(self) -> RunState:
        for record in self._appended.new():
            self._state.add(record)
        return self._state


class NullJournal(BaseJournal):
    """A journal in memory, which passes each record to ``listener``."""

    def __init__(self, listener: Callable[[Mapping[str, Any]], None] = lambda record: None) -> None:
        super().__init__()
        self._listener = listener

    def append(self, record: str, **content: Any) -> None:
        whole = {"record": record, **to_record(record, content)}
        self._state.add(whole)
        self._listener(whole)


def run_of(folder: Path) -> Run:
    """Return the first record of the journal in ``folder``. Raise BadInput if the record is invalid."""
    with naming_journal(folder):
        run: Run = from_record(next(_of_a_run(folder)))
        if not run.targets or not set(run.devices) <= set(run.settings):
            raise BadInput("a device of the run has no settings")
        return run


def journal_of(folder: Path) -> Journal:
    """Return the journal of the run in ``folder``. Raise BadInput if there is no run."""
    return Journal(folder, run_of(folder).options.redact)


def records(folder: Path) -> list[dict[str, Any]]:
    """Return all complete records of the journal in ``folder``. Raise BadInput if there is no run."""
    return list(_of_a_run(folder))


@contextlib.contextmanager
def naming_journal(folder: Path) -> Iterator[None]:
    """Add the journal's path to the message of any BadInput in the ``with`` block."""
    path = str(folder / NAME)
    try:
        yield
    except BadInput as error:
        if str(error).startswith(path):
            raise
        raise BadInput(f"{path}: {error}; the file is damaged; start `rocmprobe run` again") from error


def _of_a_run(folder: Path) -> Iterator[dict[str, Any]]:
    path = folder / NAME
    begun = False
    try:
        with path.open("rb") as stream:
            for record in parsed(reading.lines_of(stream)):
                if not begun and record["record"] != "run":
                    break
                begun = True
                yield record
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name the folder of a run") from error
    if not begun:
        raise BadInput(f"{path}: does not begin with the record of a run; name the folder of a run")


def parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the valid records in ``lines``."""
    return (record for record in map(reading.json_line, lines) if is_whole(record))
