"""Finding about memory use above the prediction."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import quoted
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding


def memory(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if convolutions used more memory than predicted."""
    beyond = tuple(
        outcome for outcome in run.outcomes if (outcome.check, outcome.state) == ("memory", "wrong")
    )
    if beyond:
        title = f"{len(beyond)} memory check(s) used more memory than predicted"
        advice = "Results are correct. Plan with the measured amounts of memory."
        yield Finding("memory", "info", "unknown", "rocmprobe", title, quoted(beyond), advice)
