"""Declarations of all checks, and the functions that run them.

Each module of this package has a tuple ``CHECKS``. A module of another package can have one too, if an entry
point in the group ``rocmprobe.checks`` names the module. Importing this package imports neither torch nor any
check.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from rocmprobe.model.results import RUNGS, BadInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from rocmprobe.checks.check import Check

ENTRY_POINTS = "rocmprobe.checks"


class _Checks(Mapping[str, "Check"]):
    """Checks by name, from the simplest operations (copy) to training.

    The first use loads all checks. Raise BadInput if a check of another package cannot be used.
    """

    @cached_property
    def _loaded(self) -> Mapping[str, Check]:
        checks, added = list(_built_in()), list(_of_packages())
        checks += [check for _, check in added]
        names = [check.name for check in checks]
        for where, check in added:
            if fault := _fault(check, names):
                raise BadInput(f"{where}: check {check.name!r}: {fault}")
        return _in_order({check.name: check for check in checks})

    def __getitem__(self, name: str) -> Check:
        try:
            return self._loaded[name]
        except KeyError:
            raise KeyError(f"{name}: this process finds no package with this check") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)


def _built_in() -> Iterator[Check]:
    for module in iter_modules(__path__, f"{__name__}."):
        if not module.ispkg:
            yield from getattr(import_module(module.name), "CHECKS", ())


def _of_packages() -> Iterator[tuple[str, Check]]:
    """Yield the checks of other packages, each with its entry point."""
    for entry in _entry_points():
        where = f"entry point {entry.name} = {entry.value} ({ENTRY_POINTS})"
        torch_is_loaded = "torch" in sys.modules
        try:
            checks = tuple(entry.load().CHECKS)
        except Exception as error:
            raise BadInput(
                f"{where}: {type(error).__name__}: {error}; repair the package or uninstall it"
            ) from error
        if "torch" in sys.modules and not torch_is_loaded:
            raise BadInput(f"{where}: the module imports torch; import torch inside the functions instead")
        for check in checks:
            yield where, check


def _entry_points() -> Iterator[EntryPoint]:
    from importlib.metadata import distributions

    found = (entry for each in distributions() for entry in each.entry_points if entry.group == ENTRY_POINTS)
    # A package can be found twice, e.g. in a build folder.
    yield from {entry.value: entry for entry in found}.values()


def _fault(check: Check, names: Sequence[str]) -> str:
    """Return why a check of another package cannot be used, or "". ``names`` are the names of all checks."""
    if names.count(check.name) > 1:
        return "another check has this name"
    if not re.fullmatch(r"[a-z0-9-]+", check.name):
        return "a name has only lower-case letters, digits and hyphens"
    if check.rung not in RUNGS:
        return f"the rung {check.rung!r} is none of {', '.join(RUNGS)}"
    if check.function is None:
        return "it has no function"
    unknown = [name for name in check.requires.checks if name not in names]
    return f"it requires {unknown[0]!r}, which is not a check" if unknown else ""


def _in_order(checks: Mapping[str, Check]) -> Mapping[str, Check]:
    """Return the checks sorted by rung (group of checks). Within a rung, required checks come first."""

    def depth(check: Check) -> int:
        needs = (checks[name] for name in check.requires.checks if name != check.name)
        return max((depth(need) + 1 for need in needs if need.rung == check.rung), default=0)

    places = {name: (RUNGS.index(check.rung), depth(check)) for name, check in checks.items()}
    return {name: checks[name] for name in sorted(checks, key=places.__getitem__)}


CHECKS: Mapping[str, Check] = _Checks()
#: Checks that train a small network with convolutions each, and the checks that train any network.
CONVOLUTIONAL_MODELS = ("train-resnet", "train-detector", "train-unet", "train-depthwise")
MODELS = ("train-lstm", *CONVOLUTIONAL_MODELS)
#: Checks that run in a process without torch.
DIRECT = ("rocblas-direct", "miopen-direct")
#: Checks of the numerical results of convolution.
CONVOLUTIONS = ("convolution", "convolution-at-size", "problem-matrix")
