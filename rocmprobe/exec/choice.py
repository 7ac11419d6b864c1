"""Choice of the results and the configuration for a program."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rocmprobe.judge.recommendation.configuration import of_setting
from rocmprobe.model.results import UNJUDGED, BadInput, Configuration, Results
from rocmprobe.model.results_file import RECOMMENDED, read_results
from rocmprobe.text.plain_text import one_line, quoted


class NoRun(BadInput):
    """Raised if no results were given, and this machine has no complete run."""


@dataclass(frozen=True)
class ChosenConfiguration:
    """Results and one of their configurations.

    ``configuration.setting`` is None if the results recommend no configuration.
    """

    path: Path
    results: Results
    configuration: Configuration

    @property
    def why_none(self) -> str:
        """Reason why the results recommend no configuration."""
        recommended = self.results.recommendation
        if recommended and recommended.verdict in UNJUDGED:
            return one_line(recommended.sentence, 200).rstrip(".")
        return "no safe configuration was found"


def choose(path: Optional[Path], setting: str = "", simulated: bool = False) -> ChosenConfiguration:
    """Return the configuration of ``setting``, or the recommended configuration if ``setting`` is empty.

    If ``path`` is None, use the last complete run on this machine.

    Raises:
        NoRun: if there is no complete run.
        BadInput: if the results cannot be read, lack the setting, or are from a simulated machine while
            ``simulated`` is False.
    """
    if path is None and not RECOMMENDED.exists():
        raise NoRun(
            f"{RECOMMENDED}: there is no complete run of this machine (without --only and --skip); "
            "start `rocmprobe run`, or name other results"
        )
    path = path or RECOMMENDED
    results = read_results(path)
    if results.simulated and not simulated:
        raise BadInput(
            f"{path}: these results are of the simulated machine {quoted(results.simulated)}, not of this "
            "one; start `rocmprobe run`, or add --simulated to use them anyway"
        )
    recommended = results.recommendation.configuration if results.recommendation else Configuration()
    return ChosenConfiguration(path, results, _named(path, results, setting) if setting else recommended)


def _named(path: Path, results: Results, name: str) -> Configuration:
    settings = {each.name: each for each in results.settings if not each.is_incomplete}
    if name in settings:
        return of_setting(results, settings[name])
    nearest = difflib.get_close_matches(name, settings, 1, 0) or ["default"]
    raise BadInput(
        f"--setting: the run of {path} had no setting {quoted(name)}; similar: {quoted(nearest[0])}"
    )
