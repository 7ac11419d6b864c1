"""Reader that turns a results.json into rows of the table.

For speed, only the needed keys are decoded and checked.
"""

from __future__ import annotations

import collections.abc
import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Optional, Union, cast, get_origin, get_type_hints

import msgspec

from rocmprobe.collection.identity import (
    Chip,
    Facts,
    MachineIdentity,
    Question,
    SoftwareStack,
    System,
    chip_of,
    gpu_of,
    machine_of,
    short,
    system_of,
    text,
    word,
)
from rocmprobe.collection.sources import Refused
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model import results
from rocmprobe.model.changes import Expected
from rocmprobe.model.results import (
    SCHEMA_VERSION,
    Configuration,
    DeviceAnswer,
    Fact,
    Outcome,
    Recommendation,
    Results,
)
from rocmprobe.model.results_file import to_json
from rocmprobe.model.states import STATES, rank
from rocmprobe.model.telemetry import QUANTITIES
from rocmprobe.text.plain_text import one_line

_MOST_FACTS = 2000
_DEEPEST_FACT = 3
#: Facts left out of comparisons: facts about the moment (e.g. temperatures), a single device, or a path.
_LEFT_OUT = re.compile(
    r"memory\.available_bytes|memory\.swap_bytes|dmesg\.|simulation\.|capi\.mapped|miopen\.(?:user_db|kernel_cache)"
    r"|rocminfo\.agents|access\.nodes|torch\.path|torch\.loader|rocm\.loader|rocm\.libraries|torch\.libraries"
)
_OF_A_GPU = frozenset(
    {*QUANTITIES, "pcie_link", "address", "uuid", "order", "index", "native_isa", "effective_isa", "pci_id",
     "revision", "vendor", "name", "vram_used_bytes", "busy_percent"}
)  # fmt: skip
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")


class Joined(Refused):
    """Raised for a file that joins the runs of several Python environments."""


class Simulated(Refused):
    """Raised for results of a simulated machine."""


def _part(kind: type, *names: str, **types: Any) -> Any:
    """Return a struct type with only those fields of ``kind`` that are in ``names``.

    ``types`` adds or overrides fields.
    """
    hints = {**get_type_hints(kind), **types}
    fields = [(name, hints[name], _empty(hints[name])) for name in (*names, *types)]
    return msgspec.defstruct(kind.__name__, fields)


def _empty(kind: Any) -> Any:
    made = get_origin(kind) or kind
    if made in (Any, Union):
        return None
    return msgspec.field(default_factory=dict if made is collections.abc.Mapping else made)


def _list(kind: Any) -> Any:
    return list[kind]


def _dict(kind: Any) -> Any:
    return dict[str, kind]


def _optional(kind: Any) -> Any:
    return Optional[kind]


_FACTS = _dict(_part(Fact, "value"))
_ANSWERS = _dict(_part(DeviceAnswer, "setting", "env", verdict=str))
_RECOMMENDATION = _part(
    Recommendation, configuration=_part(Configuration, "setting", "env", "code"),
    verdict=str, per=_ANSWERS, devices=_ANSWERS,
)  # fmt: skip
_OUTCOME = _part(
    Outcome, "id", "device", "driver", "setting", "check", "dtype", "problem", "cause", "solver",
    "native_isa", "effective_isa", state=str, direction=Optional[str],
    expected=_optional(_part(Expected, state=str)),
)  # fmt: skip
_RESULTS = _part(
    Results, "rocmprobe", "started", "partial", "simulated", schema_version=Any,
    outcomes=_optional(_list(_OUTCOME)),
    machine=_part(results.Machine, gpus=_list(_FACTS), facts=_FACTS, variables=_FACTS),
    recommendation=_optional(_RECOMMENDATION),
    options=Any, members=Any,
)  # fmt: skip
_DECODER = msgspec.json.Decoder(_RESULTS)


