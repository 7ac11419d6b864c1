"""Plan file: measured choices and proved plans, for later processes.

There is one file for each device, driver and torch version, in ``$XDG_CACHE_HOME/rocmprobe/bypass`` (or
``~/.cache``). The environment variable ``ROCMPROBE_BYPASS_PLANS`` sets another folder, and the value ``0``
disables the file. Each line is a JSON object, appended in a single write.
"""

from __future__ import annotations

import json
import os
import platform
import re
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Optional

import torch

from rocmprobe import output, user_cache
from rocmprobe.bypass.algorithms import ALGORITHMS
from rocmprobe.bypass.operators import lock_across_forks

VARIABLE = "ROCMPROBE_BYPASS_PLANS"
VERSION = 3
#: Maximum size of the file in bytes. A record has about 200 bytes.
_LARGEST = 64 * 2**20


@dataclass
class _Records:
    """Content of a plan file.

    Attributes:
        choices: name of the chosen plan, by task.
        faults: error message of a proof ("" if the plan is exact), by task and plan.
    """

    choices: dict[str, str] = field(default_factory=dict)
    faults: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, record: dict[str, Any]) -> None:
        """Add a record. Raise LookupError, TypeError or ValueError if it is invalid."""
        problem, plan = str(record["problem"]), record["plan"]
        if plan.split()[0] not in ALGORITHMS:
            raise ValueError(plan)
        if "fault" in record:
            self.faults[problem, plan] = str(record["fault"])
        else:
            self.choices[problem] = plan


_lock = lock_across_forks()
#: Records, keyed by device and path of the file.
_known: dict[tuple[str, Optional[Path]], _Records] = {}
_warned: set[Path] = set()


def choice(device: torch.device, problem: str) -> Optional[str]:
    """Return the name of the plan chosen by measurement, or None if ``problem`` has not been measured.

    Invalid lines in the file are ignored with one warning.
    """
    return _records(device).choices.get(problem)


def fault(device: torch.device, problem: str, plan: str) -> Optional[str]:
    """Return the error message of a plan's proof, "" if the plan is exact, or None without a proof."""
    return _records(device).faults.get((problem, plan))


def store_choice(device: torch.device, problem: str, plan: str) -> None:
    """Store ``plan`` as the choice for ``problem``. Warn if the file cannot be written."""
    _store(device, {"problem": problem, "plan": plan})


def store_fault(device: torch.device, problem: str, plan: str, message: str) -> None:
    """Store the result of a proof: an error message, or "" for an exact plan."""
    _store(device, {"problem": problem, "plan": plan, "fault": message})


def inexact() -> dict[str, str]:
    """Return the plans that failed their proof on the devices used so far, with the error message."""
    with _lock:
        return {
            f"{plan}: {problem}": message
            for records in _known.values()
            for (problem, plan), message in records.faults.items()
            if message
        }


def forget() -> None:
    """Forget the records in memory, so that the next call reads the file again."""
    with _lock:
        _known.clear()
        _warned.clear()


def _store(device: torch.device, record: dict[str, Any]) -> None:
    _records(device).add(record)
    path = _path(device)
    if path is None:
        return
    line = json.dumps({**_heading(device), **record})
    try:
        output.make_folder(path.parent)
        # The last line in the file can be incomplete, so begin a new line.
        output.append(path, f"\n{line}\n".encode())
    except OSError as error:
        _warn(path, f"cannot be written ({error.strerror}); choices are not saved")


def _path(device: torch.device) -> Optional[Path]:
    folder = user_cache.folder(os.environ, VARIABLE, "bypass")
    if folder is None:
        return None
    name = "-".join(str(each) for each in _heading(device).values())
    return folder / (re.sub(r"[^A-Za-z0-9.+]+", "-", name) + ".jsonl")


def _heading(device: torch.device) -> dict[str, object]:
    if device.type == "cuda":
        name, driver = _gpu(device)
    else:
        name, driver = f"{_processor()} {torch.get_num_threads()} threads", "none"
    return {"version": VERSION, "device": name, "driver": driver, "torch": str(torch.__version__)}


@cache
def _gpu(device: torch.device) -> tuple[str, str]:
    properties = torch.cuda.get_device_properties(device)
    name = f"{properties.name} {getattr(properties, 'gcnArchName', '')}".strip()
    return name, f"{torch.version.hip or torch.version.cuda} {platform.release()}"


@cache
def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return "cpu"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else "cpu"


def _records(device: torch.device) -> _Records:
    path = _path(device)
    place = (str(device), path)
    with _lock:
        if place not in _known:
            _known[place] = _Records() if path is None else _read(path, _heading(device))
        return _known[place]


def _read(path: Path, heading: dict[str, object]) -> _Records:
    records = _Records()
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        return records
    except OSError as error:
        _warn(path, f"cannot be read ({error.strerror})")
        return records
    if len(content) > _LARGEST:
        _warn(path, f"is larger than {_LARGEST} bytes; ignored")
        return records
    lines = [line for line in content.splitlines() if line.strip()]
    foreign = 0
    for line in lines:
        try:
            record = json.loads(line)
            if {name: record[name] for name in heading} != heading:
                raise ValueError
            records.add(record)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            foreign += 1
    if foreign:
        _warn(path, f"has lines without a plan for this device ({foreign} of {len(lines)}); they are ignored")
    return records


def _warn(path: Path, what: str) -> None:
    if path not in _warned:
        _warned.add(path)
        warnings.warn(f"rocmprobe.bypass: {path} {what}", stacklevel=2)
