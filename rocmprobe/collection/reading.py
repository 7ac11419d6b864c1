"""One results.json as rows of the table: who was asked, what, and what came out.

Only what the table needs is decoded (msgspec passes over the rest), so that a file costs a fraction of what
reading all of it does. A file is taken if that part of it has the right types; whatever else is in it.
"""

from __future__ import annotations

import collections.abc
import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Optional, Union, cast, get_origin, get_type_hints

import msgspec

from rocmprobe.checks import CHECKS
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.model import results
from rocmprobe.model.changes import Expected
from rocmprobe.model.problems import DTYPES
from rocmprobe.model.results import (
    DIRECTIONS,
    GPU_IDENTITY,
    SCHEMA_VERSION,
    Configuration,
    DeviceAnswer,
    Fact,
    Outcome,
    Recommendation,
    Results,
)  # fmt: skip
from rocmprobe.model.states import STATES, rank
from rocmprobe.model.telemetry import QUANTITIES
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.redact import redacted_text

_LONGEST = 120
_MOST_FACTS = 2000
#: Of a fact that is a table itself, such as the installed packages.
_DEEPEST_FACT = 3
#: Facts of the moment, of a single device, or of the place in the file system.
_LEFT_OUT = re.compile(
    r"memory\.available_bytes|memory\.swap_bytes|dmesg\.|simulation\.|capi\.mapped|miopen\.(?:user_db|kernel_cache)"
    r"|rocminfo\.agents|access\.nodes|torch\.path|torch\.loader|rocm\.loader|rocm\.libraries|torch\.libraries"
)
_OF_A_GPU = frozenset(
    {*QUANTITIES, "pcie_link", "address", "uuid", "order", "index", "native_isa", "effective_isa", "pci_id",
     "revision", "vendor", "name", "vram_used_bytes", "busy_percent"}
)  # fmt: skip
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")


class NoResults(Exception):
    """Why a file is not in the table, in one line."""


class Joined(NoResults):
    """It names the runs of several Python environments, and holds none itself."""


class Simulated(NoResults):
    """It is of a simulated machine."""


def _part(kind: type, *names: str, **types: Any) -> Any:
    """Return a struct of some fields of a class of the results. msgspec skips the other fields, so that a
    file takes a quarter of the time. ``types`` replace the types of fields. Every field may be missing."""
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
    members=Any,
)  # fmt: skip
_DECODER = msgspec.json.Decoder(_RESULTS)


class Chip(NamedTuple):
    """The silicon: what has to be equal for two machines to be compared."""

    isa: str
    pci_id: str
    revision: str
    name: str


class Stack(NamedTuple):
    """What runs on it; ``override`` is the value of HSA_OVERRIDE_GFX_VERSION, "" where it is not set."""

    torch: str
    rocm: str
    miopen: str
    override: str
    simulated: str


class Machine(NamedTuple):
    """What tells a machine from others; ``label`` is what its submitter calls it.

    ``gpus`` has (native ISA, PCI id, revision) of each, and without a label compute units and bytes of VRAM,
    too. ``kernel`` and ``driver`` are empty where there is a label: an update makes no other machine of it.
    """

    label: str
    gpus: tuple[tuple[str, ...], ...]
    kernel: str
    driver: str
    simulated: str


class System(NamedTuple):
    """The machine as one run found it; ``gpus`` as of ``Machine`` without a label."""

    os: str
    kernel: str
    driver: str
    gpus: tuple[tuple[str, ...], ...]


class Question(NamedTuple):
    """What was asked, whatever the problem; ``caller`` is who called the library, torch or capi."""

    setting: str
    caller: str
    check: str
    dtype: str
    direction: str


#: For each part of a question the words that come first; others follow by the alphabet.
_FIRST: Mapping[str, tuple[str, ...]] = {
    "setting": ("default", "as-found"),
    "caller": ("torch", "capi"),
    "check": tuple(CHECKS),
    "dtype": tuple(DTYPES.values()),
    "direction": DIRECTIONS,
}
_PLACES = {part: {word: place for place, word in enumerate(words)} for part, words in _FIRST.items()}


def word_order(part: str, word: str) -> tuple[int, str]:
    """The place of a word among all of one part of a question, such as a dtype among the dtypes."""
    places = _PLACES[part]
    return places.get(word, len(places)), word


def in_order(question: Question) -> tuple[tuple[int, str], ...]:
    """What sorts questions: ``default`` first, checks as the ladder has them."""
    return tuple(word_order(part, word) for part, word in zip(Question._fields, question))


class Row(NamedTuple):
    """The worst that came out of the problems of one question, and how many of them there were; ``asked`` is
    the same where the problems are: a run that asks more of them may find more."""

    question: Question
    state: str
    cause: str
    solver: str
    problems: int
    asked: str


class Advice(NamedTuple):
    """What a run recommends for a dtype and a purpose; ``setting`` is "" where nothing works."""

    dtype: str
    purpose: str
    verdict: str
    setting: str
    env: tuple[tuple[str, str], ...]


