"""A temporary SQLite file that sorts the rows of all runs on disk, to save memory."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple, Optional

import msgspec

from rocmprobe.collection.identity import Chip, MachineIdentity, Question, SoftwareStack, System
from rocmprobe.collection.reading import Joined, Simulated, TableAdvice, TableRun, run_of
from rocmprobe.collection.sources import Refused, Source
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.redact import redacted, redacted_text

#: Size of SQLite's cache in KiB. SQLite sorts larger data on disk.
_CACHE = 8 * 1024
_COMMIT = 500
NAMED = 100
PRINTED = 10
_PARTS = 3

_TABLES = """
CREATE TABLE run (id INTEGER PRIMARY KEY, sha256 TEXT UNIQUE, name TEXT, started TEXT, rocmprobe TEXT,
                  partial INTEGER, machine INTEGER, system TEXT, place INTEGER);
CREATE TABLE subject (id INTEGER PRIMARY KEY, run INTEGER, device INTEGER, chip INTEGER, stack INTEGER,
                      facts INTEGER);
CREATE TABLE facts (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, content TEXT);
CREATE TABLE row (subject INTEGER, question INTEGER, state INTEGER, cause INTEGER, solver INTEGER,
                  problems INTEGER, asked INTEGER);
CREATE TABLE advice (subject INTEGER, advice INTEGER);
CREATE TABLE change (machine INTEGER, device INTEGER, before INTEGER, after INTEGER, was TEXT, became TEXT,
                     question INTEGER, facts_before INTEGER, facts_after INTEGER);
