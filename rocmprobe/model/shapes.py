"""The file that ``rocmprobe shapes`` writes: the distinct convolutions of a program.

Each entry has the fields of a problem in ``results.json``, the device, and how often each direction was
computed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmprobe.model.problems import KINDS, SHORT_DTYPES, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS, BadInput
from rocmprobe.model.results_file import write_atomically
from rocmprobe.model.schema import Count
from rocmprobe.text import reading
from rocmprobe.text.plain_text import quoted

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Recorded:
    """A problem in its text form, and how often a program computed each direction."""

    problem: str
    counts: Mapping[str, Count]

    @property
    def flops(self) -> int:
        """Number of arithmetic operations that the program spent on this problem."""
        return parse_problem(self.problem).flops * sum(self.counts.values())


@dataclass(frozen=True)
class Shapes:
    """The convolutions of a program. ``torch`` has the versions of torch that ran the program."""

    problems: tuple[Recorded, ...]
    torch: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(each.problem for each in self.problems)

    def heaviest(self, most: int) -> tuple[str, ...]:
        """Return up to ``most`` problems, sorted by their total arithmetic, largest first."""

        def work(each: Recorded) -> tuple[int, int]:
            # If the program died while it computed a problem, the problem's count is 0.
            return each.flops, parse_problem(each.problem).flops

        return tuple(each.problem for each in sorted(self.problems, key=work, reverse=True)[:most])


def writable(path: Path) -> Path:
    """Return ``path`` with links resolved. Raise BadInput if no file can be written there."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise BadInput(f"{path}: not a file; name a file with -o")
    try:
        descriptor, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=target.parent)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror}); name another file with -o") from error
    return target


def write(path: Path, shapes: Mapping[str, Any]) -> None:
    """Write ``shapes`` to ``path`` atomically. Raise OSError if writing fails."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **shapes}, indent=1) + "\n"
    write_atomically(text.encode(), path)


def read_shapes(path: Path) -> Shapes:
    """Return the content of the file ``path``.

    Raise BadInput if the file is missing, is invalid or contains no problem.
    """
    data = _json(path)
    found: dict[str, Recorded] = {}
    for number, record in enumerate(data["problems"]):
        try:
            text = problem_of(record).text
        except BadInput as error:
            raise BadInput(f"{path}: problems/{number}: {error}") from error
        counts = counts_of(record)
        before = found.get(text)
        if before:
            counts = {name: before.counts[name] + counts[name] for name in DIRECTIONS}
        found[text] = Recorded(text, counts)
    if not found:
        raise BadInput(f"{path}: contains no problem; record a program that runs convolutions")
    return Shapes(tuple(found.values()), tuple(data.get("torch", ())))


def _json(path: Path) -> dict[str, Any]:
    data = reading.read_json(path, "name a file of `rocmprobe shapes`")
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema_version is {quoted(version)}, this rocmprobe reads {SCHEMA_VERSION}; "
            "record it again"
        )
    reading.check(data, "shapes", str(path), "record it again")
    found: dict[str, Any] = data
    return found


def problem_of(record: Mapping[str, Any]) -> Problem:
    """Return the problem in an entry of the file.

    Raise BadInput if the sizes do not fit together, or if the dtype is unsupported.
    """
    kind, dtype, groups = record["kind"], record["dtype"], int(record["groups"])
    batch, channels, *image = map(int, record["input"])
    first, second, *filters = map(int, record["weight"])
    stride, padding, dilation, output_padding = (
        tuple(map(int, record[name])) for name in ("stride", "padding", "dilation", "output_padding")
    )
    flags = record["bias"], record["channels_last"]
    if kind not in KINDS or dtype not in SHORT_DTYPES:
        raise BadInput(f"{quoted(kind)} in {quoted(dtype)} is not supported")
    rank = KINDS[kind]
    if any(len(each) != rank for each in (image, filters, stride, padding, dilation, output_padding)):
        raise BadInput(f"{kind} needs {rank} number(s) for each of its sizes")
    out_channels = second * groups if "transpose" in kind else first
    problem = Problem(
        kind, dtype, batch, channels, tuple(image), out_channels, tuple(filters), stride, padding,
        dilation, output_padding, groups, *flags,
    )  # fmt: skip
    if problem.weight_shape != (first, second, *filters):
        raise BadInput(f"weight: {first} and {second} do not match {channels} channels, groups {groups}")
    # parse_problem raises BadInput for sizes that PyTorch would reject.
    return parse_problem(problem.text)


def counts_of(record: Mapping[str, Any]) -> dict[str, int]:
    """Return how often each direction of an entry was computed."""
    counts = record.get("counts", {})
    return {name: int(counts.get(name, 0)) for name in DIRECTIONS}
