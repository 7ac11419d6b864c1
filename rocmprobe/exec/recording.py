"""Functions that run a program as a child, and merge the records of its processes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from rocmprobe.exec import command as launch
from rocmprobe.exec import runner
from rocmprobe.model import shapes
from rocmprobe.model.results import DIRECTIONS
from rocmprobe.text.reading import json_line, lines_of
from rocmprobe.text.redact import redacted


def record(command: Sequence[str], path: Path, force: bool) -> tuple[int, Optional[int]]:
    """Run ``command``, and write its convolutions to the file ``path``.

    Return (code of :func:`runner.run`, number of problems). If the program fails, it does not replace an
    earlier recording unless ``force``, and the number is None. Raise BadInput, before the program starts, if
    the program does not exist or the file cannot be written (``output.write``). Raise OSError if writing
    fails later.
    """
    program = launch.find_program(command, os.environ)
    shapes.check_writable(path, force)
    folder = Path(tempfile.mkdtemp(prefix="rocmprobe-shapes-"))
    try:
        environ = launch.with_configuration({**os.environ, launch.RECORD: str(folder), **launch.NO_PACKING})
        code = runner.run(program, command, environ)
        found = merged(folder)
        if code and not force and path.is_file() and path.stat().st_size:
            return code, None
        shapes.write(path, {"command": redacted(list(command)), **found}, force)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return code, len(found["problems"])


def merged(folder: Path) -> dict[str, Any]:
    """Merge the records of all processes in ``folder``.

    The result has the versions of torch, and the problems in the order of their first calls.
    """
    processes = [_Process(path) for path in sorted(folder.glob("*.jsonl"))]
    found: dict[str, _Problem] = {}
    for process in processes:
        for at, described, counts in process.problems():
            key = json.dumps(described, sort_keys=True)
            problem = found.setdefault(key, _Problem(at, described))
            problem.first = min(problem.first, at)
            problem.counts = [one + other for one, other in zip(problem.counts, counts)]
    problems = sorted(found.values(), key=lambda each: each.first)
    return {
        "torch": sorted({version for process in processes for version in process.versions}),
        "problems": [each.as_json() for each in problems],
    }


class _Problem:
    def __init__(self, first: float, described: dict[str, Any]) -> None:
        self.first = first
        self.described = described
        self.counts = [0] * len(DIRECTIONS)

    def as_json(self) -> dict[str, Any]:
        return {**self.described, "counts": dict(zip(DIRECTIONS, self.counts))}


class _Process:
    """The records of one process, up to the first incomplete line."""

    def __init__(self, path: Path) -> None:
        self.versions: list[str] = []
        self._recorded: list[tuple[float, dict[str, Any]]] = []
        self._counts = array("q")
        # Stop at an incomplete line, which a killed process or a full disk can leave.
        with path.open("rb") as stream, suppress(KeyError, TypeError):
            for line in map(json_line, lines_of(stream)):
                if "torch" in line:
                    self.versions.append(line["torch"])
                else:
                    self._recorded.append((line["at"], line["problem"]))
        for block in sorted(path.parent.glob(f"{path.name}.*"), key=lambda each: int(each.suffix[1:])):
            self._counts.frombytes(block.read_bytes())

    def problems(self) -> Iterator[tuple[float, dict[str, Any], list[int]]]:
        """Yield (time of the first call, problem, number of calls per direction) of each problem."""
        columns = len(DIRECTIONS) + 1
        for number, (at, problem) in enumerate(self._recorded):
            *counts, failed = self._counts[columns * number : columns * (number + 1)]
            # PyTorch rejected a problem of which every call failed. If the process died in the first call,
            # the problem has no count.
            if any(counts) or not failed:
                yield at, problem, counts
