"""The file that ``rocmprobe shapes`` writes: the distinct convolutions of a program.

Each entry has the fields of a problem in ``results.json``, the device, and how often each direction was
computed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from rocmprobe import output
from rocmprobe.model.fields import Count
from rocmprobe.model.problems import KINDS, SHORT_DTYPES, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS, BadInput
from rocmprobe.model.results_file import from_json
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
        return tuple(recorded.problem for recorded in self.problems)

    def heaviest(self, most: int) -> tuple[str, ...]:
        """Return up to ``most`` problems, sorted by their total arithmetic, largest first."""

        def work(recorded: Recorded) -> tuple[int, int]:
            # If the program died while it computed a problem, the problem's count is 0.
            return recorded.flops, parse_problem(recorded.problem).flops

        heaviest = sorted(self.problems, key=work, reverse=True)[:most]
        return tuple(recorded.problem for recorded in heaviest)


_Size = Annotated[int, Meta(ge=0, le=999_999_999)]
_Sizes = Annotated[tuple[_Size, ...], Meta(max_length=5)]
_Shape = Annotated[tuple[_Size, ...], Meta(min_length=3, max_length=5)]
#: How often each direction was computed.
_Counts = Mapping[str, Annotated[int, Meta(ge=0, le=2**53)]]


@dataclass(frozen=True)
class Entry:
    """A convolution in the file."""

    kind: str
    dtype: str
    input: _Shape
    weight: _Shape
    stride: _Sizes
    padding: _Sizes
    dilation: _Sizes
    output_padding: _Sizes
    groups: Annotated[int, Meta(ge=1, le=999_999_999)]
    bias: bool
    channels_last: bool
    counts: _Counts = field(default_factory=dict)


@dataclass(frozen=True)
class Recording:
    """The content of the file."""

    problems: tuple[Entry, ...]
    torch: tuple[str, ...] = ()


def check_writable(path: Path, force: bool) -> None:
    """Raise BadInput if the shapes cannot be written to ``path``.

    Unless ``force``, also raise BadInput if ``path`` is a link or a file that rocmprobe did not write.
    """
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: not a file; name a file with -o")
    try:
        if not force and (why := output.foreign(path, _document({}))):
            raise BadInput(f"{path}: {why}; name another file with -o, or add --force")
        descriptor, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.absolute().parent)
        os.close(descriptor)
        os.unlink(name)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name another file with -o") from error


def write(path: Path, shapes: Mapping[str, Any], force: bool = False) -> None:
    """Write ``shapes`` to ``path`` atomically. Raise OSError if this fails (``output.write``)."""
    output.write(path, _document(shapes), force)


def _document(shapes: Mapping[str, Any]) -> bytes:
    return (json.dumps({"schema_version": SCHEMA_VERSION, **shapes}, indent=1) + "\n").encode()


def read_shapes(path: Path) -> Shapes:
    """Return the content of the file ``path``.

    Raise BadInput if the file is missing, is invalid or contains no problem.
    """
    content = _content(path)
    recorded: dict[str, Recorded] = {}
    for number, entry in enumerate(content.problems):
        try:
            text = problem_of(entry).text
        except BadInput as error:
            raise BadInput(f"{path}: problems[{number}]: {error}") from error
        counts = {name: entry.counts.get(name, 0) for name in DIRECTIONS}
        before = recorded.get(text)
        if before:
            counts = {name: before.counts[name] + counts[name] for name in DIRECTIONS}
        recorded[text] = Recorded(text, counts)
    if not recorded:
        raise BadInput(f"{path}: contains no problem; record a program that runs convolutions")
    return Shapes(tuple(recorded.values()), content.torch)


def _content(path: Path) -> Recording:
    data = reading.read_json(path, "name a file of `rocmprobe shapes`")
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema_version is {quoted(version)}, this rocmprobe reads {SCHEMA_VERSION}; "
            "record it again"
        )
    try:
        return from_json(Recording, data)
    except BadInput as error:
        raise BadInput(f"{path}: {error}; record it again") from error


def problem_of(entry: Entry) -> Problem:
    """Return the problem in an entry of the file.

    Raise BadInput if the sizes do not fit together, or if the dtype is unsupported.
    """
    kind, groups = entry.kind, entry.groups
    batch, channels, *image = entry.input
    first, second, *filters = entry.weight
    windows = entry.stride, entry.padding, entry.dilation, entry.output_padding
    if kind not in KINDS or entry.dtype not in SHORT_DTYPES:
        raise BadInput(f"{quoted(kind)} in {quoted(entry.dtype)} is not supported")
    rank = KINDS[kind]
    if any(len(sizes) != rank for sizes in (image, filters, *windows)):
        raise BadInput(f"{kind} needs {rank} number(s) for each of its sizes")
    out_channels = second * groups if "transpose" in kind else first
    problem = Problem(
        kind, entry.dtype, batch, channels, tuple(image), out_channels, tuple(filters), *windows, groups,
        entry.bias, entry.channels_last,
    )  # fmt: skip
    if problem.weight_shape != (first, second, *filters):
        raise BadInput(f"weight: {first} and {second} do not match {channels} channels, groups {groups}")
    # parse_problem raises BadInput for sizes that PyTorch would reject.
    return parse_problem(problem.text)
