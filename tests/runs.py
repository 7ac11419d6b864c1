"""Real runs for tests: small simulated machines, rocmprobe as a process, and what is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command_host

from rocmprobe.model.results import Outcome, Results
from rocmprobe.model.results_file import read_results
from rocmprobe.simulate.machines import machine_names

CHECKOUT = Path(__file__).parents[1]
PROBLEM = "conv2d-fp32-n1-c4-i8x8-k4-f3x3"
#: One direction of one problem under two settings: the cheapest run that tells settings apart.
SMALL = ("--only", "convolution", "--settings", "vendor-off", "--problem", PROBLEM, "--purpose", "inference")

_GPU = """\
[[gpus]]
name = "Radeon of the tests"
vendor = "amd"
native_isa = "gfx1010"
effective_isa = "gfx1010"
"""
_FACTS = f"""\
summary = "a machine of the tests"
source = "made up"
{_GPU}[facts]
"torch.version" = "2.4.0+rocm6.1"
"torch.kind" = "rocm"
"""


#: Simulated machines that only tests need.
MACHINES = Path(__file__).with_name("machines")


def named_machine(name: str) -> str:
    """The value of --simulate for a machine that ships, or for one of ``MACHINES``."""
    path = MACHINES / f"{name}.toml"
    return str(path) if path.exists() else name


def all_machines() -> list[str]:
    """The machines that ship and ``MACHINES``, as values of --simulate."""
    return [*machine_names(), *sorted(map(str, MACHINES.glob("*.toml")))]


def machine_file(
    path: Path, *faults: Mapping[str, Any], gpus: int = 1, fresh: bool = False, **budgets: float
) -> Path:
    """Write a simulated machine that has ``faults``; budgets in seconds, generous unless given. With
    ``fresh``, each case runs in a child of its own."""
    facts = _FACTS.replace(_GPU, "".join(_GPU + f"index = {number}\n" for number in range(gpus)))
    lines = [
        *(["fresh = true"] if fresh else []),
        facts if gpus > 1 else _FACTS,
        "[budgets]",
        *(f"{name} = {seconds}" for name, seconds in budgets.items()),
    ]
    for fault in faults:
        lines += ["[[faults]]", *(f"{name} = {_toml(value)}" for name, value in fault.items())]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def _toml(value: Any) -> str:
    """JSON's texts, numbers and arrays are TOML, too; its objects are not."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {json.dumps(inner)}' for name, inner in value.items())} }}"
    return json.dumps(value)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what the pytest that runs it has put there, and GitHub."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GITHUB_"))}
    return {**own, **(extra or {})}


def rocmprobe(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    python: Path | str = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, in a process of its own."""
    command = [str(python), "-m", "rocmprobe", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=environment(env), capture_output=True, text=True, timeout=300, check=False
    )


def cli(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    python: Path | str = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, in a process that ran others before and may run more."""
    words = [str(each) for each in arguments]
    return command_host.ask(words, environment(env), str(cwd or Path.cwd()), str(python))


@dataclass
class Run:
    """A folder that holds a run, and how the process that made it ended."""

    folder: Path
    ended: subprocess.CompletedProcess[str]

    @property
    def results(self) -> Results:
        return read_results(self.folder / "results.json")

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {outcome.id: outcome for outcome in self.results.outcomes}

    def of(self, setting: str, problem: str = PROBLEM, direction: str = "fwd") -> Outcome:
        """The outcome of a convolution."""
        endings = (f"/{setting}/convolution/{problem}/{direction}",)
        return next(outcome for name, outcome in self.outcomes.items() if name.endswith(endings))

    @property
    def states(self) -> dict[str, str]:
        return {name: outcome.state for name, outcome in self.outcomes.items()}


def run(folder: Path, *arguments: object, **process: Any) -> Run:
    """``rocmprobe run`` into ``folder``: in a process of its own where anything is said about the process,
    else in one that made other runs before, and may make more."""
    if process:
        return Run(folder, rocmprobe("run", "--out", folder, *arguments, **process))
    return Run(folder, cli("run", "--out", folder, *arguments))


def resume(folder: Path, *arguments: object) -> Run:
    """``rocmprobe run --resume``, for good: the process that does it keeps the run's lock."""
    return Run(folder, cli("run", "--resume", folder, *arguments))


def journal(folder: Path) -> list[dict[str, Any]]:
    """Every record; fails where a line other than the last does not parse."""
    path = folder / "journal.jsonl"
    *whole, last = path.read_text("utf-8").split("\n") if path.exists() else [""]
    records = [json.loads(line) for line in whole if line]
    try:
        return [*records, json.loads(last)] if last else records
    except ValueError:
        return records


def kinds(folder: Path) -> list[str]:
    return [record["record"] for record in journal(folder)]


def spans(folder: Path, **question: str) -> list[tuple[float, float]]:
    """From when to when the device was asked each question that has these words, such as ``check="gemm"``."""
    begun: dict[str, float] = {}
    found = []
    for record in journal(folder):
        if record["record"] == "intent" and question.items() <= record["question"].items():
            begun[record["case"]] = record["at"]
        elif record["record"] == "outcome" and record["outcome"]["id"] in begun:
            found.append((begun[record["outcome"]["id"]], record["at"]))
    return found


def wait_until(condition: Callable[[], object], seconds: float = 120.0) -> bool:
    """Whether ``condition`` comes true before ``seconds`` are over."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def ignoring(*signals: signal.Signals) -> list[str]:
    """What stands before a command that is to be started to ignore ``signals``."""
    names = " ".join(number.name[3:] for number in signals)
    return ["sh", "-c", f"trap '' {names}; exec \"$@\"", "sh"] if names else []


class Started:
    """The command line in a session of its own, with a mark by which all that it starts is found. It is
    started to ignore the signals that are ``ignored``, as under nohup or in the background of a script."""

    def __init__(
        self,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        ignored: Collection[signal.Signals] = (),
    ) -> None:
        # Children get LC_* of the user's environment, and so keep the mark.
        self._mark = f"LC_ROCMPROBE_TEST={uuid.uuid4().hex}".encode()
        name, value = self._mark.decode().split("=")
        command = [sys.executable, "-m", "rocmprobe", *map(str, arguments)]
        self.process = subprocess.Popen(
            [*ignoring(*ignored), *command],
            env=environment({**(env or {}), name: value}), start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def reaches(self, condition: Callable[[], object]) -> bool:
        """Wait for ``condition``; False where the process ends before."""
        return (
            wait_until(lambda: self.process.poll() is not None or condition()) and self.process.poll() is None
        )

    def kill(self) -> None:
        """``kill -9`` of the process that the user started, and of nothing else."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def interrupt(self) -> str:
        """Ctrl-C, which a terminal sends to the whole group; returns what was printed."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.communicate(timeout=60)[0]

    def terminate(self) -> str:
        """SIGTERM to the process that the user started alone; returns what was printed."""
        return self.end(signal.SIGTERM)

    def end(self, number: signal.Signals) -> str:
        """A signal to the process that the user started alone; returns what was printed."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[0]

    def alive(self) -> list[int]:
        """Processes that carry the mark."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self._mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


class Background(Started):
    """``rocmprobe run`` into ``folder``, so started."""

    def __init__(self, folder: Path, *arguments: object, **started: Any) -> None:
        self.folder = folder
        super().__init__("run", "--out", folder, *arguments, **started)
