"""The data tables as terminal tables, for ``rocmprobe list``."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.table import Table

from rocmprobe import gpus
from rocmprobe.cases import CHECKS
from rocmprobe.causes import causes
from rocmprobe.machines import load_machine, machine_names
from rocmprobe.problems import LEVELS, PURPOSES, problems
from rocmprobe.settings import all_settings


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    return table


def _settings() -> Table:
    rows = (
        (setting.name, ", ".join(backends), chosen, _switches(setting.env, setting.torch), setting.reason)
        for setting, backends, chosen in all_settings()
    )
    return _table(("setting", "backends", "set", "switches", "reason"), rows)


def _switches(*groups: object) -> str:
    return "\n".join(f"{name}={value}" for group in groups for name, value in dict(group).items())  # type: ignore[call-overload]


def _problems() -> Table:
    rows = []
    for purpose in PURPOSES:
        seen: set[str] = set()
        for level in LEVELS:
            texts = [problem.text for problem in problems(level, purpose)]
            rows += [(purpose, level, text) for text in texts if text not in seen]
            seen |= set(texts)
    return _table(("asked for", "from level", "problem"), rows)


def _checks() -> Table:
    return _table(
        ("check", "rung", "question"), ((name, check.rung, check.question) for name, check in CHECKS.items())
    )


def _machines() -> Table:
    return _table(("machine", "what it is"), ((name, load_machine(name).summary) for name in machine_names()))


def _causes() -> Table:
    return _table(("cause", "layer", "what it means"), ((row.name, row.layer, row.title) for row in causes()))


def _gpus() -> Table:
    rows = (
        (
            target.gfx,
            target.family,
            target.chip,
            target.wheels or "never",
            "\n".join(sorted(set(target.names.values()))),
        )
        for target in gpus.all_targets()
    )
    return _table(("target", "family", "chip", "in official wheels", "products"), rows)


TABLES: dict[str, Callable[[], Table]] = {
    "settings": _settings, "problems": _problems, "checks": _checks, "machines": _machines, "gpus": _gpus,
    "causes": _causes,
}  # fmt: skip
