"""Finding about a torch that cannot be imported."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import (
    failed,
    quoted,
)
from rocmprobe.judge.blame import blamed, excluded
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding


def torch_unusable(run: Evidence) -> Iterator[Finding]:
    broken = failed(run.outcomes)
    if not broken or any(outcome.cause != "torch-unusable" for outcome in broken):
        return
    cause, layer = blamed(run, broken, "torch-build")
    advice = "Fix this first: nothing was tested. Fix what the message names, or reinstall torch."
    yield Finding(
        "torch-unusable", "error", cause, layer, "torch cannot be imported",
        (*quoted(broken), *excluded(run, broken)), advice,
    )  # fmt: skip
