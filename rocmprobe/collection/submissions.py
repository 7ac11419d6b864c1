"""Bundles grouped by chip, software stack and question, for the public pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Optional

from rocmprobe import __version__
from rocmprobe.collection.bundle import LICENCE, Bundle, place_of
from rocmprobe.collection.identity import (
    Facts,
    MachineIdentity,
    Question,
    chip_name,
    gpu_facts,
    machine_of,
    stack_facts,
    stack_name,
)
from rocmprobe.collection.reading import Tested, tested
from rocmprobe.model.problems import DTYPES
from rocmprobe.model.results import DIRECTIONS, NATIVE, RUNGS, UNJUDGED, Outcome, Results, Setting
from rocmprobe.model.states import RUN_DIED, rank, state_of
from rocmprobe.report.states import worst

API_VERSION = 1
_DTYPES = tuple(DTYPES.values())
_DIRECTIONS = ("", *DIRECTIONS)


@dataclass(frozen=True)
class Recommended:
    """The recommendation of one submission.

    ``vendor_library`` is True if convolution can use the vendor library, and None if this is unknown.
    """

    verdict: str
    setting: Optional[str]
    vendor_library: Optional[bool]
    pytorch_layers: tuple[str, ...]
    env: Mapping[str, str]
    code: str


@dataclass(frozen=True)
class Submission:
    """Metadata of a bundle."""

    path: Path
    sha256: str
    size: int
    chip: str
    date: str
    rocmprobe: str
    partial: bool
    label: str

    def address(self, raw: str) -> str:
        """Return the address of the bundle. ``raw`` is the URL or path of the folder with all bundles."""
        return f"{raw}/{place_of(self.chip, self.sha256)}"


@dataclass(frozen=True)
class Answer:
    """The results of one device in a submission.

    ``states`` has the worst state of each question. ``rungs`` maps each check to its group of checks, an
    item of ``results.RUNGS``.
    """

    submission: Submission
    chip: str
    stack: str
    gpu: Mapping[str, Any]
    software: Mapping[str, Any]
    machine: MachineIdentity
    states: Mapping[Question, str]
    rungs: Mapping[str, str]
    settings: Mapping[str, Setting]
    recommended: Optional[Recommended]

    @property
    def date(self) -> str:
        return self.submission.date


def works(state: str) -> Optional[bool]:
    """Return True if ``state`` proves success, False if it proves failure, else None."""
    # "aborted" means that the run died during the case. If the machine died, `_state` returns "hang".
    meaning = state_of(state, RUN_DIED)
    return meaning.works if meaning.learned else None


def answers_of(path: Path, bundle: Bundle) -> Iterator[Answer]:
    """Yield one Answer for each tested device of the bundle."""
    results, run = bundle.results, tested(bundle.results)
    submission = Submission(
        path, bundle.sha256, len(bundle.content), bundle.chip, results.started, results.rocmprobe,
        results.partial, bundle.label,
    )  # fmt: skip
    for device, gpu in run.gpus.items():
        states = _states(each for each in results.outcomes if each.device == device)
        if states:
            yield _answer(submission, results, run, device, gpu, states)


def _answer(
    submission: Submission,
    results: Results,
    run: Tested,
    device: str,
    gpu: Facts,
    states: Mapping[Question, str],
) -> Answer:
    facts = gpu_facts(gpu)
    return Answer(
        submission,
        chip_name(facts["native_isa"], device),
        stack_name(run.facts, gpu),
        facts,
        stack_facts(run.facts, gpu),
        machine_of(run.system, submission.label, results.simulated or ""),
        states,
        {each.check: each.rung for each in results.outcomes},
        {each.name: each for each in results.settings},
        _recommended(results, device),
    )


def _states(outcomes: Iterable[Outcome]) -> dict[Question, str]:
    asked: dict[Question, list[Outcome]] = {}
    for each in outcomes:
        question = Question(each.setting, each.driver, each.check, each.dtype, each.direction or "")
        asked.setdefault(question, []).append(each)
    return {question: _state(found) for question, found in asked.items()}


def _state(outcomes: Sequence[Outcome]) -> str:
    """Return the worst state, or "hang" if the machine died.

    If any state proves success or failure, ignore the states that prove nothing.
    """
    came = [(each.expected.state if each.expected else each.state, each) for each in outcomes]
    # An aborted run proves nothing about the device, but a death of the machine does.
    if any(state == "aborted" and each.cause == "machine-died" for state, each in came):
        return "hang"
    learned = [each for state, each in came if works(state) is not None]
    found = worst(learned or outcomes)
    return found.expected.state if found.expected else found.state


def _recommended(results: Results, device: str) -> Optional[Recommended]:
    found = results.recommendation
    if found is None:
        return None
    one = found.devices.get(device)
    verdict, setting = (one.verdict, one.setting) if one else (found.verdict, found.configuration.setting)
    env = one.env if one else found.configuration.env
    same = setting == found.configuration.setting
    row = results.setting(setting)
    if verdict in UNJUDGED:
        return None
    # The verdict "none" does not show whether convolution can use the library. Every other verdict does.
    library = None if verdict == "none" else verdict in NATIVE
    return Recommended(
        verdict, setting, library, row.pytorch_layers if row else (), dict(sorted(env.items())),
        found.configuration.code if same else "",
    )  # fmt: skip


@dataclass(frozen=True)
class Backing:
    """The answers behind one statement, e.g. a cell or a recommendation."""

    answers: tuple[Answer, ...]

    @property
    def submissions(self) -> int:
        return len({each.submission.sha256 for each in self.answers})

    @property
    def machines(self) -> int:
        """Number of machines. Machines with the same label count once."""
        return len({each.machine.label or each.machine for each in self.answers})

    @property
    def first(self) -> str:
        return min(each.date for each in self.answers)

    @property
    def last(self) -> str:
        return max(each.date for each in self.answers)


@dataclass(frozen=True)
class Cell:
    """The answers to one question by state, the worst state first."""

    question: Question
    by_state: Mapping[str, Backing]

    @property
    def backing(self) -> Backing:
        return Backing(tuple(each for found in self.by_state.values() for each in found.answers))

    @property
    def differs(self) -> bool:
        """True if the check passes in some submissions and fails in others."""
        return {True, False} <= set(map(works, self.by_state))

    @property
    def works(self) -> Optional[bool]:
        """True if all submissions with a result pass, False if all of them fail, else None."""
        said = {works(state) for state in self.by_state} - {None}
        return said.pop() if len(said) == 1 else None

    @property
    def state(self) -> Optional[str]:
        """Worst state, or None if some submissions pass and others fail."""
        if self.differs:
            return None
        return next((state for state in self.by_state if works(state) is not None), next(iter(self.by_state)))


@dataclass(frozen=True)
class Advised:
    """A recommendation and the submissions that made it."""

    recommended: Recommended
    backing: Backing


@dataclass(frozen=True)
class StackPage:
    """The submissions for one chip and software stack."""

    name: str
    backing: Backing

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Cells, with simple checks first."""
        found: dict[Question, dict[str, list[Answer]]] = {}
        for answer in self.backing.answers:
            for question, state in answer.states.items():
                found.setdefault(question, {}).setdefault(state, []).append(answer)
        return tuple(
            Cell(question, {state: Backing(tuple(states[state])) for state in sorted(states, key=rank)})
            for question, states in sorted(found.items(), key=lambda each: self._place(each[0]))
        )

    def _place(self, question: Question) -> tuple[Any, ...]:
        return (
            self._rungs.get(question.check, len(RUNGS)), question.check, _at(_DTYPES, question.dtype),
            question.dtype, _at(_DIRECTIONS, question.direction), question.caller != "torch",
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
        """Settings by name, each from the newest submission that has it."""
        found: dict[str, Setting] = {}
        for answer in sorted(self.backing.answers, key=lambda each: each.date, reverse=True):
            for name, setting in answer.settings.items():
                found.setdefault(name, setting)
        return found

    def env_of(self, setting: str) -> Optional[Mapping[str, str]]:
        """Return the environment variables of a setting, or None if they differ between machines."""
        found = {
            tuple(sorted(answer.settings[setting].env.items()))
            for answer in self.backing.answers
            if any(question.setting == setting for question in answer.states)
        }
        return dict(found.pop()) if len(found) == 1 else None

    @cached_property
    def derived(self) -> tuple[str, ...]:
        """Names of the settings whose environment variables are chosen for each machine individually."""
        asked = {cell.question.setting for cell in self.cells}
        return tuple(name for name, each in self.settings.items() if each.derived and name in asked)

    @cached_property
    def advised(self) -> tuple[Advised, ...]:
        """Recommendations, sorted by the number of machines that they come from, the largest first."""
        found: dict[str, tuple[Recommended, list[Answer]]] = {}
        for answer in self.backing.answers:
            if answer.recommended:
                found.setdefault(repr(answer.recommended), (answer.recommended, []))[1].append(answer)
        made = (Advised(recommended, Backing(tuple(who))) for recommended, who in found.values())
        return tuple(sorted(made, key=lambda each: (-each.backing.machines, repr(each.recommended))))

    @property
    def recommended(self) -> Optional[Recommended]:
        """The recommendation, or None if submissions disagree."""
        return self.advised[0].recommended if len(self.advised) == 1 else None

    @property
    def vendor_library(self) -> Optional[bool]:
        """True if all recommendations use the vendor library, False if none does, else None."""
        said = {each.recommended.vendor_library for each in self.advised}
        return said.pop() if len(said) == 1 else None

    @property
    def newest(self) -> Answer:
        return max(self.backing.answers, key=lambda each: (each.date, each.submission.sha256))


@dataclass(frozen=True)
class ChipPage:
    """The submissions for one chip, by software stack, the newest stack first."""

    name: str
    backing: Backing
    stacks: tuple[StackPage, ...]

    @property
    def products(self) -> tuple[str, ...]:
        """Names of the cards in the submissions."""
        return tuple(sorted({str(each.gpu["name"]) for each in self.backing.answers if each.gpu["name"]}))


def chip_pages(bundles: Iterable[tuple[Path, Bundle]]) -> tuple[ChipPage, ...]:
    """Return the pages of all chips in ``bundles``, sorted by chip. Skip duplicate bundles."""
    once = {bundle.sha256: tuple(answers_of(path, bundle)) for path, bundle in bundles}
    by_chip: dict[str, dict[str, list[Answer]]] = {}
    every = (each for answers in once.values() for each in answers)
    for answer in sorted(every, key=lambda each: (each.date, each.submission.sha256)):
        by_chip.setdefault(answer.chip, {}).setdefault(answer.stack, []).append(answer)
    return tuple(_chip(name, by_chip[name]) for name in sorted(by_chip, key=_chip_order))


def _chip(name: str, by_stack: Mapping[str, list[Answer]]) -> ChipPage:
    stacks = [StackPage(stack, Backing(tuple(answers))) for stack, answers in by_stack.items()]
    stacks.sort(key=lambda each: (each.backing.last, each.name), reverse=True)
    every = tuple(each for answers in by_stack.values() for each in answers)
    return ChipPage(name, Backing(every), tuple(stacks))


def _chip_order(name: str) -> tuple[bool, int, str]:
    return not name.startswith("gfx"), len(name), name


def _at(order: tuple[str, ...], name: str) -> int:
    return order.index(name) if name in order else len(order)


def index_data(chips: Sequence[ChipPage], repository: str) -> dict[str, Any]:
    """Return the content of ``index.json``, which lists all chips."""
    return {
        **_head(repository),
        # Do not rename keys, because other programs read this file.
        "chips": {
            chip.name: {
                "file": f"{chip.name}.json",
                "page": f"../../{chip.name}/",
                "products": list(chip.products),
                **_counted(chip.backing),
                "stacks": [stack.name for stack in chip.stacks],
            }
            for chip in chips
        },
    }


def chip_data(chip: ChipPage, raw: str, repository: str) -> dict[str, Any]:
    """Return the content of a chip's JSON file."""
    return {
        **_head(repository),
        "chip": chip.name,
        "products": list(chip.products),
        **_counted(chip.backing),
        "stacks": {stack.name: _stack_data(chip, stack, raw) for stack in chip.stacks},
    }


def _head(repository: str) -> dict[str, Any]:
    return {
        "api": API_VERSION, "schema": "schema.json", "rocmprobe": __version__, "licence": LICENCE,
        "repository": repository or None,
    }  # fmt: skip


def _counted(backing: Backing) -> dict[str, Any]:
    return {
        "submissions": backing.submissions, "machines": backing.machines,
        "first": backing.first, "last": backing.last,
    }  # fmt: skip


def _stack_data(chip: ChipPage, stack: StackPage, raw: str) -> dict[str, Any]:
    software = stack.newest.software
    names = {cell.question.setting for cell in stack.cells}
    return {
        "page": f"../../{chip.name}/{stack.name}/",
        "torch": software["torch"],
        "effective_isa": software["effective_isa"],
        **_counted(stack.backing),
        "recommended": {
            "agreed": len(stack.advised) == 1,
            **_configuration(stack.recommended),
            "vendor_library": stack.vendor_library,
            "answers": [
                {**_configuration(each.recommended), **_counted(each.backing)} for each in stack.advised
            ],
        },
        "settings": {
            name: {
                "env": stack.env_of(name),
                "derived": setting.derived,
                "vendor_library": setting.vendor_library and not setting.bypass,
                "bypass": setting.bypass,
                "cells": [_cell_data(cell) for cell in stack.cells if cell.question.setting == name],
            }
            for name, setting in stack.settings.items()
            if name in names
        },
        "raw": [_submission_data(answer, raw) for answer in stack.backing.answers],
    }


def _configuration(one: Optional[Recommended]) -> dict[str, Any]:
    return {
        "verdict": one.verdict if one else None,
        "setting": one.setting if one else None,
        "vendor_library": one.vendor_library if one else None,
        "pytorch_layers": list(one.pytorch_layers) if one else None,
        "env": dict(one.env) if one else None,
        "code": one.code if one else None,
    }


def _cell_data(cell: Cell) -> dict[str, Any]:
    question = cell.question
    return {
        "check": question.check, "dtype": question.dtype, "direction": question.direction or None,
        "driver": question.caller, "state": cell.state, "works": cell.works, "differs": cell.differs,
        "states": {
            state: {"submissions": found.submissions, "machines": found.machines}
            for state, found in cell.by_state.items()
        },
        **_counted(cell.backing),
    }  # fmt: skip


def _submission_data(answer: Answer, raw: str) -> dict[str, Any]:
    one = answer.submission
    return {
        "sha256": one.sha256, "size": one.size, "url": one.address(raw), "date": one.date,
        "rocmprobe": one.rocmprobe, "partial": one.partial, "label": one.label or None,
        "gpu": dict(answer.gpu), "software": dict(answer.software),
    }  # fmt: skip
