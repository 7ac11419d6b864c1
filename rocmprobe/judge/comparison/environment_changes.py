"""Differences between the environments of two runs: options, facts about the machine, variables and
settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rocmprobe.model.results import Gpu, Machine, Results, Setting
from rocmprobe.model.telemetry import QUANTITIES

#: Names in ``Results.options`` that decide which cases run, and how.
_ASKED = ("device", "level", "purpose", "driver", "libraries", "settings", "only", "skip", "problems")
#: The name of each difference begins with one of these words, e.g. "options.level". Differences are listed in
#: the order of the words, so that the most likely reasons for changed test results come first.
_PARTS = (
    "rocmprobe", "simulated", "options", "gpus", "library", "variables", "facts", "settings",
)  # fmt: skip
#: Facts that differ between any two runs, such as temperatures. The speed of a PCIe link also
#: differs, because the link slows down while it is idle.
_MOMENT_OF_GPU = frozenset({*QUANTITIES, "pcie_link"})
_MOMENT = ("memory.available_bytes", "dmesg.")
#: Keys of facts to ignore, because they only give the size of the user's databases and caches.
_FILLING = frozenset({"exists", "files", "bytes"})
_OF_A_SETTING = (
    "env", "torch", "vendor_library", "bypass", "inherit_environment", "device", "search", "dtype",
    "channels_last", "solver", "pytorch_layers",
)  # fmt: skip
#: Placeholder for a redacted name. Its hash changes when the machine restarts (docs/reporting-a-bug.md).
_DIGEST = re.compile(r"<([a-z]+)-[0-9a-f]{5}>")

#: Kinds of values that are not compared if only one run has the value, because some runs collect fewer facts.
_MEASURED = ("facts.", "library.")

#: Stands for a value that a run does not have. Null means something else: the run looked for the fact and did
#: not find it.
ABSENT = "(absent)"


@dataclass(frozen=True)
class Difference:
    """One difference between two environments.

    ``name`` is a dotted path, e.g. ``options.level``, ``facts.torch.version`` or
    ``settings.default.env.NAME``. ``before`` and ``after`` are JSON values, or "(absent)" if a run lacks the
    name.
    """

    name: str
    before: Any
    after: Any


def differences(old: Results, new: Results) -> tuple[Difference, ...]:
    """Return the differences between the environments of two runs.

    Leave out facts that always change, such as temperatures. Leave out facts, libraries and settings that
    only one run has.
    """
    tried = {each.name for each in old.settings} & {each.name for each in new.settings}
    before, after = dict(_described(old, tried)), dict(_described(new, tried))
    return tuple(
        Difference(name, before.get(name, ABSENT), after.get(name, ABSENT))
        for name in sorted({**before, **after}, key=_order)
        if before.get(name, ABSENT) != after.get(name, ABSENT)
        and not (name.startswith(_MEASURED) and (name not in before or name not in after))
    )


def _order(name: str) -> tuple[int, str]:
    return _PARTS.index(name.partition(".")[0]), name


def _described(results: Results, settings: Collection[str]) -> Iterator[tuple[str, Any]]:
    yield "rocmprobe", results.rocmprobe
    yield "simulated", results.simulated
    for name in _ASKED:
        if name in results.options:
            yield f"options.{name}", _alike(results.options[name])
    yield from _machine(results.machine)
    for setting in results.settings:
        if setting.name in settings:
            yield from _setting(setting)
    yield from _libraries(results)


def _machine(machine: Machine) -> Iterator[tuple[str, Any]]:
    for number, gpu in enumerate(machine.gpus):
        for name in (field.name for field in fields(Gpu) if field.name not in _MOMENT_OF_GPU):
            yield f"gpus.{number}.{name}", _alike(getattr(gpu, name).value)
    for name, fact in machine.facts.items():
        if not name.startswith(_MOMENT):
            yield from _leaves(f"facts.{name}", fact.value)
    for name, fact in machine.variables.items():
        yield f"variables.{name}", _alike(fact.value)


def _libraries(results: Results) -> Iterator[tuple[str, str]]:
    """Yield (name, versions) of the vendor libraries, with names such as "library.cpu.torch"."""
    places = {setting.name: setting.device for setting in results.settings}
    loaded: dict[str, set[str]] = {}
    for trial in results.trials:
        if trial.library:
            # Under the setting cpu, the library runs on the CPU, even if the run tests a GPU.
            place = places.get(trial.setting) or trial.device
            loaded.setdefault(f"library.{place}.{trial.driver}", set()).add(trial.library)
    for name, versions in loaded.items():
        yield name, ", ".join(sorted(versions))


def _setting(setting: Setting) -> Iterator[tuple[str, Any]]:
    data = asdict(setting)
    for name in _OF_A_SETTING:
        yield from _leaves(f"settings.{setting.name}.{name}", data[name])


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield name, _alike(value)
        return
    for key in value:
        if key not in _FILLING:
            yield from _leaves(f"{name}.{key}", value[key])


def _alike(value: Any) -> Any:
    if isinstance(value, str):
        return _DIGEST.sub(r"<\1>", value)
    if isinstance(value, Mapping):
        return {key: _alike(item) for key, item in value.items()}
    return [_alike(item) for item in value] if isinstance(value, Sequence) else value
