"""Reader for untrusted files, with limits of size, nesting and numbers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Optional

from rocmprobe.text.plain_text import message, one_line
from rocmprobe.text.tables import toml

#: Size limit of a file in bytes. Results with 6,000 outcomes have 7 million bytes.
LARGEST = 256 * 2**20
_PIECE = 1 << 20
#: Size limit of a line in bytes. A record of a journal contains a log of at most 64 KiB.
LONGEST_LINE = 16 * 2**20
#: Largest nesting depth. Results need ten levels. Much deeper data would overflow the stack of recursive
#: code.
DEEPEST = 50
_HALF = re.compile("[\ud800-\udfff]")
#: Largest integer. Counts and sizes have 64 bits, and sums of them must fit.
_LARGEST_INTEGER = 2**80


class BadInput(Exception):
    """Raised for input that a user can fix. The message names the file, the place and the remedy."""

    def __init__(self, text: str) -> None:
        super().__init__(message(text))


def read_bytes(path: Path, mend: str, most: int = LARGEST) -> bytes:
    """Return the content of a file.

    Raise BadInput if the file cannot be read or is larger than ``most`` bytes. ``mend`` ends the error
    message and tells the user what to do.
    """
    try:
        # Read with a limit, because a device or a pipe has no size and can be endless.
        with path.open("rb") as stream:
            return rest_of(stream, b"", str(path), mend, most)
    except (OSError, ValueError) as error:
        # open() raises ValueError for a name that contains NUL.
        why = error.strerror if isinstance(error, OSError) else "no name of a file"
        raise BadInput(f"{path}: cannot be read ({why}); {mend}") from error


def rest_of(stream: BinaryIO, begun: bytes, name: str, mend: str, most: int = LARGEST) -> bytes:
    """Return ``begun`` followed by the rest of ``stream``.

    Raise BadInput if there are more than ``most`` bytes, and OSError if reading fails.
    """
    # Read in pieces, because a buffer is as large as the number of bytes to read.
    content = bytearray(begun)
    while len(content) <= most and (piece := stream.read(_PIECE)):
        content += piece
    if len(content) > most:
        raise BadInput(f"{name}: larger than {most:,} bytes; {mend}")
    return bytes(content)


def json_of(content: bytes, name: str, mend: str) -> Any:
    """Parse the content of the file ``name`` as JSON.

    Raise BadInput if the content is not JSON, is nested too deeply, or has a number that is too large. NaN,
    infinity and half a surrogate pair are not JSON.
    """
    try:
        data = json.loads(content.decode(json.detect_encoding(content)), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name}: not JSON ({_reason(error)}); {mend}") from error
    return _bounded(data, name, mend)


def read_json(path: Path, mend: str, most: int = LARGEST) -> Any:
    """Parse a file as JSON. Raise BadInput if the file cannot be read, is too large or is not valid JSON."""
    return json_of(read_bytes(path, mend, most), str(path), mend)


def toml_of(content: bytes, name: str, mend: str) -> dict[str, Any]:
    """Parse the content of the file ``name`` as TOML.

    Raise BadInput if the content is not TOML, is nested too deeply, or has a number that is too large.
    """
    try:
        data = toml(content.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name}: not TOML ({_reason(error)}); {mend}") from error
    _bounded(data, name, mend)
    return data


def json_line(line: bytes | str) -> Any:
    """Parse one line as JSON. NaN and infinity are allowed.

    Return None if the line is invalid, too long, nested too deeply, or has a number that is too large.
    """
    if len(line) > LONGEST_LINE:
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    # Child processes and journals write NaN and infinity as measurements.
    return None if _unbounded(data, finite=False) else data


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of ``stream``. Skip lines longer than ``LONGEST_LINE``."""
    whole = True
    for part in iter(lambda: stream.readline(LONGEST_LINE), b""):
        ends = part.endswith(b"\n")
        if whole and (ends or len(part) < LONGEST_LINE):
            yield part
        whole = ends


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else one_line(str(error))


def _bounded(data: Any, name: str, mend: str) -> Any:
    if fault := _unbounded(data, finite=True):
        place = one_line("/".join(map(str, fault[0])))
        raise BadInput(f"{name}: {place and f'{place}: '}{fault[1]}; {mend}")
    return data


def _unbounded(data: object, finite: bool) -> Optional[tuple[list[object], str]]:
    """Return (place, reason) for the first value that is nested too deeply or too large, or None.

    If ``finite``, infinity, NaN and text with half a surrogate pair are also not allowed.
    """
    # Use a loop, because recursion would overflow the stack on deep data.
    level: list[tuple[_Place, object]] = [(None, data)]
    for _ in range(DEEPEST):
        below: list[tuple[_Place, object]] = []
        for place, item in level:
            if isinstance(item, dict):
                below.extend([((place, key), inner) for key, inner in item.items()])
                if finite and (key := next(filter(_is_broken, item), None)):
                    return [*_steps(place), key], "a name that is not Unicode"
            elif isinstance(item, list):
                below.extend([((place, number), inner) for number, inner in enumerate(item)])
            elif finite and isinstance(item, str):
                if _is_broken(item):
                    return _steps(place), "text that is not Unicode"
            elif why := _no_amount(item, finite):
                return _steps(place), why
        level = below
    return (_steps(level[0][0])[:3], f"nested deeper than {DEEPEST} levels") if level else None


#: The place of a value in nested data: (place of the outer value, key), or None for the whole data.
_Place = Optional[tuple["_Place", object]]


def _steps(place: _Place) -> list[object]:
    return [*_steps(place[0]), place[1]] if place else []


def _is_broken(text: str) -> bool:
    """Return True if ``text`` has half a surrogate pair, which no Unicode encoding can represent."""
    return not text.isascii() and bool(_HALF.search(text))


def _no_amount(item: object, finite: bool) -> str:
    if type(item) is float and finite and not math.isfinite(item):
        return "a number that is infinite or too large"
    if type(item) is int and abs(item) > _LARGEST_INTEGER:
        return "an integer that is too large"
    return ""
