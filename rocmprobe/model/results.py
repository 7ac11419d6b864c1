"""Data of a run: facts, settings, trials, outcomes, findings and the recommendation.

Each class has the fields of one object in ``results.json`` (see ``docs/results.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict

from rocmprobe.model import facts as fact_types
from rocmprobe.model.changes import Changes, Expected
from rocmprobe.model.fields import Count, Name
from rocmprobe.model.states import RUN_DIED, STATES, State, state_of
from rocmprobe.model.telemetry import DeviceTelemetry
from rocmprobe.text import reading
from rocmprobe.text.plain_text import message

SCHEMA_VERSION = 3
BadInput = reading.BadInput

CRASHES = (
    "SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE", "SIGKILL", "SIGTERM", "other-signal",
    "exit", "oom-kill", "killed",
)  # fmt: skip
#: Failure of an outcome "n/a": the setting allows no solver that applies to the problem.
NO_SOLVER = "no-solver"
#: What was seen when a case failed or did not run. For a blocked case, it can also be "rung:" and the name
#: of the failed rung.
FAILURES = (
    *CRASHES, "timeout", "miopen-status", "device-error", "out-of-memory", "exception",
    "torch-unusable", "gpu-wedged", "many-hangs", "many-crashes", RUN_DIED, "machine-died", NO_SOLVER,
)  # fmt: skip

#: Metadata of a field that ``results.json`` contains only if the field is set.
OMIT_IF_EMPTY: Mapping[str, Any] = {"where set": True}

DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
#: Groups of checks (rungs), from simple to complex. A rung depends on the rungs before it.
RUNGS = (
    "copy", "elementwise", "gemm", "im2col", "controls", "direct", "conv", "batch-norm", "primitives",
    "train",
)  # fmt: skip
#: Verdicts of settings under which convolution still runs in the vendor library.
NATIVE = ("native", "native-with-settings")
#: Verdicts of runs that tested too little to recommend a setting or to say that no setting works.
UNJUDGED = ("not-judged", "gpu-not-tested")
VERDICTS = ("native", "native-with-settings", "vendor-off", "bypass", "cpu", "none", *UNJUDGED)
SEVERITIES = ("info", "warning", "error")
#: Commands that a recommendation can contain.
COMMANDS = ("", "rocmprobe install", "rocmprobe detect")

if TYPE_CHECKING:
    StateName = str
    Rung = str
    Direction = str
    Verdict = str
    Severity = str
    Command = str
    ConfidenceLevel = str
    FindDbResult = str
    Version = int
else:
    StateName = Literal[tuple(STATES)]
    Rung = Literal[RUNGS]
    Direction = Literal[DIRECTIONS]
    Verdict = Literal[VERDICTS]
    Severity = Literal[SEVERITIES]
    Command = Literal[COMMANDS]
    ConfidenceLevel = Literal["", "low", "medium", "high"]
    FindDbResult = Literal["hit", "miss"]
    Version = Literal[SCHEMA_VERSION]


class NothingToTest(Exception):
    """Raised if the machine lacks the hardware or software that the user requested."""

    def __init__(self, text: str) -> None:
        super().__init__(message(text))


@dataclass(frozen=True)
class Fact:
    """A value and its source."""

    value: Any = None
    source: str = ""


@dataclass(frozen=True)
class Gpu:
    """A GPU as the Linux kernel and the ROCm runtime describe it.

    - ``native_isa``: ISA of the chip
    - ``effective_isa``: ISA that the ROCm runtime uses after any override
    - ``uuid``: id that ROCm uses ("GPU-" and 16 digits)
    - ``order``: position in the ROCm runtime's list of GPUs
    - ``index``: N of torch's ``cuda:N``, without a value for a hidden GPU
    - ``pcie_atomics``: True if the path to the CPU supports PCIe atomics
    - ``pcie_link``: present link and best possible link

    Fields from ``vram_used_bytes`` to ``memory_clock_mhz`` are present readings. The end of the field's
    name is the unit.
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


