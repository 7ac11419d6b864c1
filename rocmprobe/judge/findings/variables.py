"""Findings about environment variables that do not work as intended."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.variables import FOLKLORE, NOT_HERE, REJECTED, UNKNOWN, find, labels
from rocmprobe.model.results import Fact, Finding

#: (severity, text) for an environment variable that does not work as intended, keyed by its label.
_IDLE = {
    UNKNOWN: ("warning", "is unknown to ROCm, MIOpen and torch"),
    REJECTED: ("warning", "has a value that is not accepted"),
    FOLKLORE: ("info", "exists in no release, so it has no effect"),
    NOT_HERE: ("info", "does not exist in the installed release"),
}


def variables(run: Evidence) -> Iterator[Finding]:
    machine = run.machine
    for name, label in labels(machine).items():
        # Prefer the label that detection stored as a fact. If the results are redacted, ``labels`` judged a
        # placeholder instead of the variable's value.
        fact = machine.facts.get(f"variables.{name}", Fact(label.verdict, label.why))
        verdict = str(fact.value).partition(", ")[0]
        if verdict not in _IDLE:
            continue
        severity, what = _IDLE[verdict]
        row = find(name)
        fatal = verdict == REJECTED and name.startswith(OVERRIDE)
        misread = verdict == REJECTED and row is not None and row.of == "miopen"
        yield Finding(
            f"variable-{name}",
            "error" if fatal else severity,
            "miopen-env-misparse" if misread else "override-not-effective" if fatal else "benign-warning",
            "user-env",
            f"{name} {what}",
            (f"{name}={machine.variables[name].value}", fact.source),
            f"Did you mean {label.nearest}?" if verdict == UNKNOWN and label.nearest else "Unset it.",
        )
