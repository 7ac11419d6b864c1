"""Simulated machines: recorded facts and the faults of one machine, from ``data/machines/*.toml``.

A fault happens where the simulated machine would enter MIOpen (library ``miopen``), rocBLAS (``rocblas``), a
kernel made by Triton (``triton``) or any kernel at all (``hip``). Faults are data, so a new machine needs no
code.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Optional

from rocmprobe.knowledge.miopen_files import database_name
from rocmprobe.knowledge.solvers import by_name, in_play
from rocmprobe.knowledge.visible_devices import visible
from rocmprobe.model.problems import DTYPES, parse_problem
from rocmprobe.model.results import DIRECTIONS, BadInput, Fact, Gpu, Machine
from rocmprobe.model.results_file import check_facts
from rocmprobe.model.telemetry import DeviceTelemetry, planted
from rocmprobe.simulate.generated import ALL_FAULTS, BUGS, DEFAULT_BUG, PHASES, generated, planted_machine
from rocmprobe.simulate.speeds import Speeds, speeds_of
from rocmprobe.text import reading
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.suggestions import did_you_mean

LIBRARIES = ("miopen", "rocblas", "hip", "triton")
#: The operators of a fault of triton: a kernel that a program launches, or those that Inductor makes.
COMPILED = ("kernel", "inductor")
#: raise: RuntimeError(message); wrong: a wrong result, by ``bug``; signal: the child dies by ``signal``;
#: exit: os._exit(3); hang: sleeps for ever; busy: spins for ever, in C; ignore-term: a hang that SIGTERM does
#: not end; flood: prints 64 MB and continues; garbage: writes nonsense and half an event on the event pipe
#: and continues; memory: allocates up to a limit; grandchild: leaves a process that keeps the pipes open and
#: continues; grandchild-exit: the same, and exits; print: only prints ``stderr``; search: the first call of
#: each problem takes ``seconds`` longer, by a clock for which nobody waits; ``kept`` in the user's database,
#: it takes that long once for all processes; flip: once in a process, one element of a convolution's result
#: in float32 has its ``bit`` flipped.
EFFECTS = (
    "raise", "wrong", "signal", "exit", "hang", "busy", "ignore-term", "flood", "garbage", "memory",
    "grandchild", "grandchild-exit", "print", "search", "flip",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A rule for what goes wrong in which calls.

    What to match: an empty tuple matches everything. ``problem`` is a regular expression over the problem's
    text, ``operator`` one over the names of PyTorch's operators. Without ``operator``, a fault of ``miopen``
    is about convolution; for ``triton`` it is one of ``COMPILED``. With ``unless``, variables with these
    values prevent the fault. With ``solver``, the fault happens wherever MIOpen tries one of these solvers,
    whichever it then takes: Find compiles and runs them all. With a ``chance`` below 1, the fault comes and
    goes.

    What happens: ``stderr`` texts, by direction or for "any", are printed as the library would print them, at
    the file-descriptor level. A fault that ``poisons`` leaves the device context unusable. ``bug``, a name in
    ``generated.BUGS``, is how a convolution is wrong. ``seconds`` is the time of a search, whose result is
    ``kept`` in the user's database or forgotten with the process. ``kernel`` holds lines that the kernel logs
    at this moment.

    In ``phase`` "first-call" the fault happens at every call of the library, in "steady" at the calls after a
    case's first. The earliest call is the one ``after`` so many steady calls of the case. The other phases
    are outside of the library: "import" is about the case that the child is started for, "teardown" about the
    last case that it answered.
    """

    library: str
    effect: str
    phase: str = "first-call"
    settings: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    directions: tuple[str, ...] = ()
    problem: str = ""
    operator: str = ""
    unless: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    signal: str = "SIGSEGV"
    stderr: Mapping[str, str] = field(default_factory=dict)
    chance: float = 1.0
    poisons: bool = False
    source: str = ""
    solver: tuple[str, ...] = ()
    bug: str = DEFAULT_BUG
    seconds: float = 0.0
    kept: bool = False
    after: int = 0
    bit: int = 22
    kernel: tuple[str, ...] = ()

    @property
    def in_call(self) -> bool:
        """Return True if the fault happens inside a library call."""
        return self.phase in ("first-call", "steady")

    def matches(
        self, setting: str, problem: str, dtype: str, direction: str, environ: Mapping[str, str]
    ) -> bool:
        return (
            (not self.settings or setting in self.settings)
            and (not self.dtypes or dtype in self.dtypes)
            and (not self.directions or direction in self.directions)
            and re.search(self.problem, problem) is not None
            and not any(environ.get(name) == value for name, value in self.unless.items())
        )


