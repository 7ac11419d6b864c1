"""Data of a run: facts, settings, trials, outcomes, findings and the recommendation.

Each class is a frozen dataclass that mirrors one object of ``results.json`` (described in
``docs/results.md``). ``results_file`` reads and writes that file. This module does no I/O and imports no
torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

from rocmprobe.model import facts as fact_types
from rocmprobe.model.changes import Changes, Expected
from rocmprobe.model.schema import Count, Name, Positive, Rule
from rocmprobe.model.states import RUN_DIED, STATES, State, state_of
from rocmprobe.model.telemetry import DeviceTelemetry
from rocmprobe.text import reading
from rocmprobe.text.plain_text import message

SCHEMA_VERSION = 2
BadInput = reading.BadInput

#: Ways in which a process ended without a result.
CRASH_CAUSES = (
    "SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE", "SIGKILL", "SIGTERM", "other-signal",
    "exit", "oom-kill", "killed",
)  # fmt: skip
#: Causes of an outcome. A blocked outcome can also have "rung:" and the rung it depends on.
CAUSES = (
    *CRASH_CAUSES, "timeout", "miopen-status", "device-error", "out-of-memory", "exception",
    "torch-unusable", "gpu-wedged", "many-hangs", "many-crashes", RUN_DIED, "machine-died",
)  # fmt: skip

#: Names of Python environments.
MEMBER_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,39}", re.ASCII)

#: Marks a field that is written only if it is set.
WHERE_SET: Mapping[str, Any] = {"where set": True}

DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
#: Rungs of the ladder, lowest first. A rung depends on the rungs before it.
RUNGS = (
    "copy", "elementwise", "gemm", "im2col", "controls", "conv", "batch-norm", "primitives", "train",
    "multi-gpu",
)  # fmt: skip
#: Verdicts of settings under which convolution still runs in the vendor library.
NATIVE = ("native", "native-with-settings")
#: Verdicts of runs that tested too little to recommend a setting or to say that no setting works.
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
    """The machine lacks what was requested. The message is one line: what was searched for, and where."""

    def __init__(self, text: str) -> None:
        super().__init__(message(text))


@dataclass(frozen=True)
class Fact:
    """A value and its source. ``value`` is None if it is unknown."""

    value: Any = None
    source: str = ""


@dataclass(frozen=True)
class Gpu:
    """A GPU as the kernel and the runtime see it.

    ``native_isa`` is the ISA of the silicon (from the kernel driver). ``effective_isa`` is the ISA that the
    ROCm runtime uses after any override. ``cus`` counts compute units, ``simds`` their SIMD units.
    ``wave_size`` is the number of threads of a wavefront. ``apu`` is True if the GPU is part of a processor.
    ``partition`` is its compute partition mode.

    ``uuid`` is the id that ROCm uses ("GPU-" and 16 digits). ``order`` is the position in the order of the
    ROCm runtime. ``index`` is the N of torch's ``cuda:N`` under the variables that are set. ``index`` has no
    value if the variables hide the GPU. ``pcie_atomics`` is True if the path to the processor supports PCIe
    atomics. ``pcie_link`` is the present link and the best possible link.

    Fields from ``vram_used_bytes`` on are present readings, each in the unit of its name: bytes, per cent,
    degrees Celsius, turns a minute, watts, megahertz. Clocks whose name begins with ``max`` are the highest
    that the driver sets.
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
    max_core_clock_mhz: Fact = Fact()
    max_memory_clock_mhz: Fact = Fact()
    memory_bus_bits: Fact = Fact()


#: Facts by which the GPUs of two machines are compared.
GPU_IDENTITY = ("native_isa", "pci_id", "revision", "cus", "vram_bytes")


