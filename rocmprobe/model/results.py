"""What a run knows: facts, settings, trials, outcomes, findings and the recommendation.

Everything here is a frozen dataclass that mirrors one object of ``results.json`` (schema:
``data/results.schema.json``, described in ``docs/results.md``). No I/O beyond reading and writing
that file, and no torch.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Optional,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from rocmprobe.model import facts as fact_types
from rocmprobe.model.changes import Changes, Expected
from rocmprobe.model.schema import Count, Name, Positive, Rule
from rocmprobe.model.states import RUN_DIED, STATES, State, state_of
from rocmprobe.model.telemetry import DeviceTelemetry
from rocmprobe.text import reading
from rocmprobe.text.plain_text import message, one_line, quoted

_T = TypeVar("_T")

SCHEMA_VERSION = 2
BadInput = reading.BadInput

#: How a process ended that gave no answer.
CRASH_CAUSES = (
    "SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE", "SIGKILL", "SIGTERM", "other-signal",
    "exit", "oom-kill", "killed",
)  # fmt: skip
#: Every cause of an outcome; of a blocked one it may also be "rung:" and the rung it depends on.
CAUSES = (
    *CRASH_CAUSES, "timeout", "miopen-status", "device-error", "out-of-memory", "exception",
    "torch-unusable", "gpu-wedged", "many-hangs", "many-crashes", RUN_DIED, "machine-died",
)  # fmt: skip

#: Names of Python environments.
MEMBER_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,39}", re.ASCII)

#: Marks a field that is written only if it is set.
WHERE_SET: Mapping[str, Any] = {"where set": True}

DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
#: Rungs of the ladder, lowest first; each depends on those before it.
RUNGS = (
    "copy", "elementwise", "gemm", "im2col", "controls", "conv", "batch-norm", "primitives", "train",
    "multi-gpu",
)  # fmt: skip
#: Verdicts of settings under which convolution still goes through the vendor library.
NATIVE = ("native", "native-with-settings")
#: Verdicts of runs that tested too little to recommend a setting, or to say that none works.
UNJUDGED = ("not-judged", "gpu-not-tested")
VERDICTS = ("native", "native-with-settings", "vendor-off", "bypass", "cpu", "none", *UNJUDGED)
SEVERITIES = ("info", "warning", "error")
#: Commands that a recommendation may name.
COMMANDS = ("", "rocmprobe install", "rocmprobe detect")

if TYPE_CHECKING:
    StateName = str
    Rung = str
    Direction = str
    Verdict = str
    Severity = str
else:
    StateName = Literal[tuple(STATES)]
    Rung = Literal[RUNGS]
    Direction = Literal[DIRECTIONS]
    Verdict = Literal[VERDICTS]
    Severity = Literal[SEVERITIES]


class NothingToTest(Exception):
    """The machine lacks what was requested; the message says what was looked for and where, in one line."""

    def __init__(self, text: str) -> None:
        super().__init__(message(text))


@dataclass(frozen=True)
class Fact:
    """A value and where it came from; ``value`` is None where nothing could be learned."""

    value: Any = None
    source: str = ""


@dataclass(frozen=True)
class Gpu:
    """One GPU as the kernel and the runtime see it.

    ``native_isa`` is the silicon (from the kernel driver), ``effective_isa`` what the ROCm runtime
    believes after any override. ``cus`` counts compute units, ``simds`` their SIMD units, ``wave_size`` the
    threads of a wavefront; ``apu`` says that the GPU sits in a processor and ``partition`` in which
    compute mode it is split. ``uuid`` is what ROCm calls it ("GPU-" and 16 digits), ``order`` its place in
    the order of the ROCm runtime, ``index`` the N of torch's ``cuda:N`` under the variables that are set,
    without a value where they hide it. ``pcie_atomics`` is whether its way to the processor carries them.
    ``pcie_link`` is the present link and the best one. From ``vram_used_bytes`` on the facts are of this
    moment, each in the unit of its name: bytes, per cent, degrees Celsius, turns a minute, watts, megahertz.
    """

    native_isa: Fact = Fact()
    effective_isa: Fact = Fact()
    name: Fact = Fact()
    pci_id: Fact = Fact()
    revision: Fact = Fact()
    cus: Fact = Fact()
    vram_bytes: Fact = Fact()
    vendor: Fact = Fact()
    driver: Fact = Fact()
    address: Fact = Fact()
    simds: Fact = Fact()
    wave_size: Fact = Fact()
    apu: Fact = Fact()
    partition: Fact = Fact()
    uuid: Fact = Fact()
    order: Fact = Fact()
    index: Fact = Fact()
    pcie_atomics: Fact = Fact()
    pcie_link: Fact = Fact()
    vbios: Fact = Fact()
    vram_vendor: Fact = Fact()
    vram_used_bytes: Fact = Fact()
    busy_percent: Fact = Fact()
    temperature_edge_c: Fact = Fact()
    temperature_junction_c: Fact = Fact()
    temperature_memory_c: Fact = Fact()
    fan_rpm: Fact = Fact()
    power_w: Fact = Fact()
    core_clock_mhz: Fact = Fact()
    memory_clock_mhz: Fact = Fact()


#: The facts by which the GPUs of two machines are equal.
GPU_IDENTITY = ("native_isa", "pci_id", "revision", "cus", "vram_bytes")


@dataclass(frozen=True)
class Machine:
    """All that was learned about a machine without running a kernel.

    ``facts`` has dotted names (``torch.version``, ``rocm.version``, ``kernel.release``, ...);
    ``variables`` holds the environment variables that matter and are set.
    """

    gpus: tuple[Gpu, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    variables: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def amd_gpus(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.vendor.value == "amd")

    def value(self, name: fact_types.FactName) -> Any:
        """Return the value of a fact, None if it is unknown."""
        return self.facts.get(name, Fact()).value


@dataclass(frozen=True)
class Setting:
    """One named way to run a problem: variables, torch flags, vendor library or bypass.

    ``torch`` maps the flags of ``knowledge.settings`` to values; ``vendor_library`` False switches the
    backend's vendor library off; ``device`` overrides the device (the ``cpu`` setting).
    ``verdict`` is what the recommendation says if this setting is chosen. ``since`` and ``until`` are the
    first and the last version of the vendor library on which it means anything, ``torch_since`` and
    ``torch_until`` those of PyTorch; ``isa`` is a regular expression over the native ISAs on which it does.
    ``search`` says how a solver is requested from MIOpen ("find",
    "immediate", "exhaustive", "find-2.0"; "" as it comes), for which ``torch`` holds the flags. ``dtype`` and
    ``channels_last`` ask the same problems in another dtype or memory format. ``derived``: ``env`` is found
    out on the machine, during the run; ``solver`` is the one that a setting of the sweep forces.
    ``pytorch_layers`` are the layers that PyTorch's own kernels compute, as the keywords of
    ``rocmprobe.bypass.install``: under the derived setting that is ``by_layer``. ``by_name``: it concerns
    only the checks that name it, and not convolution.
    """

    name: Name
    reason: str
    verdict: Verdict
    env: Mapping[str, str] = field(default_factory=dict)
    torch: Mapping[str, Any] = field(default_factory=dict)
    vendor_library: bool = True
    bypass: bool = False
    inherit_environment: bool = False
    device: Optional[str] = None
    cost: str = ""
    source: str = ""
    since: str = ""
    until: str = ""
    torch_since: str = ""
    torch_until: str = ""
    isa: str = ""
    search: str = ""
    dtype: Optional[str] = None
    channels_last: bool = False
    derived: bool = False
    solver: str = ""
    by_layer: bool = False
    pytorch_layers: tuple[str, ...] = ()
    by_name: bool = False

    @property
    def unchanged(self) -> bool:
        """Whether everything is as PyTorch comes, convolution and all other layers."""
        return self.verdict == "native" and not self.pytorch_layers

    @property
    def undecided(self) -> bool:
        """Whether it is derived and was not found out yet."""
        return self.derived and not (self.env or self.pytorch_layers)

    @property
    def changes_problems(self) -> bool:
        """Whether it runs other problems than ``default`` does."""
        return self.dtype is not None or self.channels_last


@dataclass(frozen=True)
class Trial:
    """One child process: a driver and a setting on one device.

    ``exit`` is "0", an exit code, a signal name, or "killed" when rocmprobe ended it; ``exit_crash``
    says that it died in teardown, after its last result. ``log`` is what it printed (head and tail).
    ``library`` is the vendor library's version as the child's torch, or the library itself, reports it;
    ``mapped`` holds the files of HIP, rocBLAS and MIOpen that were mapped in it, by library.
    """

    id: Name
    device: Name
    driver: Name
    setting: Name
    start_method: str
    exit: str
    exit_crash: bool = False
    log: str = ""
    seconds: float = 0.0
    library: Optional[str] = None
    mapped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """One try of one question; ``message`` is the line that explains a failure."""

    state: str
    trial: str
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What happened to one question (a rung or a problem and direction) under one setting.

    ``timings`` are seconds, ``memory`` bytes, ``numerics`` the measured errors beside their limits.
    ``ending`` says how the child of a crash or hang ended: ``status`` (as ``Trial.exit``), ``phase``,
    ``after`` (the last event before), ``oom_killed`` (by the kernel, where that is known).
    ``algorithm`` is the family of the solver, ``workspace_bytes`` what it needs besides the tensors, and
    ``find_db`` "hit" or "miss" of MIOpen's find database; None where the log does not say.
    ``evidence`` lists lines, the most telling first. ``calls`` are those of the driver ``capi`` into the
    libraries in the last try, each with its status; calls that follow each other and are alike are one entry.
    ``conditions`` are those of a measurement: clocks and temperatures "before" and "after", by the names of
    ``detect.sensors``; empty where none could be read. ``expected`` says why it is ``xfail`` or ``xpass``,
    and what it came to; findings and recommendation rest on that.
    """

    id: Name
    device: Name
    driver: Name
    setting: Name
    check: Name
    rung: Rung
    state: StateName
    trial: str = ""
    native_isa: Optional[str] = None
    effective_isa: Optional[str] = None
    problem: Optional[str] = None
    direction: Optional[Direction] = None
    dtype: str = "float32"
    phase: Optional[str] = None
    activity: Optional[str] = None
    cause: Optional[str] = None
    attempts: tuple[Attempt, ...] = ()
    solver: Optional[str] = None
    timings: Mapping[str, Any] = field(default_factory=dict)
    numerics: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    ending: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    algorithm: Optional[str] = None
    workspace_bytes: Optional[Count] = None
    find_db: Optional[Annotated[str, Rule("enum", ("hit", "miss"))]] = None
    calls: tuple[str, ...] = ()
    conditions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    expected: Optional[Expected] = None

    @property
    def meaning(self) -> State:
        """The row of its state in the table of states."""
        return state_of(self.state, self.cause)

    @property
    def works(self) -> bool:
        return self.meaning.works

    @property
    def fails(self) -> bool:
        return self.meaning.fails

    @property
    def learned(self) -> bool:
        return self.meaning.learned

    @property
    def blocks(self) -> bool:
        return self.meaning.blocks


