"""The journal of a run: a file with one JSON line per event, shared by all processes of the run.

The format is described in ``docs/results.md``.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Optional, TypeVar, Union, cast, get_args

import msgspec

from rocmprobe.checks import DIRECT
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.run_state import RunState
from rocmprobe.engine.targets import Device
from rocmprobe.knowledge.solvers import DerivedSetting
from rocmprobe.model.baseline import Baseline, identity
from rocmprobe.model.options import RunOptions
from rocmprobe.model.results import BadInput, Machine, Outcome, Setting, Trial
from rocmprobe.model.results_file import from_json
from rocmprobe.simulate.machines import SimulatedMachine
from rocmprobe.text import reading
from rocmprobe.text.redact import redacted

NAME = "journal.jsonl"
#: End of the message about an invalid record.
DAMAGED = "the file is damaged; start `rocmprobe run` again"


class Record(msgspec.Struct, frozen=True, tag_field="record"):
    """A line of the journal."""

    def update(self, state: RunState) -> None:
        """Update the state of the run."""


class Run(Record, frozen=True, tag="run"):
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

    def update(self, state: RunState) -> None:
        state.boot = self.boot
        state.identity = identity(self.machine, self.rocmprobe)


class Against(Record, frozen=True, tag="baseline"):
    """The earlier run to which this run is compared."""

    baseline: Baseline

    def update(self, state: RunState) -> None:
        state.baseline = self.baseline


class Plan(Record, frozen=True, tag="plan"):
    """The ids of cases of the run. A later plan adds cases."""

    cases: tuple[str, ...]

    def update(self, state: RunState) -> None:
        state.planned.update(self.cases)
        state.current.update(self.cases)


class Intent(Record, frozen=True, tag="intent"):
    """A case that is about to run."""

    at: float
    case: str
    question: Case

    def update(self, state: RunState) -> None:
        state.start(self.question, self.at)
        state.finished = None


class Waiting(Record, frozen=True, tag="waiting"):
    """A case that waits for its child process, or for a device that another run uses (phase "device").

    ``left`` is the number of seconds until the timeout, or None while the case waits for a device. When the
    wait ends, ``left`` is 0. ``compiles`` is True while the child process compiles kernels.
    """

    case: str
    phase: str
    left: Optional[float]
    compiles: bool = False

    def update(self, state: RunState) -> None:
        if self.case in state.running:
            state.running[self.case].wait(self.phase, self.left, self.compiles)


class Settled(Record, frozen=True, tag="outcome"):
    """The outcome of a case."""

    at: float
    outcome: Outcome

    def update(self, state: RunState) -> None:
        state.settle(self.outcome, self.at)


class Ended(Record, frozen=True, tag="trial"):
    """A child process that ended."""

    trial: Trial

    def update(self, state: RunState) -> None:
        state.trials.append(self.trial)


class Derived(Record, frozen=True, tag="setting"):
    """The environment variables chosen for a setting, or the reason why there are none."""

    device: str
    setting: str
    cure: DerivedSetting

    def update(self, state: RunState) -> None:
        state.derived[self.device, self.setting] = self.cure


class Wedged(Record, frozen=True, tag="wedged"):
    """A device that does not respond any more."""

    device: str

    def update(self, state: RunState) -> None:
        state.wedged.add(self.device)


class Resumed(Record, frozen=True, tag="resumed"):
    """The resumption of a run, on the machine with this ``identity``."""

    at: str
    boot: str = ""
    identity: Mapping[str, str] = {}

    def update(self, state: RunState) -> None:
        # The reason why cases were blocked can be gone, e.g. because the machine was restarted.
        state.wedged.clear()
        state.running.clear()
        state.current.clear()
        state.outcomes = {case: each for case, each in state.outcomes.items() if each.state != "blocked"}
        state.boot = self.boot
        state.changed += state.changes(self.identity)
        state.identity = {**state.identity, **self.identity}


class Retry(Record, frozen=True, tag="retry"):
    """A case whose outcome is discarded before a retry."""

    case: str

    def update(self, state: RunState) -> None:
        state.questions.pop(self.case, None)
        state.outcomes.pop(self.case, None)


class Answer(Record, frozen=True, tag="answer"):
    """The first answer: the recommendation after the ladder, before the other cases."""

    sentence: str

    def update(self, state: RunState) -> None:
        state.answer = self.sentence


class End(Record, frozen=True, tag="end"):
    """The end of the run."""

    at: str

    def update(self, state: RunState) -> None:
        # A finished run that is resumed keeps its time if no case ran again.
        state.finished = state.finished or self.at


AnyRecord = Union[
    Run, Against, Plan, Intent, Waiting, Settled, Ended, Derived, Wedged, Resumed, Retry, Answer, End
]
_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(AnyRecord))
_R = TypeVar("_R", bound=Record)


def encode(record: msgspec.Struct) -> bytes:
    """Return a record as a line of JSON."""
    # The name of a file can contain half a surrogate pair, which msgspec's own encoder and readers refuse.
    text = json.dumps(msgspec.to_builtins(record), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


class CannotWrite(OSError):
    """Raised if the journal cannot be written."""


class BaseJournal(ABC):
    """A journal and the state of its run."""

    def __init__(self) -> None:
        self.state = RunState()

    @abstractmethod
    def append(self, record: _R) -> _R:
        """Add a record and update the state. Return the record as it was added, i.e. redacted."""

    def outcome(self, outcome: Outcome) -> Outcome:
        """Record an outcome. Return the recorded outcome."""
        return self.append(Settled(time.time(), outcome)).outcome

    def intent(self, case: Case) -> None:
        """Record that ``case`` is about to run."""
        self.append(Intent(time.time(), case.id, case))

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

    def derive(self, case: Case, cure: DerivedSetting) -> DerivedSetting:
        """Record the environment variables ``cure``, chosen for the setting of ``case``."""
        return self.append(Derived(case.device, case.setting, cure)).cure

    def derived(self, case: Case) -> Optional[DerivedSetting]:
        """Return what ``derive`` recorded for the setting of ``case``, or None."""
        return self.state.derived.get((case.device, case.setting))

    def completed(self, case: Case, setting: Setting) -> Setting:
        """Return ``setting``, the setting of ``case``, with the environment variables chosen for it."""
        cure = self.derived(case)
        return cure.applied(setting) if cure else setting

    def wedged(self, device: str) -> bool:
        """Return True if the device was recorded as unresponsive."""
        return device in self.state.wedged


class Journal(BaseJournal):
    """A journal on disk, to which several processes can append.

    The state has the records that were on disk when this process opened the journal, and the records of this
    process. Other processes test other devices, so their records make no difference to this process.
    """

    def __init__(self, folder: Path, redact: bool) -> None:
        super().__init__()
        self.path = folder / NAME
        self._redact = redact

    def append(self, record: _R) -> _R:
        """Write one record and wait until it is on disk. Raise CannotWrite if this fails.

        If the run redacts identifiers, both the file and the state have the redacted record.
        """
        if self._redact:
            record = redacted(record)
        try:
            self._write(encode(record))
        except OSError as error:
            raise CannotWrite(error.errno, error.strerror, str(self.path)) from error
        record.update(self.state)
        return record

    def _write(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            # Start a new line if another process was killed in the middle of a line.
            torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
            data = b"\n" * bool(torn) + line
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class RunJournal(Journal):
    """The journal of the run in ``folder``, with its first record and its state.

    Raise BadInput if there is no run.
    """

    def __init__(self, folder: Path) -> None:
        #: Numbers of the damaged lines, whose records are missing.
        self.damaged: list[int] = []
        run, *others = _records(folder, self.damaged)
        assert isinstance(run, Run)
        self.run = run
        super().__init__(folder, run.options.redact)
        for record in (run, *others):
            record.update(self.state)


class NullJournal(BaseJournal):
    """A journal in memory, which passes each record to ``listener``."""

    def __init__(self, listener: Callable[[Record], None] = lambda record: None) -> None:
        super().__init__()
        self._listener = listener

    def append(self, record: _R) -> _R:
        record.update(self.state)
        self._listener(record)
        return record


class Appended:
    """Incremental reader of the journal at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[Record]:
        """Return the records appended since the last call, without damaged ones."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(_decoded(whole.splitlines(), self._path, []))


def run_of(folder: Path) -> Run:
    """Return the first record of the journal in ``folder``. Raise BadInput if the record is invalid."""
    return cast(Run, next(_records(folder, [])))


def records(folder: Path) -> list[Record]:
    """Return the records of the journal in ``folder``, without damaged ones.

    Raise BadInput if there is no run.
    """
    return list(_records(folder, []))


def is_begun(line: bytes) -> bool:
    """Return False if ``line``, the first of a journal, is only a part of a run's record."""
    first = b'{"record": "run"'
    # After a power failure, the content can be missing or zero.
    return line.endswith(b"\n") or not first.startswith(line.rstrip(b"\0")[: len(first)])


