"""Plan file: the fastest measured algorithm of each problem, for later processes.

There is one file for each device and torch version, in ``$XDG_CACHE_HOME/rocmprobe/bypass`` (or
``~/.cache``). The environment variable ``ROCMPROBE_BYPASS_PLANS`` sets another folder, and the value ``0``
disables the file. Each line is a JSON object, appended in a single write.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from functools import cache
from pathlib import Path

import torch

from rocmprobe import output, user_cache
from rocmprobe.bypass.algorithms import ALGORITHMS
from rocmprobe.bypass.operators import lock_across_forks

VARIABLE = "ROCMPROBE_BYPASS_PLANS"
VERSION = 2
#: Maximum size of the file in bytes. A record has about 200 bytes.
_LARGEST = 64 * 2**20

_lock = lock_across_forks()
#: Fastest algorithms, keyed by device and path of the file, then by problem.
_known: dict[tuple[str, Path | None], dict[str, str]] = {}
_warned: set[Path] = set()


def load(device: torch.device, problem: str) -> str | None:
    """Return the name of the fastest measured plan, or None if ``problem`` has not been measured.

    Invalid lines in the file are ignored with one warning.
    """
    return _records(device).get(problem)


def store(device: torch.device, problem: str, algorithm: str) -> None:
    """Store ``algorithm`` as the fastest for ``problem``. Warn if the file cannot be written."""
    _records(device)[problem] = algorithm
    path = _path(device)
    if path is None:
        return
    record = {**_heading(device), "problem": problem, "algorithm": algorithm}
    try:
        output.make_folder(path.parent)
        # The last line in the file can be incomplete, so begin a new line.
        output.append(path, f"\n{json.dumps(record)}\n".encode())
    except OSError as error:
        _warn(path, f"cannot be written ({error.strerror}); measured times are not saved")


def forget() -> None:
    """Forget the records in memory, so that the next call reads the file again."""
    with _lock:
        _known.clear()
        _warned.clear()


def _path(device: torch.device) -> Path | None:
    folder = user_cache.folder(os.environ, VARIABLE, "bypass")
    if folder is None:
        return None
    name = "-".join(str(each) for each in _heading(device).values())
    return folder / (re.sub(r"[^A-Za-z0-9.+]+", "-", name) + ".jsonl")


def _heading(device: torch.device) -> dict[str, object]:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        name = f"{properties.name} {getattr(properties, 'gcnArchName', '')}".strip()
    else:
        name = f"{_processor()} {torch.get_num_threads()} threads"
    return {"version": VERSION, "device": name, "torch": str(torch.__version__)}


@cache
def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return "cpu"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else "cpu"


def _records(device: torch.device) -> dict[str, str]:
    path = _path(device)
    place = (str(device), path)
    with _lock:
        if place not in _known:
            _known[place] = {} if path is None else _read(path, _heading(device))
        return _known[place]


def _read(path: Path, heading: dict[str, object]) -> dict[str, str]:
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        _warn(path, f"cannot be read ({error.strerror})")
        return {}
    if len(content) > _LARGEST:
        _warn(path, f"is larger than {_LARGEST} bytes; ignored")
        return {}
    lines = [line for line in content.splitlines() if line.strip()]
    records: dict[str, str] = {}
    foreign = 0
    for line in lines:
        try:
            record = json.loads(line)
            if {name: record[name] for name in heading} != heading:
                raise ValueError
            if record["algorithm"].split()[0] not in ALGORITHMS:
                raise ValueError
            records[str(record["problem"])] = record["algorithm"]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            foreign += 1
    if foreign:
        _warn(path, f"has lines without a plan for this device ({foreign} of {len(lines)}); they are ignored")
    return records


def _warn(path: Path, what: str) -> None:
    if path not in _warned:
        _warned.add(path)
        warnings.warn(f"rocmprobe.bypass: {path} {what}", stacklevel=2)
