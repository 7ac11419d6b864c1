"""Signatures: patterns of log lines that are evidence for causes. ``data/signatures.toml`` has the rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Optional

from rocmprobe.text.log import Line
from rocmprobe.text.tables import table

_WARNING = re.compile(r"(?:[\w./\\:-]{1,200}: )?(?:User|Runtime|Future|Deprecation)?Warning: ")
_WARNING_OF_MIOPEN = re.compile(r"MIOpen\(HIP\): (?:Warning|Info)")

KINDS = ("fatal", "ending", "remark", "context")


@dataclass(frozen=True)
class Signature:
    """Text that libraries print, with its evidence for causes (``points``)."""

    name: str
    pattern: str
    kind: str
    says: str
    source: str
    points: Mapping[str, float] = field(default_factory=dict)
    layer: Optional[str] = None
    shows: Optional[str] = None

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


@dataclass(frozen=True)
class Rule:
    """Joint evidence of signatures and situations.

    Each word of ``when`` is a situation, or the name or kind of a signature. The rule applies if every word
    was found. "not-WORD" requires that WORD was not found.
    """

    when: tuple[str, ...]
    points: Mapping[str, float]
    says: str
    source: str


@dataclass(frozen=True)
class Calibration:
    """Parameters of the scores.

    The score of a cause with P points is ``exp(sharpness * P)``. ``unknown`` is the smallest number of points
    that the cause ``unknown`` gets.
    """

    sharpness: float
    unknown: float


@dataclass(frozen=True)
class Hit:
    """A signature and the lines in which it was found, in the order of the log."""

    signature: Signature
    lines: tuple[Line, ...]


@lru_cache(maxsize=1)
def signatures() -> tuple[Signature, ...]:
    """Return every signature, in the order of the table."""
    return tuple(Signature(**row) for row in table("signatures")["signature"])


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Return every rule, in the order of the table."""
    return tuple(Rule(**{**row, "when": tuple(row["when"])}) for row in table("signatures")["rule"])


@lru_cache(maxsize=1)
def calibration() -> Calibration:
    """Return the calibration of the scores."""
    row = table("signatures")["calibration"]
    return Calibration(row["sharpness"], row["unknown"])


def found(lines: Iterable[Line]) -> tuple[Hit, ...]:
    """Return the signatures found in ``lines``, in the order of the table.

    Signatures of kind "fatal" never match a line that Python marks as a warning. They match MIOpen's
    warnings and info lines only if the signature's layer is MIOpen or a part of MIOpen.
    """
    kept = list(lines)
    without_python_s = [line for line in kept if not _WARNING.match(line.text)]
    grave = [line for line in without_python_s if not _WARNING_OF_MIOPEN.match(line.text)]
    hits = []
    for signature in signatures():
        search, where = signature.regex.search, kept
        if signature.kind == "fatal":
            where = without_python_s if (signature.layer or "").startswith("miopen") else grave
        matching = tuple(line for line in where if search(line.text))
        if matching:
            hits.append(Hit(signature, matching))
    return tuple(hits)
