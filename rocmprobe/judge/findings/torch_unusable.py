"""Finding about a torch that cannot be imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from rocmprobe.judge.assessment import failed
from rocmprobe.judge.blame import excluded, failure
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.facts import FactName
from rocmprobe.model.results import Finding, Outcome
from rocmprobe.text import readable

#: Messages of a process that reached a limit of the machine, keyed by the fact with the limit.
_MESSAGES: dict[FactName, re.Pattern[str]] = {
    "limits.address_space_bytes": re.compile(
        r"failed to map segment|annot allocate memory|MemoryError|bad_alloc|out of memory", re.IGNORECASE
    ),
    "limits.files": re.compile("too many open files", re.IGNORECASE),
    "limits.processes": re.compile(
        r"resource temporarily unavailable|start new thread|thread creation failed", re.IGNORECASE
    ),
}
#: The limit in words, and how to raise the limit.
_LIMITS: dict[FactName, tuple[str, str]] = {
    "limits.address_space_bytes": ("`ulimit -v` allows {} of address space", "`ulimit -v unlimited`"),
    "limits.files": ("`ulimit -n` allows {} open files", "`ulimit -n 1024`"),
    "limits.processes": ("`ulimit -u` allows {} processes and threads", "`ulimit -u 4096`"),
    "memory.limit_bytes": (
        "the control group allows {} of memory",
        "for example `docker run --memory 16g`, or MemoryMax of the service",
    ),
}


def failed_imports(run: Evidence) -> tuple[Outcome, ...]:
    """Return the failures if every check with torch failed in the import of torch, else ()."""
    tested = [outcome for outcome in run.outcomes if outcome.rung != "direct"]
    broken = failed(tested)
    worked = any(outcome.works for outcome in tested)
    return broken if not worked and all(outcome.in_import for outcome in broken) else ()


def import_title(run: Evidence, broken: tuple[Outcome, ...]) -> str:
    """Return how the import of torch failed, or the limit of the machine that it reached."""
    if limit := _limit(run, broken):
        words, value = _LIMITS[limit][0], run.machine.value(limit)
        shown = readable.bytes_(value) if limit.endswith("_bytes") else str(value)
        return f"torch cannot be imported: {words.format(shown)}"
    if broken[0].state == "hang":
        return "The import of torch hangs"
    if broken[0].state == "crash":
        return f"The import of torch ends with {broken[0].ending.get('status', 'a crash')}"
    return "torch cannot be imported"


def _limit(run: Evidence, broken: tuple[Outcome, ...]) -> Optional[FactName]:
    """Return the fact with the limit of the machine that the failed imports reached, or None."""
    if broken[0].failure == "oom-kill":
        return "memory.limit_bytes" if run.machine.value("memory.limit_bytes") else None
    text = "\n".join(line for outcome in broken for line in outcome.evidence)
    reached = (fact for fact, message in _MESSAGES.items() if message.search(text))
    return next((fact for fact in reached if run.machine.value(fact) is not None), None)


def torch_unusable(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if torch was never imported."""
    broken = failed_imports(run)
    if not broken:
        return
    limit = _limit(run, broken)
    if limit:
        remedy = f"Raise the limit: {_LIMITS[limit][1]}."
    elif broken[0].failure == "torch-unusable":
        remedy = "Fix what the message names, or reinstall torch."
    else:
        remedy = (
            "Reinstall torch (`rocmprobe install`). If the import still fails, "
            "`python -X faulthandler -c 'import torch'` shows where."
        )
    advice = f"Fix this first: nothing was tested. {remedy}"
    found = failure(run, "torch-unusable", "error", import_title(run, broken), broken, advice, "torch-build")
    if limit:
        yield replace(found, cause="unknown", layer="oom")
    else:
        yield replace(found, evidence=(*found.evidence, *excluded(run, broken)))
