"""What a run knows: facts, settings, trials, outcomes, findings and the recommendation.

Everything here is a frozen dataclass that mirrors one object of ``results.json`` (described in
``docs/results.md``; ``results_file`` reads and writes it). No I/O, and no torch.
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
    The clocks that begin with ``max`` are the highest that the driver sets.
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
    and what it came to; findings and recommendation rest on that. ``operator`` is PyTorch's name of the
    operator of a sweep.
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
