"""Findings by cause: what each cause means and how to check that it is cured, once for all that share it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from rocmprobe.knowledge.causes import Cause, cause, layers
from rocmprobe.model.results import Finding


@dataclass(frozen=True)
class Caused:
    """Findings of one cause; ``about`` is None for a cause that the vocabulary lacks."""

    name: str
    about: Optional[Cause]
    findings: tuple[Finding, ...]


def by_cause(findings: Iterable[Finding]) -> list[Caused]:
    """In the order of the findings, which is that of their weight."""
    groups: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.cause].append(finding)
    return [Caused(name, _about(name), tuple(same)) for name, same in groups.items()]


def layer_titles() -> dict[str, str]:
    return {layer.name: layer.title for layer in layers()}


def _about(name: str) -> Optional[Cause]:
    try:
        return cause(name)
    except KeyError:
        return None