@dataclass(frozen=True)
class Finding:
    """An established fact worth telling. ``cause`` and ``layer`` are words of ``data/causes.toml``."""

    id: str
    severity: Severity
    cause: str
    layer: str
    title: str
    evidence: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Configuration:
    """What to do: the setting's name, variables to export, Python lines, extra layer switches. ``command`` is
    what to run first where no setting helps."""

    setting: Optional[str] = None
    env: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    layers: tuple[str, ...] = ()
    command: Annotated[str, Rule("enum", COMMANDS)] = field(default="", metadata=WHERE_SET)


@dataclass(frozen=True)
class DeviceAnswer:
    """What is recommended for one device of several: as ``Recommendation``, for the GPU of that name.
    ``mask`` is the variable, as NAME=VALUE, that leaves a program this GPU alone; "" where it is unknown."""

    verdict: Verdict
    sentence: str
    setting: Optional[str] = None
    env: Mapping[str, str] = field(default_factory=dict)
    gpu: Optional[str] = None
    in_processor: bool = False
    mask: str = ""


@dataclass(frozen=True)
class Recommendation:
    """The ranked answer. ``per`` maps "dtype/purpose" to a verdict and setting; ``cost`` and
    ``confidence`` are sentences, ``verify`` a command that exits 0 if and only if it holds.
    ``confidence_level`` is "high", "medium" or "low", by what was covered; ``not_covered`` says what was
    not. ``advice`` (each with ``title``, ``text``, ``source``) is what no setting can give. ``devices`` is
    the answer for each device where a run tested several, by device. ``others`` are the configurations of
    what ``sentence`` names another setting for, by its words there, such as "float16"."""

    verdict: Verdict
    sentence: str
    configuration: Configuration = Configuration()
    per: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    alternatives: tuple[Mapping[str, Any], ...] = ()
    cost: str = ""
    confidence: str = ""
    verify: str = ""
    confidence_level: Annotated[str, Rule("enum", ("", "low", "medium", "high"))] = ""
    not_covered: tuple[str, ...] = ()
    advice: tuple[Annotated[Mapping[str, str], Rule("required", ("title", "text", "source"))], ...] = ()
    devices: Mapping[str, DeviceAnswer] = field(default_factory=dict)
    others: Mapping[str, Configuration] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingTime:
    """What a training takes with the network ``name``, in seconds: of a step as it was timed with ``batch``
    samples of the shape ``input``, and of an epoch and the whole training; each median, and from p10 to p90
    of a step. ``own``: it is the user's own network, which then counts."""

    name: str
    device: str
    setting: str
    dtype: str
    input: str
    batch: Positive
    step: float
    step_low: float
    step_high: float
    epoch: float
    epoch_low: float
    epoch_high: float
    training: float
    training_low: float
    training_high: float
    own: bool = False


