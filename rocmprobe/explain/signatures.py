"""Signatures: patterns of log lines, with the causes that facts select, from ``data/signatures.toml``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Optional

from rocmprobe.explain.failure import is_warning
from rocmprobe.text.log import Line
from rocmprobe.text.tables import Row, rows

_MIOPEN_GOES_ON = re.compile(r"MIOpen(?:\((?:HIP|OpenCL)\))?: (?:Warning|Info)")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class Candidate(Row, frozen=True):
    """A cause of a signature, if all conditions of ``requires`` and none of ``excludes`` hold."""

    cause: str
    requires: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    def holds(self, words: Collection[str]) -> bool:
        """Return True if the conditions in ``words`` select this cause."""
        return all(word in words for word in self.requires) and not any(
            word in words for word in self.excludes
        )


class Signature(Row, frozen=True):
    """A message that software prints: one [[signature]] in data/signatures.toml."""

    name: str
    pattern: str
    layer: str
    says: str
    source: str
    causes: tuple[Candidate, ...] = ()
    harmless: bool = False
    context: bool = False
    tests: str = ""
    precision: str = ""

    @property
    def regex(self) -> re.Pattern[str]:
        """Compiled pattern."""
        return _compiled(self.pattern)

    @property
    def fatal(self) -> bool:
        """Return True if the message reports a failure."""
        return not (self.harmless or self.context)


@dataclass(frozen=True)
class Hit:
    """A signature and the lines in which it was found, in the order of the log."""

    signature: Signature
    lines: tuple[Line, ...]


@cache
def signatures() -> tuple[Signature, ...]:
    """Return every signature, the most specific first."""
    return rows("signatures", "signature", Signature)


def found(lines: Iterable[Line]) -> tuple[Hit, ...]:
    """Return the signatures found in ``lines``, in the order of the table.

    A signature of a failure matches no warning. It matches warnings and info lines of MIOpen only if the
    signature belongs to MIOpen, because MIOpen goes on to the next solver after others.
    """
    kept = list(lines)
    own = [line for line in kept if _MIOPEN_GOES_ON.match(line.text)]
    grave = [line for line in kept if not is_warning(line.text) and not _MIOPEN_GOES_ON.match(line.text)]
    of_miopen = sorted((*grave, *own), key=lambda line: line.number)
    hits = []
    for signature in signatures():
        where = (of_miopen if signature.layer.startswith("miopen") else grave) if signature.fatal else kept
        search = signature.regex.search
        matching = tuple(line for line in where if search(line.text))
        if matching:
            hits.append(Hit(signature, matching))
    return tuple(hits)


def chosen(signature: Signature, words: Collection[str]) -> Optional[str]:
    """Return the cause that the conditions in ``words`` select, or None."""
    return next((each.cause for each in signature.causes if each.holds(words)), None)
