"""A log that somebody pasted: cleaned, and each line once, however large it was.

What a terminal, a logger, a container or a web page put around the words of a program is taken off here, so
that whoever looks for these words finds them. Reading is in two steps, for the sake of 100 MB: all lines pass
a quick check that finds repeated ones, and only those that are kept are cleaned
(``rocmprobe.text.log_lines``).
"""

from __future__ import annotations

import codecs
import io
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from rocmprobe.text.log_lines import LONGEST, MOST_PARTS, cut, levelled, pieces, same, was_cut, wrapped

#: How many distinct lines are kept of the start, of the end, and of those between that report a failure;
#: and how many characters each of the three may take.
_HEAD, _TAIL, _GRAVE = 5_000, 5_000, 5_000
_ROOM = 600_000
_BLOCK = 1 << 20
#: Lines among which the longest one shows the width at which text was wrapped.
_NEIGHBOURS = 32

_GRAVE_WORDS = (
    "error", "fault", "fail", "abort", "exception", "fatal", "cannot", "unable", "invalid", "denied",
    "out of memory", "supported", "not found", "no such", "hang", "hung", "timeout",
    "reset", "killed", "core dumped",
)  # fmt: skip
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_]|[ -/]+[0-~])")


@dataclass(frozen=True)
class Line:
    """A line of a log, cleaned, as often as it was printed.

    ``number`` counts from 1 where it stood first, ``last`` where it stood last.
    """

    number: int
    text: str
    count: int = 1
    last: int = 0


@dataclass(frozen=True)
class Log:
    """The distinct ``lines`` in the order of their first appearance, of ``total`` lines of the file.

    Lines are distinct that differ by more than numbers (names of GPU targets are none). ``left_out`` counts
    the distinct lines that were not kept, since there were too many; of ``shortened`` lines the middle was
    not looked at, since they are longer than ``log_lines.LONGEST``.
    """

    lines: tuple[Line, ...]
    total: int
    left_out: int = 0
    shortened: int = 0


class _Entry:
    """A line as it was read. ``lines`` are those read with it, among them what may be the rest of it."""

    __slots__ = ("at", "count", "last", "lines", "number", "raw", "width")

    def __init__(self, raw: str, number: int, lines: Sequence[str], at: int, width: int) -> None:
        self.raw = raw
        self.number = self.last = number
        self.count = 1
        self.lines = lines
        self.at = at
        self.width = width

    def alone(self) -> None:
        """Let go of the lines read with it that cannot matter."""
        self.lines = self.following()
        self.at = -1

    def following(self) -> Sequence[str]:
        if self.at < 0:
            return self.lines
        before = self.lines[self.at - 1] if self.at else ""
        return self.lines[self.at + 1 : self.at + MOST_PARTS] if wrapped(self.raw, before, self.width) else ()


def read_log(stream: BinaryIO, start: bytes = b"") -> Log:
    """Read a log of any size and any bytes, UTF-8 or UTF-16, in bounded memory: ``start``, which was read of
    the stream already, and the rest of it. Raises OSError."""
    kept = _Kept()
    total = shortened = 0
    for block in _blocks(stream, start):
        lines = block.split("\n")
        if max(map(len, lines)) >= LONGEST:
            lines = list(map(cut, lines))
            shortened += sum(map(was_cut, lines))
        kept.add(lines, levelled("\n".join(lines)).split("\n"), total + 1)
        total += len(lines)
    return Log(_cleaned(kept.entries()), total, kept.left_out, shortened)


def of_text(text: str) -> Log:
    """The log that is this text."""
    return read_log(io.BytesIO(text.encode("utf-8", "replace")))


