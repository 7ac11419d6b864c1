"""Finding about convolutions in the vendor library's naive kernels."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import quoted
from rocmprobe.judge.blame import search_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding
from rocmprobe.text.readable import count


def naive_kernels(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if convolutions under ``default`` ran in naive kernels."""
    slow = [outcome for outcome in run.outcomes if outcome.state == "slow" and outcome.setting == "default"]
    if slow:
        title = f"{run.library} chose its naive kernels in {count(len(slow), 'case')}"
        advice = "They can be the fastest for small problems. Compare the measured times of the alternatives."
        yield Finding(
            "fallback-solver", "info", "slow-no-tuned-kernels", search_layer(run), title, quoted(slow), advice
        )
