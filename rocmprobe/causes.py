"""The closed vocabulary of findings: why something fails (causes) and where (layers)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from rocmprobe._toml import tomllib


@dataclass(frozen=True)
class Layer:
    """A place where something can break; lower ones first in the table."""

    name: str
    title: str


@dataclass(frozen=True)
class Cause:
    """A reason, the layer in which it usually sits, and where it is described or was seen."""

    name: str
    layer: str
    title: str
    sentence: str
    source: str


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    text = resources.files("rocmprobe").joinpath("data/causes.toml").read_text("utf-8")
    return tomllib.loads(text)


def layers() -> tuple[Layer, ...]:
    """Every layer that a finding may name."""
    return tuple(Layer(**row) for row in _tables()["layer"])


def causes() -> tuple[Cause, ...]:
    """Every cause that a finding may name."""
    return tuple(Cause(**row) for row in _tables()["cause"])