class TableRow(NamedTuple):
    """The worst outcome of a question over all tested problems. ``asked`` is a hash of the problems."""

    question: Question
    state: str
    cause: str
    solver: str
    problems: int
    asked: str


class TableAdvice(NamedTuple):
    """A run's recommendation for a dtype and a purpose."""

    dtype: str
    purpose: str
    verdict: str
    setting: str
    env: tuple[tuple[str, str], ...]


class Subject(NamedTuple):
    """A tested device of a run. ``facts`` can explain differences between machines."""

    device: str
    chip: Chip
    stack: SoftwareStack
    facts: Mapping[str, str]
    rows: tuple[TableRow, ...]
    advice: tuple[TableAdvice, ...]


class TableRun(NamedTuple):
    """Content of one results.json."""

    sha256: str
    rocmprobe: str
    started: str
    partial: bool
    machine: MachineIdentity
    system: System
    subjects: tuple[Subject, ...]


def run_of(content: bytes, label: str = "", simulated: bool = False) -> TableRun:
    """Return the content of a results.json as rows.

    Raise Joined if the file joins several runs. Raise Simulated for a simulated machine if ``simulated`` is
    False. Raise Refused if the file is invalid.
    """
    try:
        data: Results = _DECODER.decode(content)
    except msgspec.ValidationError as error:
        raise Refused(f"not a results.json of rocmprobe ({one_line(str(error))})") from error
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Refused(f"not JSON ({one_line(str(error))})") from error
    # Only a file that joins several runs has members.
    if getattr(data, "members", None) is not None:
        raise Joined("combines several runs; name the folder with the results.json of each run")
    if data.outcomes is None or data.schema_version is None:
        raise Refused("not a results.json of rocmprobe (it has no schema_version and outcomes)")
    if type(data.schema_version) is not int or data.schema_version != SCHEMA_VERSION:
        version = one_line(str(data.schema_version), 20)
        raise Refused(f"schema_version is {version}, this rocmprobe reads {SCHEMA_VERSION}")
    if data.simulated is not None and not simulated:
        raise Simulated(
            f"of the simulated machine {one_line(data.simulated, 60)}; add --simulated to read it"
        )
    if not data.outcomes:
        raise Refused("no outcome in it")
    started = data.started.strip()
    system = system_of(_gpus(data), data.machine.facts)
    return TableRun(
        hashlib.sha256(content).hexdigest(),
        text(data.rocmprobe, 40),
        started if _DATE.fullmatch(started) else "",
        data.partial,
        machine_of(system, text(label, 80), text(data.simulated or "", 60)),
        system,
        tuple(_subjects(data)),
    )


class Tested(NamedTuple):
    """The machine of a run, with the GPU facts of each tested device."""

    facts: Facts
    gpus: Mapping[str, Facts]
    system: System


def tested(whole: Results) -> Tested:
    """Return the machine and the tested devices of a run."""
    data: Results = msgspec.convert(to_json(whole), _RESULTS)
    gpus = {}
    for device, target in _targets(data).items():
        isas = (each.native_isa for each in whole.outcomes if each.device == device)
        gpus[device] = gpu_of(_gpus(data), device, next(filter(None, isas), None), target)
    return Tested(data.machine.facts, gpus, system_of(_gpus(data), data.machine.facts))


def _targets(data: Results) -> dict[str, Mapping[str, Any]]:
    options: Any = data.options
    targets = options.get("targets") if isinstance(options, dict) else None
    rows = targets if isinstance(targets, list) else []
    return {str(each.get("device")): each for each in rows if isinstance(each, dict)}


def _gpus(data: Results) -> list[Facts]:
    return cast("list[Facts]", data.machine.gpus)