def _records(folder: Path, damaged: list[int]) -> Iterator[Record]:
    path = folder / NAME
    try:
        with path.open("rb") as stream:
            if not is_begun(stream.readline()):
                raise BadInput(
                    f"{path}: the run was killed before its first record; start it again with --out {folder}"
                )
            stream.seek(0)
            found = _decoded(reading.lines_of(stream), path, damaged)
            first = next(found, None)
            if not isinstance(first, Run):
                raise BadInput(f"{path}: does not begin with the record of a run; name the folder of a run")
            if not first.targets or not set(first.devices) <= set(first.settings):
                raise BadInput(f"{path}: a device of the run has no settings; {DAMAGED}")
            yield first
            yield from found
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name the folder of a run") from error


def _decoded(lines: Iterable[bytes], path: Path, damaged: list[int]) -> Iterator[Record]:
    """Yield the records in ``lines``. Leave out damaged records, and add their lines to ``damaged``.

    Raise BadInput if the record of a run or of its baseline is damaged, because other records depend on them,
    or if a record is of an unknown kind, because a later version wrote it.
    """
    for number, line in enumerate(lines, 1):
        data: Any = reading.json_line(line)
        kind = data.get("record") if isinstance(data, dict) else None
        try:
            if not isinstance(data, dict):
                raise BadInput("not a record")
            yield from_json(cast("type[Record]", AnyRecord), data, "record")
        except BadInput as error:
            if kind in ("run", "baseline") or (isinstance(kind, str) and kind not in _KINDS):
                raise BadInput(f"{path}: {error}; {DAMAGED}") from error
            # A process that was killed leaves a line without its end.
            if line.rstrip().endswith(b"}"):
                damaged.append(number)
