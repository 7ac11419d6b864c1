"""Settings that cure failed cases, in words: what a user sets or unsets."""

from __future__ import annotations

from typing import Optional

from rocmprobe.judge.assessment import case_key
from rocmprobe.judge.evidence import Evidence
from rocmprobe.knowledge.settings import title
from rocmprobe.knowledge.stacks import new_caches
from rocmprobe.model.results import Outcome, Setting
from rocmprobe.text.plain_text import assignments, joined, sentence_case


def curing_setting(run: Evidence, broken: tuple[Outcome, ...]) -> Optional[Setting]:
    """Return the first setting, in the order of their table, under which all cases of ``broken`` work.

    Only settings that the search for cures or a check tried on a failing case count.
    """
    questions = {case_key(outcome) for outcome in broken}
    for setting in run.settings:
        if not (setting.by_name or setting.changes_lower_layers) or setting.device == "cpu":
            continue
        again = [outcome for outcome in run.under.get(setting.name, ()) if case_key(outcome) in questions]
        if {case_key(outcome) for outcome in again} == questions and all(each.works for each in again):
            return setting
    return None


def change_words(setting: Setting) -> str:
    """Return the change of ``setting``, e.g. "with A=1 and without B"."""
    parts = []
    if setting.env:
        parts.append(f"with {' '.join(assignments(setting.env))}")
    if setting.unset:
        parts.append(f"without {joined(list(setting.unset))}")
    return joined(parts) or f"with “{title(setting.name)}”"


def advice_of(setting: Setting) -> str:
    """Return advice to apply ``setting``, with its cost."""
    steps = []
    if setting.env:
        steps.append(f"set `{' '.join(assignments(setting.env))}`")
    if setting.unset:
        steps.append("unset " + joined([f"`{name}`" for name in setting.unset]))
    step = joined(steps) or f"use the setting “{title(setting.name)}”"
    # Kernels in the old folders would still have the fault.
    exports = [
        f'`export {name}="$HOME/.cache/{setting.name}/{name.lower()}"`' for name in new_caches(setting.env)
    ]
    caches = f", with new folders for compiled kernels ({joined(exports)})" if exports else ""
    cost = f" {sentence_case(setting.cost)}." if setting.cost else ""
    return (
        f"{sentence_case(step)} before Python starts{caches}. This change was tested with the "
        f"setting {setting.name}.{cost}"
    )