@dataclass(frozen=True)
class Machine:
    """Facts about a machine that need no kernel to run.

    ``facts`` has dotted names (``torch.version``, ``rocm.version``, ``kernel.release``, ...). ``variables``
    has the relevant environment variables that are set.
    """

    gpus: tuple[Gpu, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    variables: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def amd_gpus(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.vendor.value == "amd")

    def value(self, name: fact_types.FactName) -> Any:
        """Return the value of a fact, or None if it is unknown."""
        return self.facts.get(name, Fact()).value


@dataclass(frozen=True)
class Setting:
    """A named way to run a problem: variables, torch flags, vendor library or bypass.

    ``torch`` maps the flags of ``knowledge.settings`` to values. If ``vendor_library`` is False, the
    backend's vendor library is disabled. ``device`` overrides the device (the ``cpu`` setting). ``verdict``
    is the verdict of the recommendation if this setting is chosen.

    ``since`` and ``until`` are the first and the last version of the vendor library in which the setting has
    an effect. ``torch_since`` and ``torch_until`` are the same for PyTorch. ``isa`` is a regular expression
    for the native ISAs on which it has an effect.

    ``search`` says how MIOpen chooses a solver ("find", "immediate", "exhaustive", "find-2.0", or "" for the
    default). ``torch`` has the flags for ``search``. ``dtype`` and ``channels_last`` run the same problems in
    another dtype or memory format.

    If ``derived`` is set, ``env`` is determined on the machine, during the run. ``solver`` is the solver that
    a setting of the sweep forces. ``pytorch_layers`` are the layers that PyTorch's own kernels compute, as
    keywords of ``rocmprobe.bypass.install``. ``by_layer`` marks the derived setting that determines these
    layers. If ``by_name`` is set, only checks that name the setting use it, and never for convolution.
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
        """True if PyTorch runs unmodified, both convolution and all other layers."""
        return self.verdict == "native" and not self.pytorch_layers

    @property
    def undecided(self) -> bool:
        """True if the setting is derived and not determined yet."""
        return self.derived and not (self.env or self.pytorch_layers)

    @property
    def changes_problems(self) -> bool:
        """True if the setting runs other problems than ``default`` does."""
        return self.dtype is not None or self.channels_last


@dataclass(frozen=True)
class Trial:
    """A child process: a driver and a setting on one device.

    ``exit`` is "0", an exit code, a signal name, or "killed" if rocmprobe killed it. ``exit_crash`` is True
    if the child crashed in teardown, after its last result. ``log`` is the output of the child (head and
    tail). ``library`` is the version of the vendor library, as the child's torch or the library itself
    reports it. ``mapped`` lists the mapped files of HIP, rocBLAS and MIOpen, by library.
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
    """One try of a case. ``message`` is the line that explains a failure."""

    state: str
    trial: str
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Result of one case (a rung, or a problem and direction) under one setting.

    ``timings`` are seconds, ``memory`` bytes, ``numerics`` the measured errors with their limits. ``ending``
    says how a crashed or hung child ended. ``status`` is in the form of ``Trial.exit``, ``phase`` is the last
    phase, and ``after`` is the last event before the end. ``oom_killed`` is True if the kernel killed the
    child for lack of memory, None if that is unknown.

    ``algorithm`` is the family of the solver. ``workspace_bytes`` is the memory that the solver needs in
    addition to the tensors. ``find_db`` is "hit" or "miss" of MIOpen's find database. These fields are None
    if the log does not name them.

    ``evidence`` is a list of lines, the most relevant first. ``calls`` are the calls of the driver ``capi``
    into the libraries in the last try, with their status. Equal consecutive calls are merged. ``conditions``
    are the clocks and temperatures "before" and "after" a measurement, by the names of ``detect.sensors``.
    ``conditions`` are empty if no sensor could be read.

    ``expected`` has the reason for ``xfail`` or ``xpass`` and the observed state. Findings and the
    recommendation use the observed state. ``operator`` is PyTorch's name of the operator in a sweep.
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
    operator: Annotated[Optional[str], Rule("maxLength", 200)] = field(default=None, metadata=WHERE_SET)

    @property
    def meaning(self) -> State:
        """Row of the outcome's state in the table of states."""
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
    """An established fact for the report. ``cause`` and ``layer`` are words of ``data/causes.toml``."""

    id: str
    severity: Severity
    cause: str
    layer: str
    title: str
    evidence: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Configuration:
    """Recommended configuration: the setting's name, variables to export, Python lines and layer switches.

    If no setting helps, ``command`` is the command to run first.
    """

    setting: Optional[str] = None
    env: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    layers: tuple[str, ...] = ()
    command: Annotated[str, Rule("enum", COMMANDS)] = field(default="", metadata=WHERE_SET)


@dataclass(frozen=True)
class DeviceAnswer:
    """Recommendation for one of several devices. Fields are those of ``Recommendation``, for the GPU ``gpu``.

    ``mask`` is the variable, as NAME=VALUE, that makes only this GPU visible to a program, or "" if unknown.
    """

    verdict: Verdict
    sentence: str
    setting: Optional[str] = None
    env: Mapping[str, str] = field(default_factory=dict)
    gpu: Optional[str] = None
    in_processor: bool = False
    mask: str = ""


@dataclass(frozen=True)
class Recommendation:
    """Ranked recommendation of a run.

    ``per`` maps "dtype/purpose" to a verdict and setting. ``cost`` and ``confidence`` are sentences.
    ``verify`` is a command that exits 0 if and only if the recommendation is correct. ``confidence_level`` is
    "high", "medium" or "low", by coverage, and ``not_covered`` lists what was not covered. ``advice`` (with
    ``title``, ``text`` and ``source``) is help beyond settings.

    If a run tested several devices, ``devices`` has the recommendation for each. If ``sentence`` recommends
    another setting for one case, such as "float16", ``others`` has its configuration under the name of the
    case.
    """

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
    """Duration of a training with the network ``name``, in seconds.

    The step was timed with ``batch`` samples of the shape ``input``. Step, epoch and training each have the
    median and the range from p10 to p90 of a step. ``own`` marks the user's own network, which then takes
    precedence.
    """

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
    """The training that ``--estimate`` describes, and its duration.

    ``batch`` is None if the timed batch is used. ``left_out`` says what the times do not include.
    ``own_left_out`` says the same for the times of the user's own network.
    """

    images: Positive
    epochs: Positive
    batch: Optional[Positive]
    times: tuple[TrainingTime, ...] = ()
    left_out: tuple[str, ...] = ()
    own_left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepTime:
    """Duration, under a setting, of the program whose recorded shapes the run was given.

    ``per`` is "step", or "program" if no training step is known. ``convolutions`` counts directions of
    problems, as often as they are computed, and ``timed`` how many of them were timed. ``seconds`` is the
    total time, and ``convolution_seconds`` the time of the convolutions alone. Both are computed from mean
    times. Fields with p10 and p90 assume that every convolution takes its p10 or p90. Unknown times are None,
    and ``reason`` says why.
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
    """The Python environment that ``--python`` selects: its name, and the path of its interpreter."""

    name: Name
    python: str

    @property
    def path_here(self) -> str:
        """Path of the interpreter. A redacted home is replaced by the present user's home."""
        return self.python.replace("<home>", str(Path.home()), 1)


@dataclass(frozen=True)
class Results:
    """A complete run: the content of ``results.json``.

    ``redacted`` counts its placeholders by kind. ``changes`` are the differences from the baseline, or None
    if the run had no baseline. ``telemetry`` has each device whose sensors were watched. ``environment`` is
    None if the run tested the Python that it ran in.
    """

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
        """``training`` or ``inference``, from the run's options."""
        return "inference" if self.options.get("purpose") == "inference" else "training"

    @property
    def recommended(self) -> Optional[str]:
        """Name of the recommended setting, or None if no setting is recommended."""
        return self.recommendation.configuration.setting if self.recommendation else None

    def setting(self, name: Optional[str]) -> Optional[Setting]:
        """Return the setting with that name, or None if the run had no such setting."""
        return next((each for each in self.settings if each.name == name), None)

    @property
    def named_file(self) -> str:
        """Path of this file, with the folder as the user of the run typed it."""
        return str(PurePosixPath(str(self.options.get("folder", "."))) / "results.json")


@dataclass(frozen=True)
class Member:
    """A Python environment of a joined run: an ordinary run in the folder of that name.

    ``unusable`` is the reason why the environment has no run, or "". ``verdict``, ``setting`` and ``device``
    come from its recommendation. ``seconds`` is the total time of the recommended setting over the
    convolutions that were timed for all members. It is None if that setting was not timed. ``note`` says why
    no setting works, or how long a training takes.
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

    ``chosen`` is the name of the recommended member, or "". ``sentence`` states the recommendation, and
    ``cost`` compares that member with the others. ``partial`` is True until all members are complete.
    ``note`` is for readers of the page.
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
        """Members that could be run."""
        return tuple(each for each in self.members if not each.unusable)