"""


class StoredRow(NamedTuple):
    """A row of the table, with ids of the machine, device, question, chip, stack, run and facts."""

    machine: int
    device: int
    question: int
    chip: int
    stack: int
    state: str
    cause: str
    solver: str
    problems: int
    asked: int
    run: int
    started: str
    partial: bool
    facts: int
    place: int


class RunRow(NamedTuple):
    """A run in the store."""

    id: int
    sha256: str
    name: str
    started: str
    rocmprobe: str
    partial: bool
    machine: int
    system: System


def _run(found: Sequence[Any]) -> RunRow:
    return RunRow._make((*found[:-1], _system(found[-1])))


@lru_cache(maxsize=1024)
def _system(content: str) -> System:
    return System._make(msgspec.json.decode(content))


class Changed(NamedTuple):
    """Changes on a device between two runs, and the facts of both runs.

    An item of ``states`` is (earlier state, later state, question).
    """

    device: int
    before: RunRow
    after: RunRow
    facts_before: dict[str, str]
    facts_after: dict[str, str]
    states: list[tuple[str, str, int]]


class _Names:
    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.values: list[Any] = []

    def number(self, value: Any) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found


class Store:
    """A table under construction.

    Methods raise sqlite3.OperationalError if the disk is full.
    """

    def __init__(self) -> None:
        # SQLite unlinks the file of an unnamed database at once, so no file is left behind.
        self._base = sqlite3.connect("", isolation_level=None)
        run = self._base.execute
        run("PRAGMA journal_mode = OFF")
        run("PRAGMA synchronous = OFF")
        run(f"PRAGMA cache_size = -{_CACHE}")
        run("PRAGMA temp_store = FILE")
        self._base.executescript(_TABLES)
        run("BEGIN")
        self._machines, self._chips, self._stacks = _Names(), _Names(), _Names()
        self._questions, self._devices, self._words, self._answers = _Names(), _Names(), _Names(), _Names()
        self.runs = 0

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._base.close()

    @property
    def machines(self) -> list[MachineIdentity]:
        return self._machines.values

    @property
    def chips(self) -> list[Chip]:
        return self._chips.values

    @property
    def stacks(self) -> list[SoftwareStack]:
        return self._stacks.values

    @property
    def questions(self) -> list[Question]:
        return self._questions.values

    @property
    def devices(self) -> list[str]:
        return self._devices.values

    def add(self, run: TableRun, name: str) -> bool:
        """Add the rows of a run. Return False if a file with the same content was added before."""
        known = self._base.execute("SELECT 1 FROM run WHERE sha256 = ?", (run.sha256,)).fetchone()
        if known:
            return False
        number = self.runs
        self.runs += 1
        self._base.execute(
            "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (number, run.sha256, name, run.started, run.rocmprobe, run.partial,
             self._machines.number(run.machine), json.dumps(run.system)),
        )  # fmt: skip
        word = self._words.number
        for subject in run.subjects:
            made = self._base.execute(
                "INSERT INTO subject VALUES (NULL, ?, ?, ?, ?, ?)",
                (number, self._devices.number(subject.device), self._chips.number(subject.chip),
                 self._stacks.number(subject.stack), self._facts(subject.facts)),
            ).lastrowid  # fmt: skip
            self._base.executemany(
                "INSERT INTO row VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (made, self._questions.number(each.question), word(each.state), word(each.cause),
                     word(each.solver), each.problems, word(each.asked))
                    for each in subject.rows
                ],
            )  # fmt: skip
            self._base.executemany(
                "INSERT INTO advice VALUES (?, ?)",
                [(made, self._answers.number(each)) for each in subject.advice],
            )
        if self.runs % _COMMIT == 0:
            self._base.execute("COMMIT")
            self._base.execute("BEGIN")
        return True

    def _facts(self, facts: Mapping[str, str]) -> int:
        content = json.dumps(facts, sort_keys=True)
        digest = hashlib.sha256(content.encode()).digest()
        found = self._base.execute("SELECT id FROM facts WHERE digest = ?", (digest,)).fetchone()
        if found:
            return int(found[0])
        # Redact here, because facts of a run with --no-redact are not redacted.
        clean = json.dumps(redacted(facts), sort_keys=True)
        added = self._base.execute("INSERT INTO facts VALUES (NULL, ?, ?)", (digest, clean)).lastrowid
        assert added is not None
        return added

    def in_order(self) -> None:
        """Sort all runs by time. Runs without a date come first."""
        self._base.execute("COMMIT")
        run = self._base.execute
        run("CREATE TABLE placed (place INTEGER PRIMARY KEY, id INTEGER UNIQUE)")
        run("INSERT INTO placed (id) SELECT id FROM run ORDER BY started, sha256")
        run("UPDATE run SET place = (SELECT place FROM placed WHERE placed.id = run.id)")

    def rows(self) -> Iterator[StoredRow]:
        """Yield every row, sorted by machine, device, question and time."""
        words = self._words.values
        for found in self._base.execute(
            "SELECT run.machine, subject.device, row.question, subject.chip, subject.stack, row.state, "
            "row.cause, row.solver, row.problems, row.asked, run.id, run.started, run.partial, "
            "subject.facts, run.place FROM row JOIN subject ON subject.id = row.subject "
            "JOIN run ON run.id = subject.run "
            "ORDER BY run.machine, subject.device, row.question, run.place"
        ):
            yield StoredRow._make((*found[:5], words[found[5]], words[found[6]], words[found[7]], *found[8:]))

    def changed(self, changes: Sequence[tuple[Any, ...]]) -> None:
        """Add changes of state, as rows of the SQL table ``change``."""
        self._base.executemany("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", changes)

    def changes(self, machine: int, most: int) -> Iterator[Changed]:
        """Yield the last ``most`` changes on ``machine``, the latest first."""
        for found in self._base.execute(
            "SELECT device, before, after, facts_before, facts_after FROM change "
            "JOIN run ON run.id = change.after WHERE change.machine = ? "
            "GROUP BY device, before, after ORDER BY run.place DESC, device, before LIMIT ?",
            (machine, most),
        ).fetchall():
            device, before, after, facts_before, facts_after = found
            states = self._base.execute(
                "SELECT was, became, question FROM change WHERE machine = ? AND device = ? AND before = ? "
                "AND after = ?",
                (machine, device, before, after),
            ).fetchall()
            yield Changed(
                device, self.run_named(before), self.run_named(after), self.facts(facts_before),
                self.facts(facts_after), states,
            )  # fmt: skip

    def number_of_changes(self) -> dict[int, int]:
        """Return the number of changes on each machine."""
        self._base.execute("CREATE INDEX IF NOT EXISTS of_machine ON change (machine, device, before, after)")
        return dict(
            self._base.execute(
                "SELECT machine, count(*) FROM (SELECT DISTINCT machine, device, before, after FROM change) "
                "GROUP BY machine"
            )
        )

    def every(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a mapping with the keys ``output.COLUMNS``."""
        words = self._words.values
        for found in self._base.execute(
            "SELECT run.machine, run.name, run.sha256, run.started, run.rocmprobe, run.partial, run.system, "
            "subject.device, subject.chip, subject.stack, row.question, row.state, row.cause, row.solver, "
            "row.problems FROM row JOIN subject ON subject.id = row.subject JOIN run ON run.id = subject.run "
            "ORDER BY row.rowid"
        ):
            machine, chip = self.machines[found[0]], self.chips[found[8]]
            system = _system(found[6])
            stack, question = self.stacks[found[9]], self.questions[found[10]]
            yield {
                "label": machine.label, "native_isa": chip.isa, "pci_id": chip.pci_id,
                "revision": chip.revision, "gpu": chip.name, "device": self.devices[found[7]],
                "os": system.os, "kernel": system.kernel, "driver": system.driver, "torch": stack.torch,
                "rocm": stack.rocm, "miopen": stack.miopen, "override": stack.override,
                "simulated": stack.simulated, **question._asdict(), "state": words[found[11]],
                "cause": words[found[12]], "solver": words[found[13]], "problems": found[14],
                "started": found[3], "partial": bool(found[5]), "rocmprobe": found[4], "sha256": found[2],
                "file": found[1],
            }  # fmt: skip

    def advice(self) -> Iterator[tuple[int, int, int, int, TableAdvice]]:
        """Yield (machine, device, chip, stack, recommendation), sorted by time."""
        answers = self._answers.values
        for found in self._base.execute(
            "SELECT run.machine, subject.device, subject.chip, subject.stack, advice.advice FROM advice "
            "JOIN subject ON subject.id = advice.subject JOIN run ON run.id = subject.run "
            "ORDER BY run.place"
        ):
            yield (*found[:4], answers[found[4]])

    def all_runs(self) -> Iterator[RunRow]:
        """Yield every run, sorted by time."""
        for found in self._base.execute(
            "SELECT id, sha256, name, started, rocmprobe, partial, machine, system FROM run ORDER BY place"
        ):
            yield _run(found)

    def run_named(self, number: int) -> RunRow:
        """Return the run with the id ``number``."""
        found = self._base.execute(
            "SELECT id, sha256, name, started, rocmprobe, partial, machine, system FROM run WHERE id = ?",
            (number,),
        ).fetchone()
        return _run(found)

    def facts(self, number: int) -> dict[str, str]:
        (content,) = self._base.execute("SELECT content FROM facts WHERE id = ?", (number,)).fetchone()
        found: dict[str, str] = msgspec.json.decode(content)
        return found


