"""Data of a run: facts, settings, trials, outcomes, findings and the recommendation.

Each class is a frozen dataclass with the fields of one object of ``results.json`` (see ``docs/results.md``).
This module does no I/O and imports no torch.
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

CRASH_CAUSES = (
    "SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE", "SIGKILL", "SIGTERM", "other-signal",
    "exit", "oom-kill", "killed",
)  # fmt: skip
#: Causes of an outcome. The cause of a blocked outcome can also be "rung:" and the name of the failed rung.
CAUSES = (
    *CRASH_CAUSES, "timeout", "miopen-status", "device-error", "out-of-memory", "exception",
    "torch-unusable", "gpu-wedged", "many-hangs", "many-crashes", RUN_DIED, "machine-died",
)  # fmt: skip

MEMBER_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,39}", re.ASCII)

#: Metadata of a field that ``results.json`` contains only if the field is set.
OMIT_IF_EMPTY: Mapping[str, Any] = {"where set": True}

DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
#: Groups of checks (rungs), from simple to complex. A rung depends on the rungs before it.
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
#: Commands that a recommendation can contain.
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
    """Raised if the machine lacks the hardware or software that the user requested.

    The message says in one line what was searched for, and where.
    """

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

    - ``native_isa``: ISA of the chip, from the kernel driver, else from the PCI id.
    - ``effective_isa``: ISA that the ROCm runtime uses after any override.
    - ``uuid``: id that ROCm uses ("GPU-" and 16 digits).
    - ``order``: position in the ROCm runtime's list of GPUs.
    - ``index``: N of torch's ``cuda:N``. Unknown if environment variables hide the GPU.
    - ``pcie_atomics``: True if the path to the processor supports PCIe atomics.
    - ``pcie_link``: present link and best possible link.

    Fields from ``vram_used_bytes`` to ``memory_clock_mhz`` are present readings, each in the unit of its
    name: bytes, per cent, degrees Celsius, revolutions per minute, watts, megahertz. Clocks whose name begins
    with ``max`` are the highest clocks that the driver allows.
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


#: Facts that must be equal for the GPUs of two machines to count as equal.
GPU_IDENTITY = ("native_isa", "pci_id", "revision", "cus", "vram_bytes")


@dataclass(frozen=True)
class Machine:
    """Facts about a machine that can be collected without running a GPU kernel.

    ``variables`` has the environment variables that are set and that affect PyTorch or ROCm.
    """

    gpus: tuple[Gpu, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    variables: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def amd_gpus(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.vendor.value == "amd")

    def value(self, name: fact_types.FactName) -> Any:
        """Return the value of a fact, or None if the fact is unknown."""
        return self.facts.get(name, Fact()).value


@dataclass(frozen=True)
class Setting:
    """A named way to run a problem: environment variables, torch flags, vendor library or bypass.

    - ``torch``: values of the flags in ``knowledge.settings``.
    - ``vendor_library``: False if the backend's vendor library is disabled.
    - ``verdict``: verdict of the run if this setting is recommended.
    - ``since``, ``until``: first and last version of the vendor library in which the setting has an effect.
    - ``torch_since``, ``torch_until``: first and last version of PyTorch in which the setting has an effect.
    - ``isa``: regular expression for the native ISAs on which the setting has an effect.
    - ``search``: how MIOpen chooses a solver ("find", "immediate", "exhaustive", "find-2.0", or "" for the
      default). The flags for ``search`` are in ``torch``.
    - ``solver``: solver that a setting of the solver sweep forces.
    - ``pytorch_layers``: layers that PyTorch's own kernels compute, as keywords of
      ``rocmprobe.bypass.install``.
    - ``by_layer``: True for the derived setting that determines ``pytorch_layers``.
    - ``by_name``: True if the setting is used only by checks that name it, and never for convolution.
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
        """True if PyTorch runs unmodified, for convolution and for all other layers."""
        return self.verdict == "native" and not self.pytorch_layers

    @property
    def is_incomplete(self) -> bool:
        """True if this setting's variables or layers come from the run's results and are not chosen yet."""
        return self.derived and not (self.env or self.pytorch_layers)

    @property
    def changes_problems(self) -> bool:
        """True if the setting changes the dtype or the memory format of the problems."""
        return self.dtype is not None or self.channels_last


