"""Shell commands that a report tells its reader to run."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

from rocmprobe.model.results import Configuration, Results


def exec_command(results: Results, configuration: Configuration) -> str:
    """Return the command that runs a program under ``configuration``."""
    recommended = results.recommended == configuration.setting
    setting = "" if recommended else f"--setting {shlex.quote(configuration.setting or '')} "
    profile = f"{simulated_option(results)}--profile {results_place(results)}"
    return f"rocmprobe exec {profile} {setting}-- python train.py"


def env_command(results: Results) -> str:
    """Return the shell line that sets the variables of the recommended configuration."""
    return f'eval "$(rocmprobe env {simulated_option(results)}{results_place(results)})"'


def simulated_option(results: Results) -> str:
    """Return the option with which a command accepts simulated results, or "" for a real run."""
    return "--simulated " if results.simulated else ""


def results_place(results: Results) -> str:
    """Return the quoted path of the run's folder, or of the results file if the folder is unknown."""
    path = PurePosixPath(results.relative_path)
    return shlex.quote(str(path.parent if path.parent.name else path))
