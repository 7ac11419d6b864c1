"""The pages' content as JSON for programs (schema: ``data/site.schema.json``). Keys are added, never
renamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from rocmprobe import __version__
from rocmprobe.collection.answers import Answer, Recommended
from rocmprobe.collection.gathering import Backing, Cell, Chip, Stack
from rocmprobe.collection.manifest import LICENCE
from rocmprobe.collection.naming import place_of

VERSION = 1


def index(chips: Sequence[Chip], repository: str) -> dict[str, Any]:
    """What ``index.json`` holds: where to find each chip, and its stacks."""
    return {
        **_head(repository),
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


def of_chip(chip: Chip, raw: str, repository: str) -> dict[str, Any]:
    """What the file of a chip holds. ``raw`` is the address of the folder of bundles, seen from that file."""
    return {
        **_head(repository),
        "chip": chip.name,
        "products": list(chip.products),
        **_counted(chip.backing),
        "stacks": {stack.name: _stack(chip, stack, raw) for stack in chip.stacks},
    }


def _head(repository: str) -> dict[str, Any]:
    return {
        "api": VERSION, "schema": "schema.json", "rocmprobe": __version__, "licence": LICENCE,
        "repository": repository or None,
    }  # fmt: skip


def _counted(backing: Backing) -> dict[str, Any]:
    return {
        "submissions": backing.submissions, "machines": backing.machines,
        "first": backing.first, "last": backing.last,
    }  # fmt: skip


def _stack(chip: Chip, stack: Stack, raw: str) -> dict[str, Any]:
    software = stack.newest.software
    names = {cell.question.setting for cell in stack.cells}
    return {
        "page": f"../../{chip.name}/{stack.name}/",
        "torch": software["torch"],
        "effective_isa": software["effective_isa"],
        **_counted(stack.backing),
        "recommended": _recommended(stack),
        "settings": {
            name: {
                "env": stack.env_of(name),
                "derived": setting.derived,
                "vendor_library": setting.vendor_library and not setting.bypass,
                "bypass": setting.bypass,
                "cells": [_cell(cell) for cell in stack.cells if cell.question.setting == name],
            }
            for name, setting in stack.settings.items()
            if name in names
        },
        "raw": [_submission(answer, raw) for answer in stack.backing.answers],
    }


def _recommended(stack: Stack) -> dict[str, Any]:
    """What all agree on, else nulls; ``answers`` has every recommendation with who was given it."""
    one = stack.recommended
    return {
        "agreed": len(stack.advised) == 1,
        **_configuration(one),
        "vendor_library": stack.vendor_library,
        "answers": [{**_configuration(each.recommended), **_counted(each.backing)} for each in stack.advised],
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


def _cell(cell: Cell) -> dict[str, Any]:
    question = cell.question
    return {
        "check": question.check, "dtype": question.dtype, "direction": question.direction or None,
        "driver": question.driver, "state": cell.state, "works": cell.works, "differs": cell.differs,
        "states": {
            state: {"submissions": found.submissions, "machines": found.machines}
            for state, found in cell.by_state.items()
        },
        **_counted(cell.backing),
    }  # fmt: skip


def _submission(answer: Answer, raw: str) -> dict[str, Any]:
    one = answer.submission
    return {
        "sha256": one.sha256, "size": one.size, "url": address_of(answer, raw), "date": one.date,
        "rocmprobe": one.rocmprobe, "partial": one.partial, "label": one.label or None,
        "gpu": dict(answer.gpu), "software": dict(answer.software),
    }  # fmt: skip


def address_of(answer: Answer, raw: str) -> str:
    """Where the bundle behind an answer is, in the folder ``raw``."""
    return f"{raw}/{place_of(answer.submission.chip, answer.submission.sha256)}"
