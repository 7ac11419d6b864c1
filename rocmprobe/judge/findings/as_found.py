"""Findings about differences between the user's own environment and a clean one."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import (
    AS_FOUND,
    case_key,
    failed,
    quoted,
)
from rocmprobe.judge.blame import blamed
from rocmprobe.judge.evidence import Evidence
from rocmprobe.model.results import Finding, Outcome


def as_found(run: Evidence) -> Iterator[Finding]:
    broken = _failed_alone(run, AS_FOUND, "default")
    cured = _failed_alone(run, "default", AS_FOUND)
    if cured:
        cause, layer = blamed(run, cured)
        yield Finding(
            "only-as-found",
            "warning",
            cause,
            layer,
            f"{len(cured)} test(s) pass only in your own environment and fail in a clean one",
            quoted(cured),
            "They pass because of a variable that `rocmprobe detect` lists, or because of entries in the "
            "library's databases and caches (MIOpen: ~/.config/miopen and ~/.cache/miopen). Keep a copy of "
            "both: the tests fail without them, or after an update of the library.",
        )
    if broken:
        cause, layer = blamed(run, broken, "user-env")
        yield Finding(
            AS_FOUND,
            "error",
            cause,
            layer,
            f"{len(broken)} test(s) fail in your own environment and pass in a clean one",
            quoted(broken),
            "Move the library's databases and caches away (MIOpen: `mv ~/.config/miopen "
            "~/.config/miopen.old; mv ~/.cache/miopen ~/.cache/miopen.old`), and unset the variables that "
            "`rocmprobe detect` lists. Until then `rocmprobe exec` gives programs clean databases.",
        )


def _failed_alone(run: Evidence, setting: str, other: str) -> tuple[Outcome, ...]:
    passed = {case_key(each) for each in run.outcomes if each.setting == other and each.works}
    return tuple(
        each for each in failed(run.outcomes) if each.setting == setting and case_key(each) in passed
    )
