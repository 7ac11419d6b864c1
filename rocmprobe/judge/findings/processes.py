"""Findings about the processes in which the checks ran."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.blame import rung_layer
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding


def two_copies(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if a process loaded two copies of one library."""
    copies = {
        f"{trial.setting}: {', '.join(paths)}": name
        for trial in run.results.trials
        for name, paths in sorted(trial.mapped.items())
        if len(paths) > 1
    }
    if copies:
        names = ", ".join(sorted(set(copies.values())))
        title = f"Two copies of one library in one process: {names}"
        advice = (
            "Keep one copy: unset LD_LIBRARY_PATH, or remove the ROCm libraries that do not belong to torch."
        )
        yield Finding("two-copies", "warning", "library-path", "user-env", title, tuple(copies)[:5], advice)


def exit_crash(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if processes crashed at exit."""
    crashed = [trial for trial in run.results.trials if trial.exit_crash]
    if crashed:
        title = f"{len(crashed)} process(es) crashed at exit, after all results were recorded"
        evidence = tuple(f"{trial.id}: {trial.exit}" for trial in crashed[:3])
        advice = "The results are valid. Your programs may exit with an error code."
        yield Finding("exit-crash", "info", "unknown", rung_layer(run, "copy"), title, evidence, advice)
