"""The content of table.json: cells, configurations, outliers, changes and machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import groupby
from typing import Any, NamedTuple

from rocmprobe import __version__
from rocmprobe.collection.identity import MachineIdentity, in_order
from rocmprobe.collection.outliers import LatestState, MachineGroup, outliers
from rocmprobe.collection.store import Read, RunRow, Store, StoredRow
from rocmprobe.model.results import GPU_IDENTITY
from rocmprobe.model.states import rank, state_of

SCHEMA_VERSION = 1
#: Largest number of changes per machine in the document. Older changes are dropped.
_CHANGES = 30
_FACTS = 12
_TELLING = (
    "torch.version", "rocm.version", "miopen.version", "kernel.release", "amdgpu.version", "gpu.vbios",
    "os.name", "rocmprobe",
)  # fmt: skip
_AT_ONCE = 1000
_UNSTEADY = 2


class CellKey(NamedTuple):
    """Key of a cell of the table: ids of chip, software stack and question in the store."""

    chip: int
    stack: int
    question: int


@dataclass
class _Sum:
    seen: dict[tuple[int, int], LatestState] = field(default_factory=dict)
    causes: Counter[str] = field(default_factory=Counter)
    solvers: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    problems: int = 0
    partial: int = 0
    first: str = ""
    last: str = ""


def document(store: Store, read: Read) -> dict[str, Any]:
    """Return the content of table.json (schema: ``data/table.schema.json``)."""
    cells: dict[CellKey, _Sum] = {}
    places: dict[tuple[int, int, int, int], tuple[int, int]] = {}
    changes: list[tuple[Any, ...]] = []
    for _, rows in groupby(store.rows(), key=lambda row: row[:3]):
        _take(rows, cells, changes, places)
        if len(changes) >= _AT_ONCE:
            store.changed(changes)
            changes.clear()
    store.changed(changes)
    order = _Order(store)
    return {
        "schema_version": SCHEMA_VERSION,
        "rocmprobe": __version__,
        "made": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "read": {
            "files": read.files, "results": read.results, "duplicates": read.duplicates,
            "simulated_left_out": read.simulated, "refused": read.refused, "partial": read.partial,
            "reasons": [{"file": name, "reason": reason} for name, reason in read.reasons],
        },
        "machines": order.machine_rows(),
        "chips": [store.chips[number]._asdict() for number in order.chips],
        "stacks": [store.stacks[number]._asdict() for number in order.stacks],
        "cells": [_cell(order, cell, cells[cell]) for cell in sorted(cells, key=order.of_cell)],
        "configurations": _configurations(order),
        "outliers": _outliers(order, cells, places),
        "changes": _changes(order),
    }  # fmt: skip


class _Past:
    """History of one device in one cell of the table.

    ``turns`` counts the changes of state, and ``since`` the runs since the last change.
    """

    __slots__ = ("first", "last", "row", "runs", "since", "states", "turns")

    def __init__(self, row: StoredRow) -> None:
        self.row = self.last = row
        self.first = row.started
        self.states: tuple[str, ...] = ()
        self.runs = self.turns = self.since = 0

    def add(self, row: StoredRow) -> None:
        self.runs += 1
        self.last = row
        if not state_of(row.state, row.cause).learned:
            if not state_of(self.row.state, self.row.cause).learned:
                self.row = row
            return
        if row.asked != self.row.asked:
            self.states, self.turns, self.since = (), 0, 0
        self.row = row
        if self.states and self.states[-1] == row.state:
            self.since += 1
            return
        self.turns += bool(self.states)
        self.since = 1
        self.states = (*(state for state in self.states if state != row.state), row.state)

    @property
    def unsteady(self) -> bool:
        return self.turns >= _UNSTEADY or "flaky" in self.states or (self.turns > 0 and self.since == 1)


def _take(
    rows: Iterator[StoredRow],
    cells: dict[CellKey, _Sum],
    changes: list[tuple[Any, ...]],
    places: dict[tuple[int, int, int, int], tuple[int, int]],
) -> None:
    """Add rows of one device and question, sorted by time, to ``cells``, ``changes`` and ``places``.

    ``places`` maps (machine, device, chip, stack) to (place, facts) of the latest run. The place of a run is
    its position in the order of time.
    """
    # Count a change of state only between runs that tested the same problems.
    befores: dict[int, StoredRow] = {}
    pasts: dict[tuple[int, int], _Past] = {}
    for row in rows:
        here = (row.chip, row.stack)
        past = pasts.get(here)
        if past is None:
            past = pasts[here] = _Past(row)
        past.add(row)
        if not state_of(row.state, row.cause).learned:
            continue
        before = befores.get(row.asked)
        if before is not None and before.state != row.state:
            changes.append(
                (row.machine, row.device, before.run, row.run, before.state, row.state, row.question,
                 before.facts, row.facts)
            )  # fmt: skip
        befores[row.asked] = row
    for (chip, stack), past in pasts.items():
        row, last = past.row, past.last
        cell = cells.setdefault(CellKey(chip, stack, row.question), _Sum())
        cell.runs += past.runs
        cell.first = min(filter(None, (cell.first, past.first)), default="")
        cell.last = max(cell.last, last.started)
        cell.seen[row.machine, row.device] = LatestState(
            row.state, past.states if past.unsteady else (), row.asked, row.cause
        )
        cell.problems = max(cell.problems, row.problems)
        cell.partial += row.partial
        if row.cause:
            cell.causes[row.cause] += 1
        if row.solver:
            cell.solvers[row.solver] += 1
        place = (row.machine, row.device, chip, stack)
        if last.place >= places.get(place, (0, 0))[0]:
            places[place] = (last.place, last.facts)


class _Order:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.chips = sorted(range(len(store.chips)), key=lambda number: store.chips[number])
        self.stacks = sorted(range(len(store.stacks)), key=lambda number: store.stacks[number])
        self.machines = sorted(range(len(store.machines)), key=lambda number: store.machines[number])
        self.chip = {number: place for place, number in enumerate(self.chips)}
        self.stack = {number: place for place, number in enumerate(self.stacks)}
        self.machine = {number: place for place, number in enumerate(self.machines)}
        self.name = dict(zip(self.machines, _machine_names([store.machines[each] for each in self.machines])))

    def of_cell(self, cell: CellKey) -> tuple[Any, ...]:
        question = in_order(self.store.questions[cell.question])
        return self.chip[cell.chip], self.stack[cell.stack], question

    def of_question(self, number: int) -> tuple[Any, ...]:
        return in_order(self.store.questions[number])

    def machine_rows(self) -> list[dict[str, Any]]:
        count: Counter[int] = Counter()
        first: dict[int, str] = {}
        last: dict[int, RunRow] = {}
        partial: Counter[int] = Counter()
        for run in self.store.all_runs():
            count[run.machine] += 1
            partial[run.machine] += run.partial
            first.setdefault(run.machine, run.started)
            last[run.machine] = run
        rows = []
        for number in self.machines:
            machine, latest = self.store.machines[number], last[number]
            rows.append(
                {
                    "name": self.name[number], "label": machine.label,
                    "gpus": [dict(zip(GPU_IDENTITY, gpu)) for gpu in latest.system.gpus],
                    "os": latest.system.os, "kernel": latest.system.kernel, "driver": latest.system.driver,
                    "simulated": machine.simulated, "runs": count[number], "partial": partial[number],
                    "first": first[number], "last": latest.started, "rocmprobe": latest.rocmprobe,
                    "sha256": latest.sha256, "file": latest.name,
                }
            )  # fmt: skip
        return rows


def _machine_names(machines: list[MachineIdentity]) -> list[str]:
    """Return a unique name for each machine: its label, e.g. "lab", or a numbered label, e.g. "lab 2"."""
    labels = Counter(machine.label for machine in machines)
    return [
        machine.label if machine.label and labels[machine.label] == 1
        else f"{machine.label or 'machine'} {number}"
        for number, machine in enumerate(machines, 1)
    ]  # fmt: skip


def _question(order: _Order, number: int) -> dict[str, str]:
    return order.store.questions[number]._asdict()


def _states(found: dict[tuple[int, int], LatestState]) -> tuple[dict[str, int], int]:
    """Return the number of machines in each state, and the total number of machines."""
    by_state: dict[str, set[int]] = {}
    for (machine, _), seen in found.items():
        by_state.setdefault(seen.state, set()).add(machine)
    counted = {state: len(by_state[state]) for state in sorted(by_state, key=rank)}
    return counted, len({machine for machine, _ in found})


def _cell(order: _Order, cell: CellKey, found: _Sum) -> dict[str, Any]:
    states, machines = _states(found.seen)
    return {
        "chip": order.chip[cell.chip], "stack": order.stack[cell.stack], **_question(order, cell.question),
        "states": states, "machines": machines, "runs": found.runs, "problems": found.problems,
        "partial": found.partial, "unsteady": sum(bool(seen.states) for seen in found.seen.values()),
        "causes": dict(found.causes.most_common(3)), "solvers": dict(found.solvers.most_common(3)),
        "first": found.first, "last": found.last,
    }  # fmt: skip


def _telling(name: str) -> tuple[int, str]:
    """Return a sort key that puts the facts in ``_TELLING`` first."""
    return (_TELLING.index(name) if name in _TELLING else len(_TELLING)), name


def _configurations(order: _Order) -> list[dict[str, Any]]:
    said: dict[tuple[Any, ...], Any] = {}
    for machine, device, chip, stack, advice in order.store.advice():
        said[chip, stack, advice.dtype, advice.purpose, machine, device] = advice
    by_answer: dict[tuple[Any, ...], set[int]] = {}
    everyone: dict[tuple[Any, ...], set[int]] = {}
    for (chip, stack, dtype, purpose, machine, _), advice in said.items():
        place = (order.chip[chip], order.stack[stack], dtype, purpose)
        by_answer.setdefault((*place, advice), set()).add(machine)
        everyone.setdefault(place, set()).add(machine)
    rows = [
        {
            "chip": chip, "stack": stack, "dtype": dtype, "purpose": purpose, "verdict": advice.verdict,
            "setting": advice.setting or None, "env": dict(advice.env), "machines": len(machines),
            "of": len(everyone[chip, stack, dtype, purpose]),
        }
        for (chip, stack, dtype, purpose, advice), machines in by_answer.items()
    ]  # fmt: skip
    return sorted(
        rows,
        key=lambda row: (
            row["chip"], row["stack"], row["dtype"], row["purpose"], -row["machines"], row["verdict"],
            row["setting"] or "", sorted(row["env"].items()),
        ),
    )  # fmt: skip


def _outliers(
    order: _Order, cells: dict[CellKey, _Sum], places: dict[tuple[int, int, int, int], tuple[int, int]]
) -> list[dict[str, Any]]:
    groups: dict[tuple[int, int], dict[int, dict[tuple[int, int], LatestState]]] = {}
    for cell in sorted(cells, key=order.of_cell):
        groups.setdefault((cell.chip, cell.stack), {})[cell.question] = cells[cell].seen
    facts_of: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    for (machine, device, chip, stack), (_, facts) in places.items():
        facts_of.setdefault((chip, stack), {})[machine, device] = facts
    # Chips with the same PCI id belong to one group, even if their names differ.
    equal: dict[tuple[Any, ...], MachineGroup] = {}
    for (chip, stack), questions in groups.items():
        silicon = order.store.chips[chip]
        same = silicon[:3] if silicon.pci_id else silicon
        place = equal.setdefault((*same, stack), MachineGroup(order.chip[chip], order.stack[stack], {}, {}))
        for question, seen in questions.items():
            place.questions.setdefault(question, {}).update(seen)
        place.facts.update(facts_of[chip, stack])
    rows = []
    for place in equal.values():
        for found in outliers(place, order.store.facts):
            rows.append(
                {
                    "chip": place.chip, "stack": place.stack,
                    "machines": sorted({order.name[machine] for machine, _ in found.machines}),
                    "cells": [
                        {
                            **_question(order, each.question), "state": each.state, "majority": each.majority,
                            "machines": each.machines, "of": each.of,
                        }
                        for each in found.cells
                    ],
                    "facts": [
                        {"name": each.name, "value": each.value, "others": dict(each.others)}
                        for each in found.facts
                    ],
                }
            )  # fmt: skip
    return rows


def _changes(order: _Order) -> list[dict[str, Any]]:
    store = order.store
    amounts = store.number_of_changes()
    rows = []
    for machine in order.machines:
        if machine not in amounts:
            continue
        for change in store.changes(machine, _CHANGES):
            old, new = change.facts_before, change.facts_after
            counted: dict[tuple[str, str], list[int]] = {}
            for was, became, question in change.states:
                counted.setdefault((was, became), []).append(question)
            rows.append(
                {
                    "machine": order.name[machine], "device": store.devices[change.device],
                    "before": change.before.started, "after": change.after.started,
                    "sha256_before": change.before.sha256, "sha256_after": change.after.sha256,
                    "states": [
                        {"before": was, "after": became, "questions": len(questions),
                         "first": _question(order, min(questions, key=order.of_question))}
                        for (was, became), questions in sorted(counted.items())
                    ],
                    "facts": [
                        {"name": name, "before": old.get(name, ""), "after": new.get(name, "")}
                        for name in sorted({**old, **new}, key=_telling) if old.get(name) != new.get(name)
                    ][:_FACTS],
                    "earlier": max(0, amounts[machine] - _CHANGES),
                }
            )  # fmt: skip
    return rows
