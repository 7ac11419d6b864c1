"""Declarations of all checks, and the functions that run them.

Importing ``CHECKS`` does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules

from rocmprobe.checks.check import Check
from rocmprobe.model.results import RUNGS


def _declared() -> Iterator[Check]:
    for module in iter_modules(__path__, f"{__name__}."):
        if not module.ispkg:
            yield from getattr(import_module(module.name), "CHECKS", ())


def _in_order(declared: Mapping[str, Check]) -> dict[str, Check]:
    """Return the checks sorted by rung (group of checks). Within a rung, required checks come first."""

    def depth(check: Check) -> int:
        needs = (declared[name] for name in check.requires.checks if name != check.name)
        return max((depth(need) + 1 for need in needs if need.rung == check.rung), default=0)

    places = {name: (RUNGS.index(check.rung), depth(check)) for name, check in declared.items()}
    return {name: declared[name] for name in sorted(declared, key=places.__getitem__)}


#: Checks by name, from the simplest operations (copy) to training.
CHECKS: Mapping[str, Check] = _in_order({check.name: check for check in _declared()})
#: Checks that train a small network each, and the checks among them whose network has convolutions.
MODELS = tuple(name for name in CHECKS if name.startswith("train-"))
CONVOLUTIONAL_MODELS = tuple(name for name in MODELS if name != "train-lstm")
#: Checks that run in a process without torch.
DIRECT = tuple(name for name, check in CHECKS.items() if check.function is None)
#: Checks of the numerical results of convolution.
CONVOLUTIONS = ("convolution", "problem-matrix")