class Subject(NamedTuple):
    """One device of a run; ``facts`` as they are in the results."""

    device: str
    chip: Chip
    stack: Stack
    facts: Mapping[str, str]
    rows: tuple[Row, ...]
    advice: tuple[Advice, ...]


class TableRun(NamedTuple):
    """One results.json. ``started`` is a date in ISO 8601, "" where it has none."""

    sha256: str
    rocmprobe: str
    started: str
    partial: bool
    machine: Machine
    system: System
    subjects: tuple[Subject, ...]


def run_of(content: bytes, label: str = "", simulated: bool = False) -> TableRun:
    """The rows of a results.json. Raises NoResults, of which Simulated is one unless ``simulated``."""
    try:
        data: Results = _DECODER.decode(content)
    except msgspec.ValidationError as error:
        raise NoResults(f"not a results.json of rocmprobe ({one_line(str(error))})") from error
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise NoResults(f"not JSON ({one_line(str(error))})") from error
    # Of results, and of what joins several.
    if getattr(data, "members", None) is not None:
        raise Joined("joins runs that have files of their own; name their folder")
    if data.outcomes is None or data.schema_version is None:
        raise NoResults("not a results.json of rocmprobe (it has no schema_version and outcomes)")
    if type(data.schema_version) is not int or data.schema_version != SCHEMA_VERSION:
        version = one_line(str(data.schema_version), 20)
        raise NoResults(f"schema_version is {version}, this rocmprobe reads {SCHEMA_VERSION}")
    if data.simulated is not None and not simulated:
        raise Simulated(f"of the simulated machine {one_line(data.simulated, 60)}; --simulated takes it")
    if not data.outcomes:
        raise NoResults("no outcome in it")
    started = data.started.strip()
    system = _system(data)
    return TableRun(
        hashlib.sha256(content).hexdigest(),
        _text(data.rocmprobe, 40),
        started if _DATE.fullmatch(started) else "",
        data.partial,
        _machine(system, _text(label, 80), _text(data.simulated or "", 60)),
        system,
        tuple(_subjects(data)),
    )


def _gpus(data: Results) -> list[Mapping[str, Fact]]:
    """Return the GPUs as the file has them, by the names of their facts."""
    return cast("list[Mapping[str, Fact]]", data.machine.gpus)


def _system(data: Results) -> System:
    facts = data.machine.facts
    gpus = tuple(sorted(tuple(_value(gpu, name) for name in GPU_IDENTITY) for gpu in _gpus(data)[:64]))
    driver = _value(facts, "amdgpu.version") or _value(facts, "amdgpu.origin")
    if not gpus:
        gpus = (("", _value(facts, "cpu.name"), "", _value(facts, "cpu.cores"), ""),)
    return System(_value(facts, "os.name"), _clean(_value(facts, "kernel.release")), driver, gpus)


@lru_cache(maxsize=1024)
def _clean(text: str) -> str:
    """A kernel that was built at home may be named after its host."""
    return redacted_text(text)


def _machine(system: System, label: str, simulated: str) -> Machine:
    if label:
        return Machine(label, tuple(gpu[:3] for gpu in system.gpus), "", "", simulated)
    return Machine("", system.gpus, system.kernel, system.driver, simulated)


def _subjects(data: Results) -> Iterator[Subject]:
    asked: dict[str, list[Outcome]] = {}
    for outcome in data.outcomes or ():
        asked.setdefault(outcome.device, []).append(outcome)
    facts = data.machine.facts
    flat = dict(_flat(facts, data.machine.variables))
    for device, outcomes in asked.items():
        gpu = _gpu(_gpus(data), device, outcomes[0])
        own = {f"gpu.{key}": _short(fact.value) for key, fact in gpu.items() if key not in _OF_A_GPU}
        kept = {**flat, **{key: value for key, value in own.items() if value}}
        yield Subject(
            _text(device, 40),
            _chip(gpu, outcomes[0], facts),
            Stack(
                _value(facts, "torch.version"),
                _value(facts, "rocm.version"),
                _value(facts, "miopen.version"),
                _value(data.machine.variables, OVERRIDE), _text(data.simulated or "", 60),
            ),
            {**kept, "rocmprobe": _text(data.rocmprobe, 40)},
            tuple(_rows(outcomes)),
            tuple(_advice(data.recommendation, device, len(asked) > 1)),
        )  # fmt: skip


def _gpu(gpus: list[Mapping[str, Fact]], device: str, outcome: Outcome) -> Mapping[str, Fact]:
    """The GPU that ``device`` names: by torch's number of it, else by its place; none for a CPU."""
    if device == "cpu":
        return {}
    number = device.rpartition(":")[2]
    at = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0
    # capi knows of no NVIDIA; where both are there, the numbers are those of the vendor that was asked.
    known = [gpu for gpu in gpus if gpu.get("index", Fact()).value == at and _fits(gpu, outcome)]
    fitting = [gpu for gpu in gpus if _fits(gpu, outcome)]
    if known:
        return known[0]
    if at < len(fitting):
        return fitting[at]
    return fitting[0] if fitting else {}


