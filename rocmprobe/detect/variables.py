"""Environment variables that change what the GPU stack does."""

from __future__ import annotations

from collections.abc import Mapping

from rocmprobe.knowledge import variables
from rocmprobe.model.results import Fact, Machine


def read_variables(environ: Mapping[str, str]) -> dict[str, Fact]:
    """The variables that matter and are set, by name, sorted.

    Those of the catalogue, and every name that begins or nearly begins as theirs do. A variable whose
    name suggests a secret is left out, whatever it begins with.
    """
    return {name: Fact(environ[name], "environment") for name in sorted(environ) if variables.matters(name)}


def read_labels(found: Mapping[str, Fact], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """``variables.<NAME>`` for each variable ``found``: its label, under the releases given by ``facts``.

    The words are those of ``rocmprobe.knowledge.variables.LABELS``; the source says why and where that was
    read.
    """
    return variables.label_facts(Machine(facts=facts, variables=found))
