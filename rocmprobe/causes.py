"""The closed vocabulary of findings: why something fails (causes), where (layers), and what to do then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from rocmprobe._toml import tomllib

#: What is known of a machine or a log, in words that the ``when`` of an advice may name.
SITUATIONS = frozenset(
    {
        "rdna1", "rdna2", "rdna3", "rdna3.5", "rdna4", "gcn", "vega", "cdna", "apu",
        "override", "no-override", "override-lacks", "override-covers",
        "wheel-holds", "wheel-lacks", "rocm-lists",
        "torch-1", "torch-2", "rocm-4", "rocm-5", "rocm-6", "torch-cpu", "torch-cuda",
        "tensorflow", "jax", "llama", "onnx", "windows", "wsl", "container", "cluster", "find-restricted",
        "segv", "abort", "hang", "exception", "exit-none",
        "miopen", "build", "jit", "kernel-log", "training",
    }
)  # fmt: skip
_NOT = "not-"


@dataclass(frozen=True)
class Layer:
    """A place where something can break; lower ones first in the table."""

    name: str
    title: str


@dataclass(frozen=True)
class Advice:
    """What to do, where all words of ``when`` hold; ``not-WORD`` holds where WORD does not."""

    text: str
    when: tuple[str, ...] = ()

    def holds(self, situations: frozenset[str]) -> bool:
        return all(
            word[len(_NOT) :] not in situations if word.startswith(_NOT) else word in situations
            for word in self.when
        )


@dataclass(frozen=True)
class Cause:
    """A reason, the layer in which it usually sits, and what a user needs to know of it.

    ``verify`` shows that it is cured, ``confirm`` decides for it against others. ``advice`` is in the order
    in which it is considered, and the last one always holds.
    """

    name: str
    layer: str
    title: str
    sentence: str
    source: str
    explanation: str
    verify: str
    confirm: str
    links: tuple[str, ...]
    advice: tuple[Advice, ...]


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    text = resources.files("rocmprobe").joinpath("data/causes.toml").read_text("utf-8")
    return tomllib.loads(text)


@lru_cache(maxsize=1)
def layers() -> tuple[Layer, ...]:
    """Every layer that a finding may name."""
    return tuple(Layer(**row) for row in _tables()["layer"])


@lru_cache(maxsize=1)
def causes() -> tuple[Cause, ...]:
    """Every cause that a finding may name."""
    return tuple(_cause(row) for row in _tables()["cause"])


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, Cause]:
    return {cause.name: cause for cause in causes()}


@lru_cache(maxsize=1)
def decisions() -> Mapping[frozenset[str], str]:
    """The question that tells two look-alikes apart, by their names."""
    return {frozenset(row["between"]): _paragraph(row["ask"]) for row in _tables()["decide"]}


def cause(name: str) -> Cause:
    """The cause of that name.

    Raises KeyError where the vocabulary has none.
    """
    return _by_name()[name]


def advice_for(name: str, situations: frozenset[str]) -> str:
    """What to do about a cause in these situations (of SITUATIONS).

    Raises KeyError where the vocabulary has no such cause.
    """
    return next(each.text for each in cause(name).advice if each.holds(situations))


def question(first: str, second: str) -> str:
    """What to find out to decide between two causes: what tells this pair apart, or what confirms the first.

    Raises KeyError where the vocabulary does not have the first.
    """
    return decisions().get(frozenset({first, second})) or cause(first).confirm


def _cause(row: Mapping[str, Any]) -> Cause:
    texts = {key: _paragraph(value) for key, value in row.items() if isinstance(value, str)}
    advice = tuple(Advice(_paragraph(each["text"]), tuple(each.get("when", ()))) for each in row["advice"])
    return Cause(**texts, links=tuple(row["links"]), advice=advice)


def _paragraph(text: str) -> str:
    return " ".join(text.split())