@dataclass(frozen=True)
class Estimate:
    """The training that ``--estimate`` names (``batch`` None: that of what was timed), and how long it
    takes; ``left_out`` says what these times do not hold, and ``own_left_out`` what those of the user's own
    network do not."""

    images: Positive
    epochs: Positive
    batch: Optional[Positive]
    times: tuple[TrainingTime, ...] = ()
    left_out: tuple[str, ...] = ()
    own_left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepTime:
    """What the program that a run was given the shapes of would take under a setting.

    ``per`` is "step" or, where no training step is known, "program". Of its ``convolutions`` (directions of
    problems, each as often as it is computed) so many were ``timed``. Seconds of all of it and of its
    convolutions alone, by the means of their times, and what it would be if all took their p10 or their p90.
    None where they are unknown, for the ``reason`` given.
    """

    device: str
    setting: str
    per: Annotated[str, Rule("enum", ("step", "program"))]
    convolutions: Count
    timed: Count
    seconds: Optional[float] = None
    seconds_p10: Optional[float] = None
    seconds_p90: Optional[float] = None
    convolution_seconds: Optional[float] = None
    convolution_seconds_p10: Optional[float] = None
    convolution_seconds_p90: Optional[float] = None
    reason: str = ""


@dataclass(frozen=True)
class Environment:
    """The Python environment that ``--python`` named: its name, and the path of its interpreter."""

    name: Name
    python: str

    @property
    def path_here(self) -> str:
        """The path of the interpreter with the home of the present user in place of a redacted one."""
        return self.python.replace("<home>", str(Path.home()), 1)


