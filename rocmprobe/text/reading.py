"""Files from outside, read in one way: results, journal, shapes, machine, baseline, facts, tables.

A file may come from anywhere. It is read up to a size, decoded, refused where it nests too deep or holds a
number that no float holds, and then checked against its schema. What is wrong is one ``BadInput``: the file,
the place in it, what is wrong, the fix. Single lines, between other output, are passed over instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Optional

from rocmprobe.text.plain_text import message, one_line
from rocmprobe.text.tables import toml

#: Bytes of a file. The results of 6,000 questions have 7 million.
LARGEST = 256 * 2**20
#: Bytes of a line; a record of the journal has a log of at most 64 KiB.
LONGEST_LINE = 16 * 2**20
#: Results nest ten levels; what nests far deeper would overflow the stack of whatever walks it later.
DEEPEST = 50
#: Counts and sizes of 64 bits, with room for sums of them.
_LARGEST_INTEGER = 2**80
#: Number of breaches of a schema among which the most informative one is named.
_BREACHES = 50


class BadInput(Exception):
    """Input that a user can fix; the message names the file, the place in it and the fix.

    It is one line without control characters, whatever it quotes.
    """

    def __init__(self, text: str) -> None:
        super().__init__(message(text))


def read_bytes(path: Path, mend: str, most: int = LARGEST) -> bytes:
    """The content of a file. Raises BadInput where it cannot be read or is larger than ``most`` bytes."""
    try:
        # A device or a pipe has no size, and may have no end.
        with path.open("rb") as stream:
            return rest_of(stream, b"", str(path), mend, most)
    except (OSError, ValueError) as error:
        # A name with a NUL in it is a ValueError.
        why = error.strerror if isinstance(error, OSError) else "no name of a file"
        raise BadInput(f"{path}: cannot be read ({why}); {mend}") from error


def rest_of(stream: BinaryIO, begun: bytes, name: str, mend: str, most: int = LARGEST) -> bytes:
    """``begun`` and what is left in ``stream``. Raises BadInput above ``most`` bytes, and OSError."""
    content = begun + stream.read(most + 1 - len(begun))
    if len(content) > most:
        raise BadInput(f"{name}: larger than {most:,} bytes; {mend}")
    return content


def json_of(content: bytes, name: str, mend: str) -> Any:
    """JSON from ``content``, that of the file ``name``.

    Raises BadInput for what is no JSON (NaN and infinity are none), nests too deep, or holds too large a
    number.
    """
    try:
        data = json.loads(content.decode(json.detect_encoding(content)), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name}: not JSON ({_reason(error)}); {mend}") from error
    return _bounded(data, name, mend)


def read_json(path: Path, mend: str, most: int = LARGEST) -> Any:
    """JSON from a file. Raises BadInput as ``read_bytes`` and ``json_of`` do."""
    return json_of(read_bytes(path, mend, most), str(path), mend)


def toml_of(content: bytes, name: str, mend: str) -> dict[str, Any]:
    """TOML from ``content``, that of the file ``name``. Raises BadInput as ``json_of`` does."""
    try:
        data = toml(content.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name}: not TOML ({_reason(error)}); {mend}") from error
    _bounded(data, name, mend)
    return data


def json_line(line: bytes | str) -> Any:
    """JSON from one line, None for what is none or would harm who reads it.

    NaN and infinity pass: they are measurements of children and journals.
    """
    if len(line) > LONGEST_LINE:
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return None if _unbounded(data, finite=False) else data


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of ``stream``; of one that is longer than ``LONGEST_LINE`` nothing is kept."""
    whole = True
    for part in iter(lambda: stream.readline(LONGEST_LINE), b""):
        ends = part.endswith(b"\n")
        if whole and (ends or len(part) < LONGEST_LINE):
            yield part
        whole = ends


@lru_cache(maxsize=8)
def schema(name: str) -> dict[str, Any]:
    """A JSON Schema as shipped in the package: that of ``results``, ``shapes`` or ``table``."""
    text = resources.files("rocmprobe").joinpath(f"data/{name}.schema.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@lru_cache(maxsize=8)
def _validator(name: str) -> Any:
    # Imported late: jsonschema costs more to import than `detect` may take.
    import jsonschema

    known = jsonschema.Draft202012Validator
    # What was put together from a journal has tuples where a file has arrays.
    arrays = known.TYPE_CHECKER.redefine("array", lambda _, item: isinstance(item, (list, tuple)))
    return jsonschema.validators.extend(known, type_checker=arrays)(schema(name))


def check(data: Any, schema_name: str, name: str, mend: str) -> None:
    """Raises BadInput, naming the place, where ``data`` from the file ``name`` breaks the schema."""
    breaches = _validator(schema_name).iter_errors(data)
    first = next(breaches, None)
    if first is None:
        return
    import jsonschema

    found = jsonschema.exceptions.best_match([first, *islice(breaches, _BREACHES)])
    place = "/".join(map(str, found.absolute_path)) or "top level"
    raise BadInput(f"{name}: {one_line(place)}: {one_line(found.message)}; {mend}")


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else one_line(str(error))


def _bounded(data: Any, name: str, mend: str) -> Any:
    found = _unbounded(data, finite=True)
    if found:
        place = one_line("/".join(map(str, found[0])))
        raise BadInput(f"{name}: {place and f'{place}: '}{found[1]}; {mend}")
    return data


def _unbounded(data: Any, finite: bool) -> Optional[tuple[tuple[Any, ...], str]]:
    """What of ``data`` nobody could walk or compute with: its place and why, None where there is nothing.

    Walked level by level, since what nests deep would overflow the stack here, too.
    """
    level: list[tuple[Any, Any]] = [((), data)]
    for _ in range(DEEPEST):
        below: list[tuple[Any, Any]] = []
        for place, item in level:
            if isinstance(item, dict):
                below.extend([((place, key), inner) for key, inner in item.items()])
            elif isinstance(item, list):
                below.extend([((place, number), inner) for number, inner in enumerate(item)])
            else:
                why = _no_amount(item, finite)
                if why:
                    return _steps(place), why
        level = below
    return (_steps(level[0][0])[:3], f"nested deeper than {DEEPEST} levels") if level else None


def _steps(place: Any) -> tuple[Any, ...]:
    """The keys on the way to a place, which is a pair of the place above it and a key."""
    steps: list[Any] = []
    while place:
        place, key = place
        steps.append(key)
    return tuple(reversed(steps))


def _no_amount(item: Any, finite: bool) -> str:
    if type(item) is float and finite and not math.isfinite(item):
        return "a number that is infinite, or too large for one"
    if type(item) is int and abs(item) > _LARGEST_INTEGER:
        return "an integer that is larger than any count"
    return ""
