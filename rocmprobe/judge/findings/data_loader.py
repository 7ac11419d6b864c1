"""Finding about the worker processes of a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import failed
from rocmprobe.judge.blame import failure
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding

_SPAWN = '`multiprocessing_context="spawn", persistent_workers=True`'


def data_loader(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if training fails with forked workers of a DataLoader."""
    broken = failed(run.of("data-loader"))
    if not broken:
        return
    spawned = run.of("data-loader-spawn")
    title = "Training with forked workers of a DataLoader fails after the GPU was used"
    if any(outcome.works for outcome in spawned):
        title += "; it works with spawned workers"
        advice = f"Pass {_SPAWN} to each DataLoader with `num_workers` above 0. This was tested and works."
    elif failed(spawned):
        title += ", and with spawned workers, too"
        advice = "Use `num_workers=0`, which needs no worker processes."
    else:
        advice = f"Try {_SPAWN}, which was not tested here, or `num_workers=0`."
    yield failure(run, "data-loader", "warning", title, broken, advice, "user-env")