def _fits(gpu: Mapping[str, Fact], outcome: Outcome) -> bool:
    return outcome.native_isa is None or gpu.get("native_isa", Fact()).value in (None, outcome.native_isa)


def _chip(gpu: Mapping[str, Fact], outcome: Outcome, facts: Mapping[str, Fact]) -> Chip:
    if not gpu and not outcome.native_isa:
        return Chip("cpu" if outcome.device == "cpu" else "", "", "", _value(facts, "cpu.name"))
    return Chip(
        _text(outcome.native_isa or _value(gpu, "native_isa"), 40),
        _value(gpu, "pci_id"), _value(gpu, "revision"), _value(gpu, "name"),
    )  # fmt: skip


def _rows(outcomes: list[Outcome]) -> Iterator[Row]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    for each in outcomes:
        state = each.state
        if state in ("xfail", "xpass") and each.expected is not None and each.expected.state:
            # What is expected differs between versions; what happened does not.
            state = each.expected.state
        if state not in STATES:
            continue
        check = each.check or _checked(each.id)
        key = (each.setting, each.driver, check, each.dtype, each.direction or "")
        known = found.get(key)
        if known is None:
            found[key] = [state, each.cause, each.solver, [each.problem or ""]]
            continue
        known[3].append(each.problem or "")
        if rank(state, each.cause) < rank(*known[:2]):
            known[:3] = state, each.cause, each.solver
    for key, (state, cause, solver, problems) in found.items():
        yield Row(
            _question(*key), state, _text(cause or "", 60),
            _text(solver or "", 60), len(problems), _asked(*sorted(problems)),
        )  # fmt: skip


@lru_cache(maxsize=4096)
def _question(*parts: str) -> Question:
    return Question._make(_text(part, 60) for part in parts)


@lru_cache(maxsize=4096)
def _asked(*problems: str) -> str:
    return hashlib.sha256("\n".join(problems).encode("utf-8", "replace")).hexdigest()[:12]


def _checked(identity: str) -> str:
    """The check that an id names: `device/driver/setting/check/...`."""
    parts = identity.split("/")
    return parts[3] if len(parts) > 3 else ""


def _advice(recommended: Optional[Recommendation], device: str, several: bool) -> Iterator[Advice]:
    if recommended is None:
        return
    own = recommended.devices.get(device)
    if own is not None:
        yield _advised("", "", own.verdict, own.setting, own.env)
        return
    if several and device == "cpu":
        # The answer of a run that tested a GPU, too, is about the GPU.
        return
    configuration = recommended.configuration
    yield _advised("", "", recommended.verdict, configuration.setting, configuration.env)
    per: Any = recommended.per
    for name, answer in per.items():
        dtype, _, purpose = name.partition("/")
        yield _advised(dtype, purpose, answer.verdict, answer.setting, answer.env)


def _advised(
    dtype: str, purpose: str, verdict: str, setting: Optional[str], env: Mapping[str, str]
) -> Advice:
    pairs = ((_text(name, 80), _text(value, 80)) for name, value in list(env.items())[:40])
    return Advice(
        _text(dtype, 40),
        _text(purpose, 40),
        _text(verdict, 40),
        _text(setting or "", 60),
        tuple(sorted(pairs)),
    )


def _flat(facts: Mapping[str, Fact], variables: Mapping[str, Fact]) -> Iterator[tuple[str, str]]:
    left = _MOST_FACTS
    for name, fact in facts.items():
        if _LEFT_OUT.match(name):
            continue
        for leaf, value in _leaves(name, fact.value, _DEEPEST_FACT):
            left -= 1
            if left < 0:
                return
            if value:
                yield _text(leaf, 100), value
    for name, fact in list(variables.items())[:500]:
        yield _text(f"variables.{name}", 100), _short(fact.value) or "(set)"


def _leaves(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield name, _short(value)
    elif depth:
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner, depth - 1)


def _value(facts: Mapping[str, Fact], name: str) -> str:
    fact = facts.get(name)
    return "" if fact is None else _short(fact.value)


def _short(value: Any) -> str:
    """A fact in one line; "" where it was not learned."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        # Order says nothing in a list of targets or groups, and all of it matters in a comparison.
        words = " ".join(sorted(_short(each) for each in value[:200]))
        if len(words) > _LONGEST:
            digest = hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:8]
            return f"{_text(words, _LONGEST)} ({len(value)} items, digest {digest})"
        return _text(words)
    return _text(str(value) if not isinstance(value, dict) else f"{len(value)} entries")


def _text(value: str, limit: int = _LONGEST) -> str:
    if len(value) <= limit and value.isascii() and value.isprintable() and "  " not in value:
        return value.strip()
    return one_line(value, limit)