@dataclass
class Read:
    """Counts of files, and the reasons of the first refusals."""

    files: int = 0
    results: int = 0
    duplicates: int = 0
    simulated: int = 0
    refused: int = 0
    partial: int = 0
    reasons: tuple[tuple[str, str], ...] = ()


def gather(
    sources: Iterable[Source], store: Store, simulated: bool = False, refuse: Callable[[str], None] = print
) -> Read:
    """Add all files to ``store`` and return counts. Call ``refuse`` with messages about refused files."""
    read = Read()
    for source in sources:
        read.files += 1
        try:
            if source.refused:
                raise source.refused
            run = run_of(source.content, source.label, simulated)
        except Joined:
            # Do not count this file, because the runs that it joins have their own files.
            read.files -= 1
        except Refused as error:
            _leave_out(read, source.name, error, refuse)
        except (ValueError, RecursionError, OverflowError) as error:
            # The file contains e.g. an integer of ten thousand digits, or deeply nested lists in a fact.
            _leave_out(read, source.name, Refused(f"cannot be read ({one_line(str(error))})"), refuse)
        else:
            if store.add(run, _short_name(source.name)):
                read.results += 1
                read.partial += run.partial
            else:
                read.duplicates += 1
    store.in_order()
    more = read.refused + read.simulated - PRINTED
    if more > 0:
        refuse(f"{more} more left out")
    return read


def _short_name(name: str) -> str:
    """Return the redacted last parts of a path."""
    return redacted_text(one_line("/".join(name.split("/")[-_PARTS:]), 300))


def _leave_out(read: Read, name: str, reason: Refused, refuse: Callable[[str], None]) -> None:
    if isinstance(reason, Simulated):
        read.simulated += 1
    else:
        read.refused += 1
    if len(read.reasons) < NAMED:
        read.reasons = (*read.reasons, (_short_name(name), str(reason)))
    if read.refused + read.simulated <= PRINTED:
        refuse(f"{one_line(name, 300)}: {reason}")
