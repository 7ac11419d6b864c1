"""Known causes of failures, layers in which failures occur, remedies and tests: ``data/causes.toml``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional

from msgspec.structs import replace

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.installation import Place, plan
from rocmprobe.knowledge.options import options
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.text.tables import Row, rows

#: Causes that disappear with a build of PyTorch that has code for the chip.
OF_THE_BUILD = frozenset(
    {
        "arch-not-in-wheel", "arch-not-in-rocm-lib", "rocblas-missing-arch", "hipblaslt-missing-arch",
        "override-isa-mismatch",
    }
)  # fmt: skip
#: Causes that mean that PyTorch, or a library in its wheel, has no code for the chip.
NO_CODE = OF_THE_BUILD - {"override-isa-mismatch", "hipblaslt-missing-arch"}
MOST_TESTS = 3
_NOT = "not-"
_PARAGRAPHS = ("sentence", "explanation", "confirm", "verify")
_ASSIGNMENT = re.compile(r"(?:\bexport |\$env:|\s)([A-Z][A-Z0-9_]{3,}) ?= ?[\"']?([^\s\"']+)")
_INSTALL = "`rocmprobe install` prints the commands."


class Layer(Row, frozen=True):
    """A layer of hardware or software in which something can fail: one [[layer]] in data/causes.toml."""

    name: str
    title: str
    within: str = ""
    fails: str = ""


class Remedy(Row, frozen=True):
    """Remedy for a cause, if the conditions ``when`` hold: one [[cause.remedy]] in data/causes.toml."""

    does: str
    when: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    setting: str = ""
    stack: bool = False
    root: bool = False
    login: bool = False
    reboot: bool = False


class Test(Row, frozen=True):
    """A test that distinguishes causes: one [[test]] in data/causes.toml, which explains the fields."""

    groups: tuple[str, ...]
    works: str = ""
    shows: str = ""
    when: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    setting: str = ""


class Cause(Row, frozen=True):
    """A cause of failures: one [[cause]] in data/causes.toml."""

    name: str
    layer: str
    title: str
    sentence: str
    source: str
    explanation: str
    confirm: str
    verify: str
    links: tuple[str, ...]
    remedy: tuple[Remedy, ...]


@dataclass(frozen=True)
class Step:
    """Something to do: a sentence, its commands, and what they need or mean.

    - ``after``: what the commands need or what must follow, e.g. "needs root"
    - ``works``: for a test, what it means if the program works with it; ``shows``: what the commands show
    """

    does: str
    commands: tuple[str, ...] = ()
    after: str = ""
    works: str = ""
    shows: str = ""


@lru_cache(maxsize=1)
def layers() -> tuple[Layer, ...]:
    """Return every layer, the lowest first."""
    return rows("causes", "layer", Layer)


@lru_cache(maxsize=1)
def tests() -> tuple[Test, ...]:
    """Return every test, the shortest first."""
    return rows("causes", "test", Test)


@lru_cache(maxsize=1)
def causes() -> tuple[Cause, ...]:
    """Return every cause, in the order of the table. Lines of a paragraph are joined."""
    return tuple(map(_joined, rows("causes", "cause", Cause)))


def _joined(row: Cause) -> Cause:
    paragraphs = {name: " ".join(getattr(row, name).split()) for name in _PARAGRAPHS}
    remedies = tuple(replace(each, does=" ".join(each.does.split())) for each in row.remedy)
    return replace(row, **paragraphs, remedy=remedies)


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, Cause]:
    return {cause.name: cause for cause in causes()}


def cause(name: str) -> Cause:
    """Return the cause ``name``. Raise KeyError if the name is unknown."""
    return _by_name()[name]


def all_hold(when: tuple[str, ...], words: Collection[str]) -> bool:
    """Return True if ``words`` meets every condition in ``when``.

    The condition "wsl" requires "wsl" in ``words``. The condition "not-wsl" forbids "wsl".
    """
    return all(word[len(_NOT) :] not in words if word.startswith(_NOT) else word in words for word in when)


def advice_for(name: str, words: Collection[str], silicon: Optional[str] = None) -> str:
    """Return advice for the cause ``name`` as text. Raise KeyError if the name is unknown.

    ``words`` are conditions that hold, e.g. "wsl".
    """
    row = next(each for each in cause(name).remedy if all_hold(each.when, words))
    commands = _commands(row, silicon)
    parts = [row.does.replace("{gfx}", silicon or "the chip")]
    if row.stack:
        parts.append(_INSTALL)
    if commands:
        parts.append(f"Run {', then '.join(f'`{command}`' for command in commands)}.")
    if after := _after(row):
        parts.append(f"It {after}.")
    return " ".join(parts)


def step_for(name: str, words: Collection[str], place: Place) -> Step:
    """Return the first remedy of the cause ``name`` that was not tried. Raise KeyError if unknown.

    ``place`` is the machine of the program. Its chips are () if the chip is unknown.
    """
    gfx = place.chips[0] if place.chips else None
    for row in cause(name).remedy:
        if not all_hold(row.when, words):
            continue
        # The commands of the table are for Linux, unless the conditions name Windows.
        on_windows = place.system == "windows" and "windows" not in row.when
        commands = () if on_windows else _commands(row, gfx)
        does = row.does.replace("{gfx}", gfx or "the chip")
        if row.stack:
            installs, of_stack = _stack(place)
            does, commands = f"{does} {installs}", (*commands, *of_stack)
        if not _is_set(commands, row.setting, place.variables):
            return Step(does, commands, _after(row))
    return Step("What is known for this cause is already set. Test each layer.", ("rocmprobe run",))


def tests_for(group: str, words: Collection[str]) -> tuple[Step, ...]:
    """Return the tests that distinguish the causes of a kind of failure, the shortest first."""
    suitable = (row for row in tests() if group in row.groups and all_hold(row.when, words))
    return tuple(
        Step("", row.commands or _command_of(row.setting), works=row.works, shows=row.shows)
        for row, _ in zip(suitable, range(MOST_TESTS))
    )


def _commands(row: Remedy, gfx: Optional[str]) -> tuple[str, ...]:
    own = tuple(command.replace("{gfx}", gfx or "gfxNNNN") for command in row.commands)
    return (*own, *_command_of(row.setting))


def _command_of(setting: str) -> tuple[str, ...]:
    return (f"rocmprobe exec --setting {setting} -- python train.py",) if setting else ()


def _after(row: Remedy) -> str:
    parts = (
        (row.root, "needs root"),
        (row.login, "takes effect after a new login"),
        (row.reboot, "takes effect after a restart"),
    )
    return " and ".join(text for holds, text in parts if holds)


def _is_set(commands: tuple[str, ...], setting: str, env: Mapping[str, str]) -> bool:
    """Return True if every variable that a remedy sets already has its value."""
    wanted = dict(_ASSIGNMENT.findall(" ".join(commands)))
    if setting:
        wanted = next(dict(row.env) for row, *_ in all_settings() if row.name == setting)
    return bool(wanted) and all(env.get(name) == value for name, value in wanted.items())


def _stack(place: Place) -> tuple[str, tuple[str, ...]]:
    """Return a sentence about the best stack that is not installed yet, and the commands that install it."""
    if not place.chips or gpus.target(place.chips[0]) is None:
        return "`rocmprobe install` ranks the builds for your card.", ("rocmprobe install",)
    gfx = place.chips[0]
    for option in options(gfx, place.system, place.distribution, place.atomics):
        if option.status != "fails" and not (place.torch and place.torch.startswith(option.stack.torch)):
            steps = dict(plan(option, place).steps)
            install, variables = steps.get("Install", ()), steps.get("Set", ())
            joint = "; " if place.system == "windows" else " && "
            start = (joint.join(install[:2]), *install[2:]) if len(install) > 2 else install
            # More variables would hide the remedy.
            rest = (
                variables
                if len(variables) == 1
                else (f"rocmprobe install --stack {option.stack.name}   # what to set",)
            )
            return f"The stack is {option.stack.name}:", (*start, *(rest if variables else ()))
    return f"No published PyTorch is known to work on {gfx} here: use the CPU, or programs with Vulkan.", ()
