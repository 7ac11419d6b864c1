"""Answers put together: by chip, by stack, by cell, with how many submissions and machines stand behind
each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Optional

from rocmprobe.collection.answers import Answer, Question, Recommended, answers_of, works
from rocmprobe.collection.checking import Bundle
from rocmprobe.model.problems import DTYPES
from rocmprobe.model.results import DIRECTIONS, RUNGS, Setting
from rocmprobe.model.states import rank

_DTYPES = tuple(DTYPES.values())
_DIRECTIONS = ("", *DIRECTIONS)


@dataclass(frozen=True)
class Backing:
    """Who stands behind something: the answers, of which some may come from one machine."""

    answers: tuple[Answer, ...]

    @property
    def submissions(self) -> int:
        return len({each.submission.sha256 for each in self.answers})

    @property
    def machines(self) -> int:
        return len({each.machine for each in self.answers})

    @property
    def first(self) -> str:
        return min(each.date for each in self.answers)

    @property
    def last(self) -> str:
        return max(each.date for each in self.answers)


@dataclass(frozen=True)
class Cell:
    """One question to a chip and stack, and by state who had it, worst first."""

    question: Question
    by_state: Mapping[str, Backing]

    @property
    def backing(self) -> Backing:
        return Backing(tuple(each for found in self.by_state.values() for each in found.answers))

    @property
    def differs(self) -> bool:
        """Whether it works for some and fails for others."""
        return {True, False} <= set(map(works, self.by_state))

    @property
    def works(self) -> Optional[bool]:
        """Whether it works for all who learned it; None where they differ, or nobody did."""
        said = {works(state) for state in self.by_state} - {None}
        return said.pop() if len(said) == 1 else None

    @property
    def state(self) -> Optional[str]:
        """The worst state of those that agree on whether it works; None where they do not."""
        if self.differs:
            return None
        return next((state for state in self.by_state if works(state) is not None), next(iter(self.by_state)))


@dataclass(frozen=True)
class Advised:
    """A recommendation, and who was given it."""

    recommended: Recommended
    backing: Backing


@dataclass(frozen=True)
class Stack:
    """A chip under one stack."""

    name: str
    backing: Backing

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """In the order of the ladder."""
        found: dict[Question, dict[str, list[Answer]]] = {}
        for answer in self.backing.answers:
            for question, state in answer.states.items():
                found.setdefault(question, {}).setdefault(state, []).append(answer)
        return tuple(
            Cell(question, {state: Backing(tuple(states[state])) for state in sorted(states, key=_rank)})
            for question, states in sorted(found.items(), key=lambda each: self._place(each[0]))
        )

    def _place(self, question: Question) -> tuple[Any, ...]:
        return (
            self._rungs.get(question.check, len(RUNGS)), question.check, _at(_DTYPES, question.dtype),
            question.dtype, _at(_DIRECTIONS, question.direction), question.driver != "torch",
            _at(self._order, question.setting), question.setting,
        )  # fmt: skip

    @cached_property
    def _rungs(self) -> Mapping[str, int]:
        return {
            check: _at(RUNGS, rung) for answer in self.backing.answers for check, rung in answer.rungs.items()
        }

    @cached_property
    def _order(self) -> tuple[str, ...]:
        return tuple(self.settings)

    @cached_property
    def settings(self) -> Mapping[str, Setting]:
        """By name, in the order of the newest submission; each as the newest that has it describes it."""
        found: dict[str, Setting] = {}
        for answer in sorted(self.backing.answers, key=lambda each: each.date, reverse=True):
            for name, setting in answer.settings.items():
                found.setdefault(name, setting)
        return found

    def env_of(self, setting: str) -> Optional[Mapping[str, str]]:
        """The variables of a setting; None where it was found out on each machine, with different ones."""
        found = {
            tuple(sorted(answer.settings[setting].env.items()))
            for answer in self.backing.answers
            if any(question.setting == setting for question in answer.states)
        }
        return dict(found.pop()) if len(found) == 1 else None

    @cached_property
    def derived(self) -> tuple[str, ...]:
        """The settings that were found out on each machine."""
        asked = {cell.question.setting for cell in self.cells}
        return tuple(name for name, each in self.settings.items() if each.derived and name in asked)

    @cached_property
    def advised(self) -> tuple[Advised, ...]:
        """Every recommendation, that of most machines first."""
        found: dict[str, tuple[Recommended, list[Answer]]] = {}
        for answer in self.backing.answers:
            if answer.recommended:
                found.setdefault(repr(answer.recommended), (answer.recommended, []))[1].append(answer)
        made = (Advised(recommended, Backing(tuple(who))) for recommended, who in found.values())
        return tuple(sorted(made, key=lambda each: (-each.backing.machines, repr(each.recommended))))

    @property
    def recommended(self) -> Optional[Recommended]:
        """What all submissions agree on; None where they do not, or none recommends anything."""
        return self.advised[0].recommended if len(self.advised) == 1 else None

    @property
    def vendor_library(self) -> Optional[bool]:
        """Whether convolution may enter the vendor library, by all recommendations; None where they
        differ."""
        said = {each.recommended.vendor_library for each in self.advised}
        return said.pop() if len(said) == 1 else None

    @property
    def newest(self) -> Answer:
        return max(self.backing.answers, key=lambda each: (each.date, each.submission.sha256))


@dataclass(frozen=True)
class Chip:
    """A chip, and the stacks that were tried on it, the newest first."""

    name: str
    backing: Backing
    stacks: tuple[Stack, ...]

    @property
    def products(self) -> tuple[str, ...]:
        """The names of the cards, as the submissions have them."""
        return tuple(sorted({str(each.gpu["name"]) for each in self.backing.answers if each.gpu["name"]}))


def gathered(bundles: Iterable[Bundle]) -> tuple[Chip, ...]:
    """The chips that ``bundles`` are about, by name. The same bundle twice counts once.

    Of each bundle its answers are kept, not its results.
    """
    once = {bundle.sha256: tuple(answers_of(bundle)) for bundle in bundles}
    by_chip: dict[str, dict[str, list[Answer]]] = {}
    every = (each for answers in once.values() for each in answers)
    for answer in sorted(every, key=lambda each: (each.date, each.submission.sha256)):
        by_chip.setdefault(answer.chip, {}).setdefault(answer.stack, []).append(answer)
    return tuple(_chip(name, by_chip[name]) for name in sorted(by_chip, key=_chip_order))


def _chip(name: str, by_stack: Mapping[str, list[Answer]]) -> Chip:
    stacks = [Stack(stack, Backing(tuple(answers))) for stack, answers in by_stack.items()]
    stacks.sort(key=lambda each: (each.backing.last, each.name), reverse=True)
    return Chip(
        name, Backing(tuple(each for answers in by_stack.values() for each in answers)), tuple(stacks)
    )


def _chip_order(name: str) -> tuple[bool, int, str]:
    return not name.startswith("gfx"), len(name), name


def _rank(state: str) -> int:
    return rank(state)


def _at(order: tuple[str, ...], name: str) -> int:
    return order.index(name) if name in order else len(order)