def _subjects(data: Results) -> Iterator[Subject]:
    asked: dict[str, list[Outcome]] = {}
    for outcome in data.outcomes or ():
        asked.setdefault(outcome.device, []).append(outcome)
    facts, targets = data.machine.facts, _targets(data)
    flat = dict(_flat(facts, data.machine.variables))
    for device, outcomes in asked.items():
        isa = outcomes[0].native_isa
        gpu = gpu_of(_gpus(data), device, isa, targets.get(device))
        own = {f"gpu.{key}": short(fact.value) for key, fact in gpu.items() if key not in _OF_A_GPU}
        kept = {**flat, **{key: value for key, value in own.items() if value}}
        yield Subject(
            text(device, 40),
            chip_of(gpu, device, isa, facts),
            SoftwareStack(
                word(facts, "torch.version"),
                word(facts, "rocm.version"),
                word(facts, "miopen.version"),
                word(data.machine.variables, OVERRIDE), text(data.simulated or "", 60),
            ),
            {**kept, "rocmprobe": text(data.rocmprobe, 40)},
            tuple(_rows(outcomes)),
            tuple(_advice(data.recommendation, device, len(asked) > 1)),
        )  # fmt: skip


def _rows(outcomes: list[Outcome]) -> Iterator[TableRow]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    for each in outcomes:
        state = each.state
        if state in ("xfail", "xpass") and each.expected is not None and each.expected.state:
            # Use the observed state, because expected failures differ between versions of rocmprobe.
            state = each.expected.state
        if state not in STATES:
            continue
        check = each.check or _check_in(each.id)
        key = (each.setting, each.driver, check, each.dtype, each.direction or "")
        known = found.get(key)
        if known is None:
            found[key] = [state, each.cause, each.solver, [each.problem or ""]]
            continue
        known[3].append(each.problem or "")
        if rank(state, each.cause) < rank(*known[:2]):
            known[:3] = state, each.cause, each.solver
    for key, (state, cause, solver, problems) in found.items():
        yield TableRow(
            _question(*key), state, text(cause or "", 60),
            text(solver or "", 60), len(problems), _hash(*sorted(problems)),
        )  # fmt: skip


@lru_cache(maxsize=4096)
def _question(*parts: str) -> Question:
    return Question._make(text(part, 60) for part in parts)


@lru_cache(maxsize=4096)
def _hash(*problems: str) -> str:
    return hashlib.sha256("\n".join(problems).encode("utf-8", "replace")).hexdigest()[:12]


def _check_in(identity: str) -> str:
    parts = identity.split("/")
    return parts[3] if len(parts) > 3 else ""


def _advice(recommended: Optional[Recommendation], device: str, several: bool) -> Iterator[TableAdvice]:
    if recommended is None:
        return
    own = recommended.devices.get(device)
    if own is not None:
        yield _advised("", "", own.verdict, own.setting, own.env)
        return
    if several and device == "cpu":
        # If the run also tested a GPU, the recommendation is for the GPU.
        return
    configuration = recommended.configuration
    yield _advised("", "", recommended.verdict, configuration.setting, configuration.env)
    per: Any = recommended.per
    for name, answer in per.items():
        dtype, _, purpose = name.partition("/")
        yield _advised(dtype, purpose, answer.verdict, answer.setting, answer.env)


def _advised(
    dtype: str, purpose: str, verdict: str, setting: Optional[str], env: Mapping[str, str]
) -> TableAdvice:
    pairs = ((text(name, 80), text(value, 80)) for name, value in list(env.items())[:40])
    return TableAdvice(
        text(dtype, 40),
        text(purpose, 40),
        text(verdict, 40),
        text(setting or "", 60),
        tuple(sorted(pairs)),
    )


def _flat(facts: Facts, variables: Facts) -> Iterator[tuple[str, str]]:
    left = _MOST_FACTS
    for name, fact in facts.items():
        if _LEFT_OUT.match(name):
            continue
        for leaf, value in _leaves(name, fact.value, _DEEPEST_FACT):
            left -= 1
            if left < 0:
                return
            if value:
                yield text(leaf, 100), value
    for name, fact in list(variables.items())[:500]:
        yield text(f"variables.{name}", 100), short(fact.value) or "(set)"


def _leaves(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield name, short(value)
    elif depth:
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner, depth - 1)
