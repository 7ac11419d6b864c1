"""Choice of the results and the configuration for a program."""

from __future__ import annotations

import contextlib
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rocmprobe.judge.assessment import library
from rocmprobe.judge.recommendation.configuration import of_setting
from rocmprobe.knowledge.settings import LIBRARIES, named, with_cures
from rocmprobe.model.results import UNJUDGED, BadInput, Configuration, Results, Setting
from rocmprobe.model.results_file import RECOMMENDED, read_results
from rocmprobe.text.plain_text import one_line, quoted


class NoRun(BadInput):
    """Raised if no results were given, and this machine has no complete run."""


@dataclass(frozen=True)
class ChosenConfiguration:
    """Results, one of their configurations, and its setting.

    ``configuration.setting`` is None if the results recommend no configuration. ``setting`` is None if the
    results do not describe the setting.
    """

    path: Path
    results: Results
    configuration: Configuration
    setting: Optional[Setting]

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
            f"{RECOMMENDED}: there is no complete run of this machine (without --only, --skip and "
            "--simulate); start `rocmprobe run`, or name other results"
        )
    path = path or RECOMMENDED
    results = read_results(path)
    if results.simulated and not simulated:
        raise BadInput(
            f"{path}: these results are of the simulated machine {quoted(results.simulated)}, not of this "
            "one; start `rocmprobe run`, or add --simulated to use them anyway"
        )
    if setting:
        named = _named(path, results, setting)
        return ChosenConfiguration(path, results, of_setting(results, named), named)
    recommended = results.recommendation.configuration if results.recommendation else Configuration()
    return ChosenConfiguration(path, results, recommended, results.setting(recommended.setting))


def _named(path: Path, results: Results, name: str) -> Setting:
    """Return the setting ``name`` of the run, or several settings joined with "+".

    Settings to join can also be settings that the run did not test.
    """
    settings = {each.name: each for each in results.settings if not each.is_incomplete}
    if name in settings:
        return settings[name]
    if "+" in name:
        rows = with_cures(_backend(results), "all", results.machine.value("torch.version"))
        table = {each.name: each for each in rows if not each.is_incomplete}
        with contextlib.suppress(KeyError):
            return named({**table, **settings}, name)
    nearest = difflib.get_close_matches(name, settings, 1, 0) or ["default"]
    raise BadInput(
        f"--setting: the run of {path} had no setting {quoted(name)}; similar: {quoted(nearest[0])}"
    )


def _backend(results: Results) -> str:
    return next(name for name, words in LIBRARIES.items() if words == library(results))
