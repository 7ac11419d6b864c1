"""Signs that a journal is that of a simulated machine, whatever its marks say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from rocmprobe.model.states import works

#: What the facts of a simulated machine say of their source, and what its failures print of where they
#: happen.
_SOURCES = ("simulated machine", "this machine, which stands in for the GPU")
_CODE = ("rocmprobe/simulate/", "rocmprobe.simulate")
_RUNTIME = "libamdhip64"


def sign_of_simulation(records: Sequence[Mapping[str, Any]]) -> Optional[str]:
    """The first sign that the ``records`` of a journal come from a simulated machine; None where there is
    none.

    A process that gave answers on an AMD GPU has the HIP runtime mapped. In a simulated one PyTorch for a
    processor computes, so there is no such file.
    """
    return next(_signs(records), None)


def _signs(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    run = records[0]
    if run.get("simulation") or run["options"].get("simulate"):
        yield "the journal says that the machine was simulated"
    facts = json.dumps([run["machine"], run["targets"]])
    if any(f'"source": "{source}' in facts for source in _SOURCES) or '"simulation.torch"' in facts:
        yield "facts of the machine are those of a simulated one"
    for record in records:
        if record["record"] in ("outcome", "trial"):
            text = json.dumps(record)
            if any(code in text for code in _CODE):
                yield f"{_named(record)} failed in the code that simulates machines"
    yield from _answers_without_runtime(records)


def _answers_without_runtime(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    run = records[0]
    amd = {each["device"] for each in run["targets"] if each.get("backend") == "miopen"}
    on_processor = {
        row["name"] for rows in run["settings"].values() for row in rows if row.get("device") == "cpu"
    }
    trials = {each["trial"]["id"]: each["trial"] for each in records if each["record"] == "trial"}
    for record in records:
        if record["record"] != "outcome":
            continue
        outcome = record["outcome"]
        if outcome["device"] not in amd or outcome["setting"] in on_processor:
            continue
        trial = trials.get(outcome.get("trial", ""))
        if trial and works(outcome["state"]) and not (trial.get("mapped") or {}).get(_RUNTIME):
            yield f"{outcome['id']} was answered on an AMD GPU by a process without {_RUNTIME}"


def _named(record: Mapping[str, Any]) -> str:
    return str(record[record["record"]]["id"])