@dataclass(frozen=True)
class Results:
    """One run, whole: the content of ``results.json``. ``redacted`` counts the placeholders in it by kind;
    ``changes`` are those against its baseline, None where it was given none. ``telemetry`` is that of each
    device whose sensors were watched. ``environment`` is None if the run tested the Python that it ran in."""

    schema_version: Annotated[int, Rule("const", SCHEMA_VERSION)]
    rocmprobe: str
    started: str
    finished: Optional[str]
    partial: bool
    simulated: Optional[str]
    options: Mapping[str, Any]
    machine: Machine
    settings: tuple[Setting, ...]
    problems: tuple[Mapping[str, Any], ...]
    trials: tuple[Trial, ...]
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...] = ()
    recommendation: Optional[Recommendation] = None
    redacted: Mapping[str, Count] = field(default_factory=dict)
    estimate: Optional[Estimate] = None
    step_times: tuple[StepTime, ...] = ()
    changes: Optional[Changes] = None
    telemetry: tuple[DeviceTelemetry, ...] = ()
    environment: Optional[Environment] = field(default=None, metadata=WHERE_SET)

    @property
    def purpose(self) -> str:
        """``training`` or ``inference``, as the run was asked."""
        return "inference" if self.options.get("purpose") == "inference" else "training"

    @property
    def recommended(self) -> Optional[str]:
        """The name of the recommended setting, None where nothing is recommended."""
        return self.recommendation.configuration.setting if self.recommendation else None

    def setting(self, name: Optional[str]) -> Optional[Setting]:
        """The setting of that name, None if the run had none."""
        return next((each for each in self.settings if each.name == name), None)

    @property
    def named_file(self) -> str:
        """The path of this file, with the folder as the user of the run named it."""
        return str(PurePosixPath(str(self.options.get("folder", "."))) / "results.json")


