"""The file that ``rocmprobe shapes`` writes: the distinct convolutions of a program.

Its fields are those of a problem in ``results.json``, with the device and how often each direction was
computed; they are described in ``docs/exec.md``.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocmprobe.model import DIRECTIONS, BadInput, write_whole
from rocmprobe.problems import KINDS, SHORT_DTYPES, Problem, parse_problem

SCHEMA_VERSION = 1


def writable(path: Path) -> Path:
    """Where to write: ``path``, or what it links to.

    Raises BadInput where no file can be written there, or where something other than a file is there.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise BadInput(f"{path}: is no file; name a file with -o")
    try:
        descriptor, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=target.parent)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror}); name another file with -o") from error
    return target


def write(path: Path, shapes: Mapping[str, Any]) -> None:
    """Write the file whole or not at all. Raises OSError."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **shapes}, indent=1) + "\n"
    write_whole(text.encode(), path.with_name(f".{path.name}.{os.getpid()}.tmp"), path)


def read_problems(path: Path) -> tuple[Problem, ...]:
    """The problems of a file in its order, each once: on which devices they were computed does not matter.

    Raises BadInput for a file that is missing, not JSON, of another version, or that holds something that is
    no problem (naming the place).
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        raise BadInput(f"{path}: {why}; name a file of `rocmprobe shapes`") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON ({error}); name a file of `rocmprobe shapes`") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema_version is {version!r}, this rocmprobe reads {SCHEMA_VERSION}; record it again"
        )
    records = data.get("problems")
    if not isinstance(records, list):
        raise BadInput(f"{path}: problems: is no list; record it again")
    found: dict[Problem, None] = {}
    for number, record in enumerate(records):
        try:
            found[problem_of(record)] = None
        except BadInput as error:
            raise BadInput(f"{path}: problems/{number}: {error}") from error
    return tuple(found)


def problem_of(record: Any) -> Problem:
    """The problem that one entry of the file describes.

    Raises BadInput for what is none: a field that is missing or of the wrong type, sizes that do not belong
    together, a dtype that rocmprobe does not ask about.
    """
    try:
        kind, dtype = record["kind"], record["dtype"]
        batch, channels, *image = map(int, record["input"])
        first, second, *filters = map(int, record["weight"])
        groups = int(record["groups"])
        stride, padding, dilation, output_padding = (
            tuple(map(int, record[name])) for name in ("stride", "padding", "dilation", "output_padding")
        )
        flags = bool(record["bias"]), bool(record["channels_last"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{type(error).__name__}: {error}; this is no recorded convolution") from error
    if kind not in KINDS or dtype not in SHORT_DTYPES:
        raise BadInput(f"{kind} in {dtype} is nothing that rocmprobe asks about")
    rank = KINDS[kind]
    if any(len(each) != rank for each in (image, filters, stride, padding, dilation, output_padding)):
        raise BadInput(f"{kind} needs {rank} number(s) for each of its sizes")
    if groups < 1:
        raise BadInput("groups must be at least 1")
    out_channels = second * groups if "transpose" in kind else first
    problem = Problem(
        kind, dtype, batch, channels, tuple(image), out_channels, tuple(filters), stride, padding,
        dilation, output_padding, groups, *flags,
    )  # fmt: skip
    if problem.weight_shape != (first, second, *filters):
        raise BadInput(f"weight: {first} and {second} do not belong to {channels} channels, groups {groups}")
    # The text form knows what PyTorch would refuse.
    return parse_problem(problem.text)


def counts_of(record: Mapping[str, Any]) -> dict[str, int]:
    """How often each direction of one entry was computed; 0 for all where the program died in it."""
    return {name: int(record.get("counts", {}).get(name, 0)) for name in DIRECTIONS}
