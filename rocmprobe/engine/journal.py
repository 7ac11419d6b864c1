"""The journal: one JSON line per event of a run, appended with a single write and fsynced.

It is the truth of a run: results, gates and resumption are read from it, by every xdist worker. A
torn last line (the machine died while writing) is passed over. The records are in ``docs/results.md``.
"""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union

from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.records import (
    Derived,
    Intent,
    Resumed,
    Retry,
    Settled,
    Wedged,
    from_record,
    is_whole,
    to_record,
)  # fmt: skip
from rocmprobe.knowledge.solvers import Cure
from rocmprobe.model.results import BadInput, Outcome
from rocmprobe.text import reading
from rocmprobe.text.redact import redacted

NAME = "journal.jsonl"


class CannotWrite(OSError):
    """The journal takes no further record: nothing that happens from now on would be kept."""


class Appended:
    """The records of the journal at ``path``, as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[dict[str, Any]]:
        """Every whole record that was appended since the last call; none where there is no journal."""
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
    """The state of a run according to its records so far."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Outcome] = {}
        self._intents: set[str] = set()
        self._wedged: set[str] = set()
        self._derived: dict[tuple[str, str, str], Cure] = {}

    @abstractmethod
    def append(self, record: str, **content: Any) -> None:
        """Add one record."""

    @abstractmethod
    def _refresh(self) -> None:
        """Read the records that other processes have added."""

    def outcome(self, outcome: Outcome) -> None:
        self.append("outcome", at=time.time(), outcome=outcome)

    def intent(self, case: Case) -> None:
        self.append("intent", at=time.time(), case=case.id, question=case)

    def find(self, case_id: str) -> Outcome | None:
        """The outcome of a case, if any process has settled it."""
        self._refresh()
        return self._outcomes.get(case_id)

    def in_flight(self, case_id: str) -> bool:
        """Whether a case was begun and never settled."""
        self._refresh()
        return case_id in self._intents and case_id not in self._outcomes

    def count(self, state: str, case: Case, of: Literal["setting", "check"] = "setting") -> int:
        """How many cases of the same target, driver and setting, or check, ended in ``state``."""
        self._refresh()

        def kind(each: Union[Case, Outcome]) -> tuple[str, str, str]:
            return each.device, each.driver, getattr(each, of)

        wanted = kind(case)
        return sum(outcome.state == state and kind(outcome) == wanted for outcome in self._outcomes.values())

    def derive(self, case: Case, cure: Cure) -> None:
        """Write down what the derived setting of a case is."""
        self.append("setting", device=case.device, driver=case.driver, setting=case.setting, cure=cure)

    def derived(self, case: Case) -> Cure | None:
        """What the derived setting of a case is, if any process has found it out."""
        self._refresh()
        return self._derived.get((case.device, case.driver, case.setting))

    def wedged(self, device: str) -> bool:
        """Return True if the canary gave the device up."""
        self._refresh()
        return device in self._wedged

    def _apply(self, record: Any) -> None:
        """Update the state by one record, an object of its class."""
        if isinstance(record, Intent):
            self._intents.add(record.case)
        elif isinstance(record, Settled):
            self._outcomes[record.outcome.id] = record.outcome
        elif isinstance(record, Retry):
            self._intents.discard(record.case)
            self._outcomes.pop(record.case, None)
        elif isinstance(record, Resumed):
            # The machine may have been restarted meanwhile, and what stood in the way be gone.
            self._wedged.clear()
            self._outcomes = unblocked(self._outcomes)
        elif isinstance(record, Wedged):
            self._wedged.add(record.device)
        elif isinstance(record, Derived):
            self._derived.setdefault((record.device, record.driver, record.setting), record.cure)


class Journal(BaseJournal):
    """A journal on disk. It also knows the records that other processes of the run append."""

    def __init__(self, folder: Path, redact: bool) -> None:
        super().__init__()
        self.path = folder / NAME
        self._redact = redact
        self._appended = Appended(self.path)

    def append(self, record: str, **content: Any) -> None:
        """Write one record and have it on disk before going on. Raises CannotWrite."""
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
            # A writer that was killed in mid-line must not take this record along.
            torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
            data = ("\n" * bool(torn) + line).encode()
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _refresh(self) -> None:
        for record in map(from_record, self._appended.new()):
            self._apply(record)


class NullJournal(BaseJournal):
    """A journal that writes nothing to disk. ``listener`` receives every record."""

    def __init__(self, listener: Callable[[Mapping[str, Any]], None] = lambda record: None) -> None:
        super().__init__()
        self._listener = listener

    def append(self, record: str, **content: Any) -> None:
        whole = {"record": record, **to_record(record, content)}
        self._apply(from_record(whole))
        self._listener(whole)

    def _refresh(self) -> None:
        pass


def unblocked(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    """Those that ran: what was only blocked is tried again when a run is resumed."""
    return {case: outcome for case, outcome in outcomes.items() if outcome.state != "blocked"}


def parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The records of ``lines``. A line that is torn, of unreasonable length or depth, or lacks what a record
    of its kind has, is passed over."""
    for line in lines:
        record = reading.json_line(line)
        if is_whole(record):
            yield record


def records(folder: Path) -> list[dict[str, Any]]:
    """Every whole record of the journal in ``folder``.

    Raises BadInput where there is none, or where it does not begin with the record of a run.
    """
    return list(_of_a_run(folder))


def header(folder: Path) -> Mapping[str, Any]:
    """The first record of a journal: options, machine, settings and problems of the run.

    Raises BadInput as ``records`` does.
    """
    return next(_of_a_run(folder))


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