@dataclass(frozen=True)
class Machine:
    """The GPUs of a machine, other facts, and the environment variables of PyTorch and ROCm that are set."""

    gpus: tuple[Gpu, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    variables: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def amd_gpus(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.vendor.value == "amd")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of ROCm and PyTorch that the machine's owner has set."""
        return {name: str(fact.value) for name, fact in self.variables.items() if fact.value is not None}

    def value(self, name: fact_types.FactName) -> Any:
        """Return the value of a fact, or None if the fact is unknown."""
        return self.facts.get(name, Fact()).value


@dataclass(frozen=True)
class Setting:
    """A named way to run a problem: environment variables, torch flags, vendor library or bypass.

    - ``torch``: values of the flags in ``knowledge.settings``
    - ``vendor_library``: False if the backend's vendor library is disabled
    - ``verdict``: verdict of the run if this setting is recommended
    - ``since``, ``until``: first and last version of the vendor library in which the setting has an effect
    - ``torch_since``, ``torch_until``: first and last version of PyTorch in which the setting has an effect
    - ``isa``: regular expression for the native ISAs on which the setting has an effect
    - ``search``: how MIOpen chooses a solver ("find", "immediate", "exhaustive", or "" for the default)
    - ``derived``: True if variables are chosen from the run's results
    - ``solver``: solver that the solver sweep forces
    - ``pytorch_layers``: layers that PyTorch's own kernels compute, as keywords of
      ``rocmprobe.bypass.install``
    - ``by_name``: True if only checks that request this setting by name use it
    - ``slow``: True if convolutions are many times slower than without the setting
    - ``unset``: environment variables of the user that must not be set
    - ``cures``: rungs of the ladder whose failure the setting can cure (see ``engine.ladder``)
    - ``excludes``: settings that cannot be combined with this one
    - ``members``: names of the settings of which this setting is composed
    - ``one_device``: True if the run hides all other GPUs from the program
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
    pytorch_layers: tuple[str, ...] = ()
    by_name: bool = False
    slow: bool = False
    unset: tuple[str, ...] = ()
    cures: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    one_device: bool = False

    @property
    def unchanged(self) -> bool:
        """True if PyTorch runs unmodified: ``verdict`` is "native", and ``pytorch_layers`` is empty."""
        return self.verdict == "native" and not self.pytorch_layers

    @property
    def is_incomplete(self) -> bool:
        """True if the run must still choose ``env`` of this setting."""
        return (self.derived or self.one_device) and not self.env

    @property
    def changes_lower_layers(self) -> bool:
        """True if the setting changes copies, kernels or matrix products on the GPU."""
        names = (*self.env, *self.unset)
        return self.device != "cpu" and not all(name.startswith("MIOPEN") for name in names)

    @property
    def changes_problems(self) -> bool:
        """True if the setting changes the dtype or the memory format of the problems."""
        return self.dtype is not None or self.channels_last


@dataclass(frozen=True)
class Trial:
    """A child process that ran cases under one setting, on one device.

    - ``exit``: exit code as text (e.g. "0"), signal name, or "killed" if rocmprobe killed the child
    - ``exit_crash``: True if the child crashed after its last result
    - ``mapped``: loaded files of HIP, rocBLAS and MIOpen, keyed by library
    """

    id: Name
    device: Name
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
    """One try of a case. ``message`` is the log line that explains a failure."""

    state: str
    trial: str
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Result of one case under one setting.

    - ``id``: device/setting/check/problem or dtype/direction, the same in each run. If it ends with "/x100",
      one process repeats the case up to 100 times.
    - ``rung``: group of checks to which ``check`` belongs
    - ``phase``: phase in which the case failed, e.g. "first-call"
    - ``activity``: what a hung process did ("gpu-busy", "idle", "busy", "compiling" or "compiler-child")
    - ``failure``: what was seen if the case failed or did not run
    - ``evidence``: lines that explain the state, the most useful first
    - ``timings``: seconds, mostly medians. "_p10" and "_p90" are percentiles.
    - ``memory``: in bytes
    - ``numerics``: measured errors and their limits
    - ``ending``: how a crashed or hung child ended. ``status`` is as in ``Trial.exit``, ``phase`` is the last
      phase, and ``after`` is the last event. ``oom_killed`` is True if the Linux kernel killed the child for
      lack of memory.
    - ``workspace_bytes``: memory that the solver needs in addition to the tensors
    - ``find_db``: "hit" or "miss" of MIOpen's find database
    - ``conditions``: clocks, temperatures and power "before" and "after" a measurement, keyed by the names of
      ``telemetry.CONDITIONS``
    """

    id: Name
    device: Name
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
    failure: Optional[str] = None
    attempts: tuple[Attempt, ...] = ()
    solver: Optional[str] = None
    timings: Mapping[str, Any] = field(default_factory=dict)
    numerics: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    ending: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    algorithm: Optional[str] = None
    workspace_bytes: Optional[Count] = None
    find_db: Optional[FindDbResult] = None
    conditions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    expected: Optional[Expected] = None

    @property
    def meaning(self) -> State:
        """The ``State`` for this outcome's state and failure."""
        return state_of(self.state, self.failure)

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

    @property
    def in_import(self) -> bool:
        """True if the process failed while it imported torch, so that the check did not begin."""
        ended = self.state in ("crash", "hang") and self.phase == "start" and self.rung != "direct"
        return ended or self.failure == "torch-unusable"

    @property
    def repeats(self) -> int:
        """Number of repetitions that were planned: 20 if the id ends with "/x20", else 1."""
        last = self.id.rpartition("/")[2]
        return int(last[1:]) if last[:1] == "x" and last[1:].isdecimal() else 1

    @property
    def intermittent(self) -> bool:
        """True if the case fails now and then: an attempt or a repetition passed before it failed."""
        return self.state == "flaky" or (self.fails and self.numerics.get("repetitions", 1) > 1)


@dataclass(frozen=True)
class Finding:
    """A conclusion of the run, with its evidence and advice.

    - ``confirm``: shortest test that decides if ``cause`` is the cause, or "" if a trial or fact decided
    - ``remedy``: command or link that removes the fault or avoids it. A finding of severity error has one.
    """

    id: str
    severity: Severity
    cause: str
    layer: str
    title: str
    evidence: tuple[str, ...] = ()
    advice: str = ""
    confirm: str = field(default="", metadata=OMIT_IF_EMPTY)
    remedy: str = field(default="", metadata=OMIT_IF_EMPTY)


@dataclass(frozen=True)
class Configuration:
    """Recommended setting, environment variables and Python code.

    ``unset`` has the environment variables that must not be set. ``layers`` has sentences with further
    advice, mostly about layers other than convolution.
    """

    setting: Optional[str] = None
    env: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    layers: tuple[str, ...] = ()
    command: Command = field(default="", metadata=OMIT_IF_EMPTY)
    unset: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceAnswer:
    """Recommendation for one of several devices.

    ``mask`` is an environment variable (NAME=VALUE) that hides all other GPUs from a program.
    """

    verdict: Verdict
    sentence: str
    setting: Optional[str] = None
    env: Mapping[str, str] = field(default_factory=dict)
    gpu: Optional[str] = None
    in_processor: bool = False
    mask: str = ""
    unset: tuple[str, ...] = ()


class WrittenProblem(TypedDict):
    """The field of a problem on which code depends. The others describe the problem to other programs."""

    id: str


class OtherHelp(TypedDict):
    """Help other than a setting, e.g. another build of PyTorch."""

    title: str
    text: str
    source: str


@dataclass(frozen=True)
class SettingCost:
    """Time and memory that a correct setting needs.

    ``time`` and ``memory`` are relative to the setting ``Costs.reference`` (1.0 is equal), or None if not
    measured. ``low`` and ``high`` are the range of ``time`` within the noise.
    """

    setting: str
    recommended: bool
    time: Optional[float]
    low: Optional[float]
    high: Optional[float]
    memory: Optional[float]


@dataclass(frozen=True)
class Costs:
    """Time and memory of the correct settings for one dtype, the recommended setting first.

    ``busy`` is True if the times are too noisy to compare.
    """

    dtype: str
    reference: str
    rows: tuple[SettingCost, ...]
    busy: bool


@dataclass(frozen=True)
class Recommendation:
    """Recommendation of a run.

    - ``cost``: cost of the recommended setting in words
    - ``costs``: time and memory of each correct setting, or None if there is nothing to compare
    - ``not_covered``: what was not tested
    - ``advice``: help outside the configuration, e.g. another build of PyTorch
    - ``per``: "dtype/purpose" -> verdict and setting
    - ``verify``: command that exits with 0 if the recommendation is correct
    - ``limits``: what fails under the recommended setting
    - ``devices``: recommendation for each device, if the run tested several devices
    - ``others``: further configurations that ``sentence`` recommends, keyed by their use, e.g. "float16"
    """

    verdict: Verdict
    sentence: str
    configuration: Configuration = Configuration()
    per: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    alternatives: tuple[Mapping[str, Any], ...] = ()
    cost: str = ""
    confidence: str = ""
    verify: str = ""
    confidence_level: ConfidenceLevel = ""
    not_covered: tuple[str, ...] = ()
    advice: tuple[OtherHelp, ...] = ()
    devices: Mapping[str, DeviceAnswer] = field(default_factory=dict)
    others: Mapping[str, Configuration] = field(default_factory=dict)
    costs: Optional[Costs] = field(default=None, metadata=OMIT_IF_EMPTY)
    limits: tuple[str, ...] = field(default=(), metadata=OMIT_IF_EMPTY)


@dataclass(frozen=True)
class Results:
    """A run: the content of ``results.json``.

    - ``rocmprobe``: version of rocmprobe, with the commit unless it is a release
    - ``started``, ``finished``: UTC
    - ``partial``: True if the run did not finish
    - ``simulated``: name of the simulated machine
    - ``redacted``: number of placeholders from redaction, by kind
    - ``changes``: differences from the baseline, or None without a baseline
    - ``telemetry``: readings of each device whose sensors were watched
    - ``not_reached``: number of planned cases without an outcome, because the run stopped early
    """

    schema_version: Version
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
    changes: Optional[Changes] = None
    telemetry: tuple[DeviceTelemetry, ...] = ()
    not_reached: Count = field(default=0, metadata=OMIT_IF_EMPTY)

    @property
    def purpose(self) -> str:
        """``training`` or ``inference``."""
        return "inference" if self.options.get("purpose") == "inference" else "training"

    @property
    def recommended(self) -> Optional[str]:
        """Name of the recommended setting, or None."""
        return self.recommendation.configuration.setting if self.recommendation else None

    def setting(self, name: Optional[str]) -> Optional[Setting]:
        """Return the setting called ``name``, or None."""
        return next((each for each in self.settings if each.name == name), None)

    @property
    def relative_path(self) -> str:
        """Path of this results.json, relative to the folder from which the run was started."""
        return str(PurePosixPath(str(self.options.get("folder", "."))) / "results.json")