def _blocks(stream: BinaryIO, start: bytes) -> Iterator[str]:
    """The text of the stream without terminal sequences, in blocks of whole lines less the last newline."""
    chunk = start + stream.read(_BLOCK)
    decode = codecs.getincrementaldecoder(_encoding(chunk))("replace").decode
    newline, rest = "", ""
    while chunk:
        following = stream.read(_BLOCK)
        text = rest + decode(chunk, not following)
        # Some programs end lines as old Macs did.
        newline = newline or ("\r" if "\n" not in text and "\r" in text else "\n")
        block, end, rest = text.rpartition(newline) if following else (text.removesuffix(newline), text, "")
        rest = cut(rest)
        if end:
            yield _without_escapes(block, newline)
        chunk = following


def _encoding(start: bytes) -> str:
    """PowerShell writes UTF-16, with a byte order mark or, through a pipe, without."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = start[:4096]
    if len(sample) >= 8 and sample[1::2].count(0) > len(sample) // 4 > 4 * sample[::2].count(0):
        return "utf-16-le"
    return "utf-8-sig"


def _without_escapes(block: str, newline: str) -> str:
    if newline != "\n":
        block = block.replace(newline, "\n")
    if "\0" in block:
        block = block.replace("\0", "")
    if "\r" in block:
        block = block.replace("\r\n", "\n").rstrip("\r")
    return _ESCAPES.sub("", block) if "\x1b" in block else block


class _Kept:
    """The lines that are kept: the first ones, those that report a failure, and the last ones."""

    def __init__(self) -> None:
        self.left_out = 0
        self._firm: dict[str, _Entry] = {}
        self._tail: OrderedDict[str, _Entry] = OrderedDict()
        self._head_left, self._head_room = _HEAD, _ROOM
        self._grave_left, self._grave_room = _GRAVE, _ROOM
        self._tail_room = _ROOM

    def add(self, lines: list[str], keys: list[str], number: int) -> None:
        """Take lines, of which the first has this number, with their keys for duplicates."""
        firm, tail = self._firm, self._tail
        near, width = -1, 0
        for at, key in enumerate(keys):
            entry = firm.get(key)
            if entry is None:
                entry = tail.get(key)
                if entry is None:
                    if near != at // _NEIGHBOURS:
                        near = at // _NEIGHBOURS
                        width = max(map(len, lines[near * _NEIGHBOURS : (near + 1) * _NEIGHBOURS]))
                    self._new(key, _Entry(lines[at], number + at, lines, at, width))
                    continue
                tail.move_to_end(key)
                entry.alone()
            entry.count += 1
            entry.last = number + at

    def _new(self, key: str, entry: _Entry) -> None:
        size = len(entry.raw)
        if self._head_left and self._head_room > size:
            self._head_left -= 1
            self._head_room -= size
        elif self._grave_left and self._grave_room > size and _grave(entry.raw):
            self._grave_left -= 1
            self._grave_room -= size
        else:
            self._head_left = 0
            self._to_tail(key, entry, size)
            return
        entry.alone()
        self._firm[key] = entry

    def _to_tail(self, key: str, entry: _Entry, size: int) -> None:
        self._tail[key] = entry
        self._tail_room -= size
        while len(self._tail) > _TAIL or self._tail_room < 0:
            self._tail_room += len(self._tail.popitem(last=False)[1].raw)
            self.left_out += 1

    def entries(self) -> list[_Entry]:
        return sorted((*self._firm.values(), *self._tail.values()), key=lambda entry: entry.number)


def _grave(line: str) -> bool:
    lowered = line.lower()
    for word in _GRAVE_WORDS:  # noqa: SIM110 - twice as fast as any(), and it is asked of every new line
        if word in lowered:
            return True
    return False


def _cleaned(entries: Iterable[_Entry]) -> tuple[Line, ...]:
    """The lines of these entries, those that are the same once they are clean as one."""
    found: dict[str, Line] = {}
    for entry in entries:
        for text in pieces(entry.raw, entry.following(), entry.width):
            known = found.get(key := same(text))
            if known is None:
                found[key] = Line(entry.number, text, entry.count, entry.last)
            elif known.last != entry.last or known.number != entry.number:
                found[key] = Line(
                    known.number, known.text, known.count + entry.count, max(known.last, entry.last)
                )
    return tuple(found.values())
