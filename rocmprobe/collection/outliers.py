"""Machines whose results differ from those of equal machines, and facts that can explain this.

Machines are equal if they have the same chip and software stack. An outlier differs from the majority. A
majority has at least ``FEWEST`` machines, and at least the fraction ``SHARE`` of the machines with a result.
Machines with changing results are no outliers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rocmprobe.model.states import state_of

#: Smallest majority: a number of machines, and a fraction of all machines with a result.
FEWEST = 3
SHARE = 0.75
_MOST_FACTS = 6

Unit = tuple[int, int]


class LatestState(NamedTuple):
    """The latest state of a machine's device in a cell.

    If results are unsteady, ``states`` has all states of the device. ``asked`` identifies the set of tested
    problems.
    """

    state: str
    states: tuple[str, ...] = ()
    asked: int = 0
    cause: str = ""


@dataclass
class MachineGroup:
    """Machines with the same chip and software stack, with their states by question."""

    chip: int
    stack: int
    questions: dict[int, dict[Unit, LatestState]]
    facts: dict[Unit, int]


class Difference(NamedTuple):
    """A question for which outliers have another state than the majority."""

    question: int
    state: str
    majority: str
    machines: int
    of: int


class SeparatingFact(NamedTuple):
    """A fact whose ``value`` only the outliers have.

    ``others`` are the most common values on devices that are no outliers, as (value, number of devices).
    """

    name: str
    value: str
    others: tuple[tuple[str, int], ...]


class Outlier(NamedTuple):
    """Machines that differ from the majority in the same way."""

    machines: tuple[Unit, ...]
    cells: tuple[Difference, ...]
    facts: tuple[SeparatingFact, ...]


def outliers(place: MachineGroup, facts: Callable[[int], Mapping[str, str]]) -> Iterator[Outlier]:
    """Yield the outliers of one group."""
    differing: dict[Unit, list[Difference]] = {}
    for question, seen in place.questions.items():
        for asked in sorted({each.asked for each in seen.values()}):
            same = {unit: each for unit, each in seen.items() if each.asked == asked}
            for unit, differs in _differing(question, same):
                differing.setdefault(unit, []).append(differs)
    if not differing:
        return
    alike: dict[tuple[Difference, ...], list[Unit]] = {}
    for unit, cells in differing.items():
        alike.setdefault(tuple(cells), []).append(unit)
    ordinary = [unit for unit in place.facts if unit not in differing]
    rest = [facts(place.facts[unit]) for unit in ordinary]
    for shared, units in sorted(alike.items(), key=lambda item: (-len(item[0]), item[1])):
        own = [facts(place.facts[unit]) for unit in units if unit in place.facts]
        yield Outlier(tuple(sorted(units)), shared, tuple(_separating(own, rest))[:_MOST_FACTS])


def _differing(question: int, seen: Mapping[Unit, LatestState]) -> Iterator[tuple[Unit, Difference]]:
    steady = {
        unit: each
        for unit, each in seen.items()
        if state_of(each.state, each.cause).learned and not each.states
    }
    shaken = {state for each in seen.values() for state in each.states}
    # Devices in the same machine are not independent evidence, so count machines.
    witnesses: dict[str, set[int]] = {}
    for (machine, _), each in steady.items():
        witnesses.setdefault(each.state, set()).add(machine)
    if len(witnesses) < 2:
        return
    majority = max(witnesses, key=lambda state: (len(witnesses[state]), state))
    agreeing, everyone = len(witnesses[majority]), len({machine for machine, _ in steady})
    if agreeing < FEWEST or agreeing < SHARE * everyone:
        return
    for unit, each in steady.items():
        if each.state != majority and each.state not in shaken:
            yield unit, Difference(question, each.state, majority, agreeing, everyone)


def _separating(own: list[Mapping[str, str]], rest: list[Mapping[str, str]]) -> list[SeparatingFact]:
    """Return the facts whose value is the same in all of ``own`` and does not occur in ``rest``."""
    found = []
    for name in sorted(
        {name for facts in own for name in facts} | {name for facts in rest for name in facts}
    ):
        values = {facts.get(name, "") for facts in own}
        others = Counter(facts.get(name, "") for facts in rest)
        if len(values) != 1 or not others or values & set(others):
            continue
        (value,) = values
        # A fact with many different values explains nothing.
        if len(others) > 1 and len(others) > len(rest) / 2:
            continue
        found.append(
            (len(others), not value, name, SeparatingFact(name, value, tuple(others.most_common(3))))
        )
    return [each for *_, each in sorted(found, key=lambda item: item[:3])]
