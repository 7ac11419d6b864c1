"""Commands that a report recommends, with the folder of the run as its user named it."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

from rocmprobe.model.results import Results


def verify(results: Results) -> str:
    """The command that verifies the recommended configuration."""
    path = PurePosixPath(str(results.options.get("folder", "."))) / "results.json"
    return f"rocmprobe run --verify {shlex.quote(str(path))}"


def resume(results: Results) -> str:
    """What takes up a run that did not come to its end."""
    folder = results.options.get("folder")
    return f"rocmprobe run --resume {shlex.quote(str(folder))}" if folder else "rocmprobe run --resume"
