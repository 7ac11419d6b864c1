"""Functions that run rocminfo, rocm-smi and amd-smi and return the facts in their output.

Each tool runs for at most a few seconds, because a broken driver can block the tool forever.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

from rocmprobe.detect.programs import rocminfo, smi
from rocmprobe.detect.programs.tool_failures import Failure, first_lines
from rocmprobe.detect.stack import loader
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact
from rocmprobe.process import children

#: Timeout of a tool in seconds. amd-smi takes more than a second on a server with eight GPUs.
SECONDS = 5.0
#: Largest number of bytes stored per output stream. rocminfo prints about 6 kB per GPU, for up to 64 GPUs.
_KEPT = 1 << 21
_NOT_INSTALLED = "not on PATH and not in /opt/rocm*/bin"
_NOTHING = children.ProgramResult("no answer, and it cannot be killed")


@dataclass
class ToolRun:
    """A running tool, and the thread that waits for the tool."""

    tool: Tool
    path: str
    thread: threading.Thread
    ended: Optional[children.ProgramResult] = None

    def result(self) -> children.ProgramResult:
        # Limit the wait, because even starting a program can hang if its disk is on the network.
        self.thread.join(SECONDS + 2 * children.KILLED_AFTER)
        return self.ended or _NOTHING


@dataclass(frozen=True)
class Tool:
    """A program, its arguments, and the parser of its output.

    The parser returns two values: a dict of facts, e.g. with the key "agents", and a failure or None.
    """

    name: str
    arguments: tuple[str, ...]
    read: Callable[[str], tuple[dict[str, Any], Optional[Failure]]]

    @property
    def prefix(self) -> str:
        return self.name.replace("-", "_")


def start(tree: Tree, environ: Mapping[str, str]) -> list[ToolRun]:
    """Start every installed tool, each in a separate thread. For a recorded tree, start no tool."""
    if not tree.own:
        return []
    runs = []
    for tool in TOOLS:
        path = _find(tree, tool.name, environ.get("PATH", os.defpath))
        if path:
            runs.append(_start(tool, path, environ))
    return runs


def read_facts(tree: Tree, runs: list[ToolRun], asleep: Sequence[str] = ()) -> dict[str, Fact]:
    """Return the facts of each tool.

    - ``TOOL.exit``: e.g. "0", "SIGSEGV", "no answer in 5 s" or the reason why the tool did not start. If the
      tool did not run, e.g. because a GPU is suspended (``asleep``), the fact has no value.
    - ``TOOL.state``: "ok", "driver-not-loaded", "permission-denied", "no-kfd", "kfd-refused",
      "hsa-init-failed", "no-gpu-agents", "no-gpu", "unsupported-gpu", "no-wsl-adapter", "library-missing",
      "tool-broken", "timeout", "unkillable", "crashed", "not-started" or "not-understood"
    - ``TOOL.meaning``: explanation of a state other than "ok"
    - ``TOOL.message``: line of the output that shows why the state is not "ok"
    - ``rocminfo.agents``: GPUs, with the ISA that the runtime reports
    - ``rocminfo.runtime``: version of the runtime
    - ``rocminfo.not_learned``: fields that the output lacks, one line per GPU
    - ``rocm_smi.gpus``, ``rocm_smi.driver``, ``amd_smi.gpus``, ``amd_smi.driver``
    """
    facts: dict[str, Fact] = {}
    running = {run.tool.name: run for run in runs}
    for tool in TOOLS:
        run = running.get(tool.name)
        if run is None:
            why = _NOT_INSTALLED if tree.own else "not run: --root"
            if asleep:
                why = f"not run: it would wake {asleep[0]}, which is suspended"
            facts[f"{tool.prefix}.exit"] = Fact(None, f"{tool.name}: {why}")
        else:
            facts.update(_facts(run))
    return facts


def _facts(run: ToolRun) -> dict[str, Fact]:
    ended = run.result()
    command = " ".join((run.path, *run.tool.arguments))
    text = f"{ended.out}\n{ended.err}"
    found, failure = run.tool.read(text)
    failure = _failure_by_exit(ended.failure or "", text) or failure
    if failure is None and not any(found.values()):
        failure = Failure("not-understood", "its output is not understood")
    status = (ended.failure or "0").replace("exit status ", "")
    facts: dict[str, Any] = {"exit": status, "state": failure.state if failure else "ok", **found}
    if failure:
        facts["meaning"] = failure.meaning
        facts["message"] = failure.line or first_lines(text) or None
    return {f"{run.tool.prefix}.{name}": Fact(value, command) for name, value in facts.items()}


def _failure_by_exit(how: str, text: str) -> Optional[Failure]:
    """Return the failure of a tool that timed out, crashed or did not start, else None."""
    if not how or how.startswith("exit status"):
        return None
    line = first_lines(text)
    if "cannot be killed" in how:
        return Failure("unkillable", f"{how}: it waits inside the kernel for a driver that is stuck", line)
    if how.startswith("no answer"):
        return Failure("timeout", f"{how}: the GPU or its driver hangs, or the machine is busy", line)
    if how.lower().startswith("sig"):
        return Failure("crashed", f"it was ended by {how}", line)
    return Failure("not-started", f"it cannot be started: {how}")


def _find(tree: Tree, name: str, path: str) -> Optional[str]:
    """Search the folders in ``path`` (in the format of PATH), then /opt/rocm*/bin, for the tool ``name``.

    Return the path of the tool, or None.
    """
    found = shutil.which(name, path=path)
    if found:
        return found
    # Try /opt/rocm first, then the releases sorted by number, because 6.10 is newer than 6.9.
    releases = sorted(
        loader.rocm_folders(tree),
        key=lambda folder: (folder == f"{loader.OPT}/rocm", _numbers(folder)),
        reverse=True,
    )
    places = (f"{folder}/bin/{name}" for folder in releases)
    return next((place for place in places if os.access(tree.locate(place), os.X_OK)), None)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]{1,9}", text)]


def _start(tool: Tool, path: str, environ: Mapping[str, str]) -> ToolRun:
    def work() -> None:
        run.ended = children.run((path, *tool.arguments), environ, SECONDS, _KEPT)

    thread = threading.Thread(target=work, name=tool.name, daemon=True)
    run = ToolRun(tool, path, thread)
    thread.start()
    return run


def _read_rocminfo(text: str) -> tuple[dict[str, Any], Optional[Failure]]:
    info = rocminfo.parse(text)
    agents = [{**dataclasses.asdict(agent), "isas": list(agent.isas)} for agent in info.gpus]
    facts: dict[str, Any] = {"agents": agents, "runtime": info.runtime_version} if info.agents else {}
    missing = [
        f"rocminfo's entry for {gpu.gfx or gpu.name or 'a GPU'} lacks {', '.join(gpu.not_learned)}"
        for gpu in info.gpus
        if gpu.not_learned
    ]
    return ({**facts, "not_learned": missing} if missing else facts), info.failure


def _read_smi(parse: Callable[[str], smi.Smi]) -> Callable[[str], tuple[dict[str, Any], Optional[Failure]]]:
    def read(text: str) -> tuple[dict[str, Any], Optional[Failure]]:
        found = parse(text)
        gpus = [dataclasses.asdict(gpu) for gpu in found.gpus]
        return ({"gpus": gpus, "driver": found.driver} if gpus else {}), found.failure

    return read


#: rocm-smi has had these options since ROCm 3.8. amd-smi has had its options in ``TOOLS`` since ROCm 5.6.
_ROCM_SMI = ("--showproductname", "--showid", "--showbus", "--showmeminfo", "vram", "--showtemp",
             "--showdriverversion", "--json")  # fmt: skip
TOOLS = (
    Tool("rocminfo", (), _read_rocminfo),
    Tool("rocm-smi", _ROCM_SMI, _read_smi(smi.parse_rocm_smi)),
    Tool("amd-smi", ("static", "--json"), _read_smi(smi.parse_amd_smi)),
)
