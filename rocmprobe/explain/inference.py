"""Input and conclusion of a rule that reads a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.explain.extraction import USER, LogStructure
from rocmprobe.explain.log_facts import Facts
from rocmprobe.explain.signatures import Hit
from rocmprobe.knowledge import causes
from rocmprobe.knowledge.compatibility import Answer
from rocmprobe.text.log import Line

#: Groups of causes that can occur with any vendor's GPU.
ANYWHERE = frozenset(("program", "outside", "none", "speed", "memory"))
ENDED = frozenset(("exception", "segv", "abort", "hang"))
_LONGEST = 100


@dataclass(frozen=True)
class Inference:
    """Conclusion of a rule: a clause (``says``), points by cause, and the layer that failed, if known.

    ``elsewhere`` is True if AMD's stack has no part in the failure.
    """

    says: str
    points: Mapping[str, float] = field(default_factory=dict)
    layer: Optional[str] = None
    elsewhere: bool = False
    remedy: str = ""


@dataclass(frozen=True)
class LogContext:
    """Input of a rule: the log's structure and lines, the facts, and the signatures found."""

    structure: LogStructure
    facts: Facts
    words: frozenset[str]
    hits: tuple[Hit, ...]
    refused: tuple[Answer, ...] = ()
    lines: tuple[Line, ...] = ()

    @property
    def is_amd(self) -> bool:
        """Return True if the log or the facts name an AMD GPU or its software."""
        return "amd" in self.structure.vendors or bool(self.facts.true_gfx or self.facts.effective_gfx)

    @property
    def fatal(self) -> tuple[Hit, ...]:
        """Those of ``hits`` whose signature names a failure of AMD's stack."""
        return tuple(hit for hit in self.hits if hit.signature.kind == "fatal" and not _is_anywhere(hit))

    def fatal_besides(self, *allowed: str) -> tuple[Hit, ...]:
        """Return the fatal signatures that speak for other causes than ``allowed``."""
        return tuple(
            hit
            for hit in self.fatal
            if any(weight > 0 and name not in allowed for name, weight in hit.signature.points.items())
        )

    def explains(self, line: int) -> bool:
        """Return True if a signature of a failure matches this line."""
        return any(
            line in (found.number, found.last)
            for hit in self.hits
            if hit.signature.kind == "fatal" and hit.signature.points
            for found in hit.lines
        )


def _is_anywhere(hit: Hit) -> bool:
    named = [name for name, weight in hit.signature.points.items() if weight > 0]
    return all(causes.cause(name).group in ANYWHERE for name in named)


def raised(structure: LogStructure) -> str:
    """Return "PACKAGE raised TYPE (MESSAGE)", or "" if the log has no exception."""
    error = structure.error
    if error is None or not error.kind:
        return ""
    what = f"{error.kind} ({short(error.message)})" if error.message else error.kind
    return f"{structure.python_owner or error.package or USER} raised {what}"


def short(text: str, longest: int = _LONGEST) -> str:
    """Return ``text``, cut to at most ``longest`` characters."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
