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
    """Yield a finding for each variable that is unknown, rejected or without effect."""
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
        title = f"{name} {what}"
        evidence = (f"{name}={machine.variables[name].value}", fact.source)
        advice = f"Did you mean {label.nearest}?" if verdict == UNKNOWN and label.nearest else "Unset it."
        severity = "error" if fatal else severity
        cause = "miopen-env-misparse" if misread else "override-not-effective" if fatal else "benign-warning"
        yield Finding(f"variable-{name}", severity, cause, "user-env", title, evidence, advice)
