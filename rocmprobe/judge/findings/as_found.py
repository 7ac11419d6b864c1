"""Findings about differences between the user's own environment and a clean one."""

from __future__ import annotations

from collections.abc import Iterator

from rocmprobe.judge.assessment import AS_FOUND, case_key, failed
from rocmprobe.judge.blame import failure
from rocmprobe.judge.evidence import Evidence
from rocmprobe.judge.findings.forced_search import searches
from rocmprobe.knowledge.environment import removed
from rocmprobe.model.results import Finding, Outcome
from rocmprobe.text.readable import count


def only_as_found(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if tests pass only in the user's own environment."""
    if cured := _failed_alone(run, "default", AS_FOUND):
        title = f"{count(len(cured), 'case')} passed only in your own environment, and failed in a clean one"
        advice = (
            "They pass because of a variable that `rocmprobe detect` lists, or because of entries in the "
            "library's databases and caches (MIOpen: ~/.config/miopen and ~/.cache/miopen). Keep a copy of "
            "both: the tests fail without them, or after an update of the library."
        )
        yield failure(run, "only-as-found", "warning", title, cured, advice)


def as_found(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if tests fail only in the user's own environment. Leave out forced searches."""
    # A search that a variable forces is no fault of the databases, which then keep its results.
    searching = {found.id for found, _ in searches(run)}
    broken = tuple(each for each in _failed_alone(run, AS_FOUND, "default") if each.id not in searching)
    if broken:
        title = f"{count(len(broken), 'case')} failed in your own environment, and passed in a clean one"
        default = run.results.setting("default")
        gone = removed(default, run.results.machine.environment) if default else ()
        first = f"Run `unset {' '.join(gone)}`. If the tests still fail, move" if gone else "Move"
        advice = (
            f"{first} the library's databases and caches away (MIOpen: `mv ~/.config/miopen "
            "~/.config/miopen.old; mv ~/.cache/miopen ~/.cache/miopen.old`). "
            "Until then `rocmprobe exec` gives programs clean databases."
        )
        yield failure(run, AS_FOUND, "error", title, broken, advice, "user-env")


def _failed_alone(run: Evidence, setting: str, other: str) -> tuple[Outcome, ...]:
    passed = {case_key(each) for each in run.under.get(other, ()) if each.works}
    return failed(each for each in run.under.get(setting, ()) if case_key(each) in passed)