@dataclass(frozen=True)
class Member:
    """One of the Python environments that a joined run compares: an ordinary run in the folder of its name.

    ``unusable`` says why there is no such run, "" if there is one. ``verdict``, ``setting`` and ``device``
    are those of its recommendation. ``seconds`` is what that setting took over the convolutions that all
    members were timed on, None where it was not timed. ``note`` says why no setting is right, or how long a
    training takes.
    """

    name: str
    python: str
    unusable: str = ""
    torch: str = ""
    device: str = ""
    verdict: str = ""
    setting: str = ""
    seconds: Optional[float] = None
    note: str = ""


@dataclass(frozen=True)
class JoinedRun:
    """Runs of several Python environments on one machine: the ``results.json`` above their folders.

    ``chosen`` names the member that is recommended, "" for none; ``sentence`` says so, and ``cost`` compares
    it with each of the others. ``partial`` is True until all members are complete. ``note`` is for the
    readers of the page.
    """

    schema_version: int
    rocmprobe: str
    started: str
    partial: bool
    members: tuple[Member, ...]
    chosen: str = ""
    sentence: str = ""
    cost: str = ""
    note: str = ""

    @property
    def runs(self) -> tuple[Member, ...]:
        """The members that could be run."""
        return tuple(each for each in self.members if not each.unusable)


def to_json(value: Any) -> Any:
    """A dataclass of this module as plain JSON data."""
    # As dataclasses.asdict, without its copies of texts and numbers: results have a hundred thousand.
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([to_json(item) for item in value])
    names = _field_names(value.__class__)
    if not names:
        return value
    found = {name: to_json(getattr(value, name)) for name in names}
    for name in _where_set(value.__class__):
        if not found[name]:
            del found[name]
    return found


