"""Options of a run, as the command line sets them and as ``results.json`` has them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, Optional

from rocmprobe.model.problems import LEVELS
from rocmprobe.model.shapes import Shapes

if TYPE_CHECKING:
    Level = str
    Purpose = str
else:
    Level = Literal[LEVELS]
    Purpose = Literal["training", "inference"]


@dataclass(frozen=True)
class RunOptions:
    """Options of ``rocmprobe run``.

    ``shapes`` has the recorded convolutions of a program. If set, ``problems`` names the same convolutions.
    ``minutes`` is the duration of the check soak, or 0 for the default.
    """

    device: str = "auto"
    level: Level = "quick"
    purpose: Purpose = "training"
    settings: str = "default"
    problems: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    simulate: Optional[str] = None
    redact: bool = True
    note: str = ""
    shapes: Optional[Shapes] = None
    minutes: float = 0

    def selects(self, check: str, case: str) -> bool:
        """Return True if ``only`` and ``skip`` select the case with the id ``case`` of ``check``."""

        def matches(patterns: tuple[str, ...]) -> bool:
            return any(check == pattern or fnmatchcase(case, pattern) for pattern in patterns)

        if self.only and not matches(self.only):
            return False
        return not matches(self.skip)


@dataclass(frozen=True)
class WrittenTarget:
    """A tested device in ``results.json``."""

    device: str
    backend: str
    gpu: Optional[str] = None
    in_processor: bool = False


@dataclass(frozen=True)
class WrittenOptions(RunOptions):
    """The options in ``results.json``, with folder and devices of the run."""

    folder: str = "."
    targets: tuple[WrittenTarget, ...] = ()
