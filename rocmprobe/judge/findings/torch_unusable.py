"""Finding about a torch that cannot be imported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rocmprobe.judge.assessment import failed
from rocmprobe.judge.blame import excluded, failure
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding


def torch_unusable(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if every failure is a failed import of torch."""
    broken = failed(run.outcomes)
    if broken and all(outcome.failure == "torch-unusable" for outcome in broken):
        title = "torch cannot be imported"
        advice = "Fix this first: nothing was tested. Fix what the message names, or reinstall torch."
        found = failure(run, "torch-unusable", "error", title, broken, advice, "torch-build")
        yield replace(found, evidence=(*found.evidence, *excluded(run, broken)))
