"""Tables of values, which the page and Markdown show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocmprobe.judge.recommendation.verdict import verdict_word
from rocmprobe.model.results import VERDICTS, DeviceAnswer, Fact, Gpu, Machine
from rocmprobe.text import readable as text
from rocmprobe.text.plain_text import assignments


@dataclass(frozen=True)
class Table:
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(rows: Sequence[Mapping[str, Any]], first: Sequence[str]) -> Table:
    """Return a table of ``rows``, which can have any keys."""
    names = list(dict.fromkeys([*first, *(name for row in rows for name in row)]))
    names = [name for name in names if any(_cell(name, row.get(name)) for row in rows)]
    body = tuple(tuple(_cell(name, row.get(name)) for name in names) for row in rows)
    return Table(tuple(name.replace("_", " ") for name in names), body)


def with_device(name: str, device: str, devices: Collection[str]) -> str:
    """Return ``name``, followed by the device if there are several ``devices``."""
    return f"{name} ({device})" if len(devices) > 1 else name


def _cell(name: str, value: Any) -> str:
    if value in (None, ""):
        return ""
    if name == "verdict" and value in VERDICTS:
        return verdict_word(value)
    amount = text.numeric(value)
    if amount is not None and name.endswith("seconds"):
        return text.seconds(amount)
    if amount is not None and name.endswith("bytes"):
        return text.bytes_(amount)
    return text.show(value)


def per_rows(per: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = []
    for key, answer in per.items():
        dtype, _, purpose = key.partition("/")
        rows.append({"dtype": dtype, "purpose": purpose, **answer})
    return table(rows, ("dtype", "purpose", "verdict", "setting"))


def device_rows(devices: Mapping[str, DeviceAnswer]) -> Table:
    """Return a table of the recommendations for several devices."""
    rows = [
        {
            "device": name,
            "GPU": f"{answer.gpu or ''}{', in the processor' if answer.in_processor else ''}".lstrip(", "),
            "verdict": answer.verdict,
            "setting": answer.setting,
            "variables": " ".join(
                [
                    *assignments(answer.env),
                    *(f"unset {variable}" for variable in answer.unset),
                ]
            ),
            "alone": answer.mask,
        }
        for name, answer in devices.items()
    ]
    return table(rows, ("device", "GPU", "verdict", "setting"))


def gpu_facts(gpu: Gpu) -> dict[str, Fact]:
    return {name: fact for name, fact in vars(gpu).items() if fact.value is not None or fact.source}


def other_facts(machine: Machine) -> dict[str, Fact]:
    """Return the machine's facts, except those that ``variable_facts`` includes."""
    own = {f"variables.{name}" for name in machine.variables}
    return {name: fact for name, fact in machine.facts.items() if name not in own}


def variable_facts(machine: Machine) -> dict[str, Fact]:
    """Return the environment variables that are set. ``Fact.source`` is the variable's meaning, if known."""
    found = {}
    for name, fact in machine.variables.items():
        label = machine.facts.get(f"variables.{name}")
        found[name] = Fact(fact.value, f"{label.value}: {label.source}") if label else fact
    return found


def fact_rows(facts: Mapping[str, Fact]) -> list[tuple[str, str, str]]:
    return [(name, text.show(fact.value), fact.source) for name, fact in sorted(facts.items())]