@dataclass(frozen=True)
class Trial:
    """A child process that ran cases with one driver, under one setting, on one device.

    ``exit`` is an exit code as text (e.g. "0"), a signal name, or "killed" if rocmprobe killed the child.
    ``exit_crash`` is True if the child crashed in teardown, after its last result. ``mapped`` lists the
    mapped files of HIP, rocBLAS and MIOpen, by library.
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
    """One try of a case. ``message`` is the log line that explains a failure."""

    state: str
    trial: str
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Result of one case under one setting.

    ``timings`` are in seconds, ``memory`` is in bytes, and ``numerics`` has the measured errors with their
    limits. ``ending`` says how a crashed or hung child ended: ``status`` as in ``Trial.exit``, ``phase`` (the
    last phase), ``after`` (the last event before the end) and ``oom_killed``. The latter is True if the Linux
    kernel killed the child for lack of memory, and None if this is unknown.

    ``workspace_bytes`` is the memory that the solver needs in addition to the tensors. ``find_db`` is "hit"
    or "miss" of MIOpen's find database. These fields are None if MIOpen's log does not contain them.

    ``calls`` are the calls of the driver ``capi`` into the libraries in the last try, with their status.
    Equal consecutive calls are merged. ``conditions`` are the clocks, temperatures and power "before" and
    "after" a measurement, by the names of ``telemetry.CONDITIONS``. ``conditions`` are empty if no sensor
    could be read.

    Findings and the recommendation use the observed state.
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
    operator: Annotated[Optional[str], Rule("maxLength", 200)] = field(default=None, metadata=OMIT_IF_EMPTY)

    @property
    def meaning(self) -> State:
        """Row for the outcome's state and cause in ``model.states``."""
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
    """A conclusion of the run, with its evidence and advice."""

    id: str
    severity: Severity
    cause: str
    layer: str
    title: str
    evidence: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Configuration:
    """Recommended configuration: the setting's name, variables to export, Python lines and layer switches."""

    setting: Optional[str] = None
    env: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    layers: tuple[str, ...] = ()
    command: Annotated[str, Rule("enum", COMMANDS)] = field(default="", metadata=OMIT_IF_EMPTY)


@dataclass(frozen=True)
class DeviceAnswer:
    """Recommendation for one of several devices.

    ``mask`` is the environment variable, as NAME=VALUE, that makes only this GPU visible to a program, or ""
    if unknown.
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
    """Recommendation of a run.

    ``per`` maps "dtype/purpose" to a verdict and setting. ``verify`` is a command that exits 0 if and only if
    the recommendation is correct. ``advice`` (with ``title``, ``text`` and ``source``) is help other than
    settings, e.g. another build of PyTorch.

    If a run tested several devices, ``devices`` has the recommendation for each device. ``others`` maps a
    special case, e.g. "float16", to the configuration that ``sentence`` recommends for this case.
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

    The step was timed with ``batch`` samples of the shape ``input``. The low and high values come from the
    10th and 90th percentiles of the step times. ``own`` marks the user's own network.
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

    ``left_out`` says what the times do not include.
    """

    images: Positive
    epochs: Positive
    batch: Optional[Positive]
    times: tuple[TrainingTime, ...] = ()
    left_out: tuple[str, ...] = ()
    own_left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepTime:
    """Duration of a recorded program under a setting.

    ``per`` is "step", or "program" if no training step is known. ``convolutions`` counts the computed
    directions (forward or a gradient), with repeats. ``timed`` counts the directions with a measured time.
    ``convolution_seconds`` is the sum of the convolutions' mean times. ``seconds`` adds the median time of
    everything else. The p10 and p90 fields use each convolution's 10th or 90th percentile instead. Unknown
    times are None, and ``reason`` says why.
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
    """The Python environment that ``--python`` selects: a name, and the path of the interpreter."""

    name: Name
    python: str

    @property
    def local_path(self) -> str:
        """Path of the interpreter on this machine. A redacted "<home>" becomes the present user's home."""
        return self.python.replace("<home>", str(Path.home()), 1)


@dataclass(frozen=True)
class Results:
    """A complete run: the content of ``results.json``.

    ``redacted`` counts the placeholders that redaction put into the file, by kind. ``changes`` are the
    differences from the baseline, or None if the run had no baseline. ``telemetry`` has each device whose
    sensors were watched. ``environment`` is None if the run tested the Python in which rocmprobe itself ran.
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
    environment: Optional[Environment] = field(default=None, metadata=OMIT_IF_EMPTY)

    @property
    def purpose(self) -> str:
        """``training`` or ``inference``, from the run's options."""
        return "inference" if self.options.get("purpose") == "inference" else "training"

    @property
    def recommended(self) -> Optional[str]:
        """Name of the recommended setting, or None if no setting is recommended."""
        return self.recommendation.configuration.setting if self.recommendation else None

    def setting(self, name: Optional[str]) -> Optional[Setting]:
        """Return the setting called ``name``, or None if the run had no such setting."""
        return next((each for each in self.settings if each.name == name), None)

    @property
    def relative_path(self) -> str:
        """Path of this run's results.json, relative to the folder from which the run was started."""
        return str(PurePosixPath(str(self.options.get("folder", "."))) / "results.json")


@dataclass(frozen=True)
class Member:
    """A Python environment of a joined run.

    The environment's run is an ordinary run in the folder ``name``. If there is no run, ``unusable`` is the
    reason, else "". ``seconds`` is the recommended setting's total time for the convolutions timed in every
    member, or None. ``note`` says why no setting works, or how long a training takes.
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
    """Runs of several Python environments on one machine.

    The members' folders are in the folder of this ``results.json``. ``partial`` is True until all members are
    complete.
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
        """Members that have a run."""
        return tuple(each for each in self.members if not each.unusable)