@dataclass(frozen=True)
class SimulatedMachine:
    """A simulated machine: its facts, and what goes wrong on it.

    ``budgets`` (by name) replace those of the level (``engine/options.py``), so that nobody waits in full for
    a machine that hangs. ``problems`` are tested if the user names none. With ``fresh`` every case has a
    separate child. ``solvers`` are those that its MIOpen has; empty means all that ``data/solvers.toml``
    allows. ``telemetry`` is what its sensors read over a run. ``speeds`` give the times of throughput and
    training; without them, the times are those of the simulating CPU.
    """

    name: str
    summary: str
    machine: Machine
    faults: tuple[Fault, ...]
    source: str
    budgets: Mapping[str, float]
    problems: tuple[str, ...] = ()
    fresh: bool = False
    solvers: tuple[str, ...] = ()
    telemetry: tuple[DeviceTelemetry, ...] = ()
    speeds: tuple[Speeds, ...] = ()

    def database(self, device: str) -> str:
        """Return the name of the file in which MIOpen keeps the searches of torch's ``device``."""
        gpu = self._gpu(device)
        isa, cus = (gpu.effective_isa.value, gpu.cus.value) if gpu else (None, None)
        version = str(self.machine.value("miopen.version") or "0.0.0").replace(".", "_")
        return f"{database_name(isa or 'gfx900', cus or 64)}.HIP.{version}_.ufdb.txt"

    def _gpu(self, device: str) -> Optional[Gpu]:
        gpus, number = visible(self.machine, "amd"), int(device.partition(":")[2] or 0)
        return gpus[number] if number < len(gpus) else None

    def in_play(
        self, problem: str, direction: str, device: str, environ: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Return the names of the solvers that MIOpen tries. MIOpen takes the first one.

        ``problem`` is a text, ``device`` torch's name ("cuda:0").
        """
        gpu = self._gpu(device)
        isa = gpu.effective_isa.value if gpu else None
        version = str(self.machine.value("miopen.version") or "")
        tried = (solver.name for solver in in_play(problem, direction, isa, version, environ))
        return tuple(name for name in tried if not self.solvers or name in self.solvers)


#: Bytes of a machine's file.
_LARGEST = 2**20
_COMPARE = "compare with rocmprobe/data/machines/README.md"


def machine_names() -> tuple[str, ...]:
    folder = resources.files("rocmprobe").joinpath("data/machines")
    files = [entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return tuple(sorted([*files, ALL_FAULTS]))


def load_machine(name: str) -> SimulatedMachine:
    """Return the simulated machine called ``name``, or the one in the file ``name`` if it ends in ``.toml``.

    Not in ``machine_names`` are those of ``generated.fault_machine`` and ``generated.planted_machine``.
    Raises BadInput for an unknown name, or a file that is missing, not TOML, or has unknown fields.
    """
    if made := generated(name):
        return _machine(name, made)
    if name.endswith(".toml"):
        content = reading.read_bytes(Path(name), "--simulate takes a machine or a TOML file", _LARGEST)
        title = Path(name).stem
    else:
        if name not in machine_names():
            near = did_you_mean(name, (*machine_names(), *map(planted_machine, BUGS)))
            raise BadInput(
                f"--simulate: no machine {name!r}{near or ';'} `rocmprobe list machines` prints their names"
            )
        content = resources.files("rocmprobe").joinpath(f"data/machines/{name}.toml").read_bytes()
        title = name
    data = reading.toml_of(content, f"--simulate: {name}", _COMPARE)
    try:
        return _machine(title, data)
    except (TypeError, ValueError) as error:
        # A field that a dataclass does not know is a TypeError.
        raise BadInput(f"--simulate: {name}: {one_line(str(error), 400)}; {_COMPARE}") from error


def _machine(name: str, data: Mapping[str, Any]) -> SimulatedMachine:
    known = (
        "summary", "source", "gpus", "facts", "variables", "faults", "budgets", "problems", "fresh",
        "solvers", "telemetry", "speeds",
    )  # fmt: skip
    for key in data:
        if key not in known:
            raise ValueError(f"{key!r} is not one of {', '.join(known)}")
    for key in ("summary", "source"):
        if not isinstance(data.get(key), str):
            raise ValueError(f"{key!r} must be there, as text")
    origin = f"simulated machine {name}"

    def facts(row: Mapping[str, Any]) -> dict[str, Fact]:
        return {key: Fact(value, origin) for key, value in row.items()}

    speeds = tuple(map(speeds_of, _tables(data, "speeds")))
    times = {"simulation.times": "the machine's file"} if speeds else {}
    machine = Machine(
        tuple(Gpu(**facts(row)) for row in _tables(data, "gpus")),
        facts({**_table(data, "facts"), **times}),
        facts(_table(data, "variables")),
    )
    try:
        check_facts(machine)
    except BadInput as error:
        raise ValueError(str(error)) from error
    faults = tuple(_fault(row) for row in _tables(data, "faults"))
    fresh = data.get("fresh", False)
    if not isinstance(fresh, bool):
        raise ValueError("'fresh' must be true or false")
    offered = data.get("solvers", [])
    if not isinstance(offered, list):
        raise ValueError("'solvers' must be an array of names")
    _known("solvers", "solver", tuple(offered), tuple(by_name()))
    return SimulatedMachine(
        name, data["summary"], machine, faults, data["source"], _budgets(data), _problems(data), fresh,
        tuple(offered), tuple(map(planted, _tables(data, "telemetry"))), speeds,
    )  # fmt: skip


def _known(where: str, what: str, values: tuple[Any, ...], known: tuple[str, ...]) -> None:
    for value in values:
        if value not in known:
            raise ValueError(f"{where}: {what} {value!r} is not one of {', '.join(known)}")


def _problems(data: Mapping[str, Any]) -> tuple[str, ...]:
    texts = data.get("problems", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("'problems' must be an array of texts")
    try:
        return tuple(parse_problem(text).text for text in texts)
    except BadInput as error:
        raise ValueError(f"problems: {error}") from error


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise ValueError(f"{key!r} must be a table, [{key}]")
    return table


def _tables(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    tables = data.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"{key!r} must be tables, [[{key}]]")
    return tables


def _budgets(data: Mapping[str, Any]) -> Mapping[str, float]:
    budgets = _table(data, "budgets")
    for name, seconds in budgets.items():
        if not _is_number(seconds) or seconds <= 0:
            raise ValueError(f"budgets: {name!r} must be a number above 0")
    return budgets


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fault(row: Mapping[str, Any]) -> Fault:
    """Return a fault. Refuse one that could never happen: its machine would seem to have no faults."""
    for name, value in row.items():
        if type(value) not in _FAULT_TYPES.get(name, (str,)):
            raise ValueError(f"fault: {name} = {value!r} has the wrong type")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not all(isinstance(item, str) for item in inner):
            raise ValueError(f"fault: {name} must hold text only")
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
    }
    fault = Fault(**fields)
    for what, values, known in (
        ("library", (fault.library,), LIBRARIES),
        ("effect", (fault.effect,), EFFECTS),
        ("phase", (fault.phase,), (*PHASES, "yardstick")),
        ("dtype", fault.dtypes, tuple(DTYPES.values())),
        ("direction", fault.directions, DIRECTIONS),
        ("signal", (fault.signal,), tuple(signal.Signals.__members__)),
        ("solver", fault.solver, tuple(by_name())),
        ("bug", (fault.bug,), tuple(BUGS)),
    ):
        _known("fault", what, values, known)
    if fault.library == "triton":
        _known("fault", "operator", (fault.operator,), COMPILED)
    if "bug" in row and (fault.effect != "wrong" or fault.operator):
        raise ValueError("fault: a bug is of a convolution whose effect is 'wrong'")
    if fault.effect == "wrong" and not fault.in_call:
        raise ValueError(f"fault: nothing is computed in phase {fault.phase!r} that could be wrong")
    if fault.solver and (fault.library != "miopen" or fault.operator or not fault.in_call):
        raise ValueError("fault: a solver runs in calls of miopen's convolution alone")
    if (fault.effect == "search") != (fault.seconds > 0):
        raise ValueError("fault: 'search' takes 'seconds' above 0, and no other effect has any")
    if fault.kept and fault.effect != "search":
        raise ValueError("fault: only the result of a 'search' can be kept")
    if fault.effect == "search" and (fault.library != "miopen" or fault.operator or not fault.in_call):
        raise ValueError("fault: a search is for a solver of miopen's convolution")
    if fault.effect == "flip" and (fault.operator or not fault.in_call):
        raise ValueError("fault: a bit is flipped in the result of a convolution alone")
    if not 0 <= fault.bit < 32 or fault.after < 0:
        raise ValueError("fault: 'bit' is from 0 to 31, and 'after' is not negative")
    if not 0 <= fault.chance <= 1:
        raise ValueError(f"fault: chance {fault.chance} is not between 0 and 1")
    for what, pattern in (("problem", fault.problem), ("operator", fault.operator)):
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"fault: {what} {pattern!r} is not a regular expression: {error}") from error
    return fault


#: TOML types of the fields of a fault that are not plain text.
_FAULT_TYPES: Mapping[str, tuple[type, ...]] = {
    "settings": (list,), "dtypes": (list,), "directions": (list,), "solver": (list,),
    "unless": (dict,), "stderr": (dict,), "chance": (int, float), "poisons": (bool,),
    "seconds": (int, float), "kept": (bool,), "after": (int,), "bit": (int,), "kernel": (list,),
}  # fmt: skip


def torch_version(machine: Machine) -> Optional[tuple[int, int]]:
    """Return (major, minor) of the machine's torch, which decides what enters MIOpen."""
    match = re.match(r"(\d+)\.(\d+)", str(machine.value("torch.version") or ""))
    return (int(match[1]), int(match[2])) if match else None