@lru_cache(maxsize=64)
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass; none for any other type."""
    return tuple(each.name for each in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


@lru_cache(maxsize=64)
def _where_set(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind) if "where set" in each.metadata)


def from_json(kind: type[_T], data: Mapping[str, Any]) -> _T:
    """The dataclass ``kind`` from plain JSON data.

    Raises BadInput where a field is missing, or a field or a fact has the wrong type; in a Python without
    msgspec, where only workers run, which get what their controller has made, TypeError for a missing or an
    unknown one.
    """
    # Imported late: a worker may run in a Python that has torch and nothing else.
    try:
        import msgspec
    except ImportError:
        return cast(_T, _made(kind, data))
    try:
        value: _T = msgspec.convert(data, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        # msgspec takes a text with half a surrogate pair, except where it looks up a name.
        raise BadInput(f"{kind.__name__}: {one_line(str(error))}") from error
    check_facts(value)
    return value


#: Fields that lead from the content of a file to facts.
_LEAD_TO_FACTS = ("machine", "simulation", "targets", "gpu", "gpus")


def check_facts(value: Any) -> None:
    """Raise BadInput, with its name, for a fact of the wrong type in a machine or a GPU within ``value``."""
    for name, fact, kind in _facts_in(value):
        wrong = fact_types.wrong_type(fact.value, kind)
        if wrong:
            raise BadInput(f"fact {one_line(name)}: {one_line(wrong)}")


def _facts_in(value: Any) -> Iterator[tuple[str, Fact, Any]]:
    """Yield every fact with its name and type."""
    if isinstance(value, Gpu):
        for name, kind in fact_types.GPU_FACTS.items():
            yield f"gpus.{name}", getattr(value, name), kind
    if isinstance(value, Machine):
        for name, fact in value.facts.items():
            yield name, fact, fact_types.type_of(name)
        for name, fact in value.variables.items():
            yield f"variables.{name}", fact, str
    for field_name in _LEAD_TO_FACTS:
        inner = getattr(value, field_name, None)
        for each in inner if isinstance(inner, tuple) else (inner,):
            if dataclasses.is_dataclass(each):
                yield from _facts_in(each)


def _made(kind: Any, data: Any) -> Any:
    """``data`` as a value of the type ``kind``: dataclasses within collections are made, the rest is taken
    as it is."""
    origin, arguments = get_origin(kind), get_args(kind)
    if data is None:
        return None
    if dataclasses.is_dataclass(kind):
        types = get_type_hints(kind)
        return cast(Any, kind)(**{name: _made(types[name], value) for name, value in data.items()})
    if origin is Union:
        inner = [each for each in arguments if each is not type(None)]
        return _made(inner[0], data) if len(inner) == 1 else data
    if origin is tuple:
        return tuple(_made(arguments[0], item) for item in data)
    if arguments and isinstance(data, dict):
        return {key: _made(arguments[1], value) for key, value in data.items()}
    if arguments and isinstance(data, list):
        return [_made(arguments[0], item) for item in data]
    return data


#: The results of the last complete run on this machine that recommends a configuration.
RECOMMENDED = Path("reports/recommended/results.json")

_NO_RESULTS = "name a results.json of a run"
_DAMAGED = "the file is damaged, run again"


def read_results(path: Path, content: Optional[bytes] = None, member: str = "") -> Results:
    """Read a ``results.json``, or its ``content``, which was read from ``path`` already.

    Of a joined run, read those of ``member``, or of the one that is chosen.
    Raises BadInput, in one line, for a file that is missing, not JSON, of an unknown schema
    version, or that breaks the schema (naming the place), and for a joined run without such a member.
    """
    data = _read(path, content)
    if "members" in data:
        path = _member(_joined(data, path), path, member)
        data = _read(path)
    return _results(data, path)


def results_file(source: Path) -> Path:
    """Return the results.json of ``source``, which is that itself or the folder of a run."""
    return source / "results.json" if source.is_dir() else source


def ordinary_run(source: Path) -> Path:
    """Return ``source``, a results.json or the folder of a run; of a joined run that of the chosen member.

    Raises BadInput if a joined run recommends none.
    """
    path = results_file(source)
    joined = read_joined(path)
    if joined is None:
        return source
    chosen = _member(joined, path)
    return chosen.parent if source.is_dir() else chosen


def _member(joined: JoinedRun, path: Path, member: str = "") -> Path:
    """Return the results.json of a member of a joined run, the chosen one if none is named."""
    name = member or joined.chosen
    if name not in [each.name for each in joined.runs]:
        several = ", ".join(str(path.parent / each.name) for each in joined.runs)
        wanted = f"has no run of {quoted(name)}" if name else "recommends none of its runs"
        raise BadInput(f"{path}: {wanted}; name one of them: {several or 'there is none'}")
    return path.parent / name / path.name


def read_joined(path: Path) -> Optional[JoinedRun]:
    """Read the ``results.json`` of a joined run; None for that of an ordinary one, or where there is none.

    Raises BadInput for a file that is damaged.
    """
    if not path.is_file():
        return None
    data = _read(path)
    return _joined(data, path) if "members" in data else None


def _read(path: Path, content: Optional[bytes] = None) -> Mapping[str, Any]:
    content = reading.read_bytes(path, _NO_RESULTS) if content is None else content
    data = reading.json_of(content, str(path), _NO_RESULTS)
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version is None or (version != SCHEMA_VERSION and "rocmprobe" not in data):
        raise BadInput(f"{path}: not a results file of rocmprobe; {_NO_RESULTS}")
    if version != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema_version is {quoted(version)}, this rocmprobe reads {SCHEMA_VERSION}; "
            "use the rocmprobe that wrote it, or run again"
        )
    return cast(Mapping[str, Any], data)


def _joined(data: Mapping[str, Any], path: Path) -> JoinedRun:
    try:
        joined: JoinedRun = from_json(JoinedRun, data)
    except BadInput as error:
        raise BadInput(f"{path}: {error}; {_DAMAGED}") from error
    for each in joined.members:
        # A name is a folder beside this file; no file leads elsewhere.
        if not MEMBER_NAME.fullmatch(each.name):
            raise BadInput(f"{path}: {quoted(each.name)} is no name of an environment; {_DAMAGED}")
    return joined


def _results(data: Mapping[str, Any], path: Path) -> Results:
    reading.check(data, "results", str(path), _DAMAGED)
    try:
        results: Results = from_json(Results, data)
    except BadInput as error:
        raise BadInput(f"{path}: {error}; {_DAMAGED}") from error
    return results


def check_results(results: Results, path: Path) -> None:
    """Hold results that were put together from the journal ``path`` against the schema. Raises BadInput."""
    reading.check(to_json(as_stored(results)), "results", str(path), _DAMAGED)


def write_results(results: Results, path: Path) -> None:
    """Write ``results.json`` whole or not at all: a reader never sees half a file."""
    write_whole(results_document(results), path)


def write_joined(joined: JoinedRun, path: Path) -> None:
    """Write the ``results.json`` of a joined run whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(results_document(joined), path)


def results_document(results: Union[Results, JoinedRun]) -> bytes:
    """The content of ``results.json``."""
    data = to_json(as_stored(results))
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # A captured log may hold half a surrogate pair; the escape that this leaves is one of JSON's own.
    return text.encode("utf-8", "backslashreplace")


def write_whole(content: bytes, path: Path) -> None:
    """Write ``path`` whole or not at all. Raises OSError, which names ``path``."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces ``path`` if the block succeeds. If not, ``path`` stays as it is.

    A device or a pipe cannot be replaced, and is yielded itself. Raises OSError, which names ``path``.
    """
    in_place = path.exists() and not path.is_file()
    target = Path(os.path.realpath(path))
    temporary = path if in_place else target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if not in_place:
            temporary.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        if not in_place:
            with suppress(OSError):
                temporary.unlink()


def as_stored(value: _T) -> _T:
    """``value`` as ``results.json`` gives it back: a number that is not finite becomes None, as JSON has no
    word for it."""
    return cast(_T, _stored(value))


def _stored(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _stored(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_stored(item) for item in value])
    stored = {name: _stored(getattr(value, name)) for name in _field_names(value.__class__)}
    return dataclasses.replace(value, **stored) if stored else value
