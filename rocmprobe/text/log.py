"""Reader for pasted logs: removes prefixes and markup, and keeps each distinct line once."""

from __future__ import annotations

import codecs
import html
import io
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import BinaryIO

from rocmprobe.text.plain_text import without_escapes

#: Number of distinct lines kept from the start, from the end, and from the failure reports in the middle.
#: ``_ROOM`` limits the number of characters of each of these three parts.
_HEAD, _TAIL, _GRAVE = 5_000, 5_000, 5_000
_ROOM = 600_000
_BLOCK = 1 << 20
#: Number of bytes of a block that show whether the block is text.
_SAMPLE = 4096
_HIGH, _CONTINUE = bytes(range(0x80, 0x100)), bytes(range(0x80, 0xC0))
#: Number of lines in a group of neighbouring lines. The longest line of a group shows the width at which text
#: was wrapped.
_NEIGHBOURS = 32

_GRAVE_WORDS = (
    "error", "fault", "fail", "abort", "exception", "fatal", "cannot", "unable", "invalid", "denied",
    "out of memory", "supported", "not found", "no such", "hang", "hung", "timeout",
    "reset", "killed", "core dumped",
)  # fmt: skip

#: Number of characters read at the start of a line. At the end of a long line, half as many are read.
_SHOWN = 3_000
LONGEST = _SHOWN + _SHOWN // 2
_GAP = " … "
#: Smallest and largest width of wrapped text, and largest number of parts of a wrapped line.
_NARROWEST, _WIDEST, MOST_PARTS = 50, 400, 12
#: Largest width of a mail. Mails are wrapped between words.
_WIDEST_MAIL = 120
#: Common widths of terminal windows. A single line of such a length already shows that text was wrapped.
_WINDOWS = frozenset((80, 100, 120, 132, 160))

_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\u061c]"
)
_BLANKS = re.compile("[\t\x0b\x0c\x85\xa0\u2000-\u200a\u2028\u2029\u202f\u3000]")
#: Quotes that compilers print in a UTF-8 locale, and ASCII quotes, which the patterns for messages expect.
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
#: Colour codes whose escape character was lost when the text was copied, or was replaced by text, e.g.
#: ``\x1b``.
_BARE_COLOURS = re.compile(
    r"(?:\\x1b|\\033|\\u001b|\\e|\^\[|␛)\[[0-9;?]*[A-Za-z]|\[(?:[01]|[349][0-9])?(?:;[0-9]{1,3})*m"
)
_TAGS = re.compile(
    r"(?i)</?(?:pre|code|samp|p|div|span|li|ul|ol|details|summary|blockquote|td|tr|th|table|tbody|thead|b|i|em"
    r"|strong|kbd|tt|small|font|section|article|aside|figure|h[1-6]|md-[a-z]{1,20}|clipboard-copy)"
    r"(?: [^<>]*)?>|</a>|<(?:a|img|button|svg|path|input) [a-z][\w-]*=[^<>]*>|</(?:button|svg|path)>"
)
_BREAK = re.compile(r"(?i)<br\s*/?>|\r|</(?:p|li|tr|div|pre|summary|details|h[1-6])>")
#: Escapes for line ends, quotes and backslashes, in a log that is a JSON or Python string.
_SPELLED_END = re.compile(r"(?:\\r)?\\n")
_SPELLED_LETTER = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|033|([\"'\\/tr]))")
#: A Windows path. In such a path, a backslash and "n" are not a line end, but the start of a folder's name.
_WINDOWS_PATH = re.compile(r"[A-Za-z]:\\(?!\\|n)|[A-Za-z]:\\n[\w .-]*\\")
_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})[\w +-]*|`{3,}\s*$")

_CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:[ ]?[AP]M\b)?"
_DAY = r"(?:\d{4}[-/.]\d{2}[-/.]\d{2}|\d{2}[-/.]\d{2}[-/.]\d{4})"
_MONTH = r"[^\W\d_]{3,4}\.?[ ]{1,2}\d{1,2}"
#: Quote mark of a mail or a Markdown page. Each part of a wrapped line begins with the mark.
_QUOTE = re.compile(r"\s*(?:>(?=[\s>]|$)\s?)+")
#: Prefixes from loggers, containers, launchers and OS kernels.
_PREFIX = re.compile(
    rf"""(?x) \s* (?:
        [\[(]? {_DAY} [T\s_] \s* {_CLOCK} (?: Z | \s? [+-]\d{{2}}:?\d{{2}}\b | \s UTC )? [\])]?
          (?=[\s:,|-]|$) \s* (?: [:|,-]+ (?=\s) )?
        | [\[(] {_CLOCK} [\])] :?
        | {_CLOCK} (?=\s) (?! \s* (?:<|\d+ [ ] days | up\b) )
        | {_MONTH} (?: \s \d{{4}} )? \s {_CLOCK} \s [\w.-]{{1,64}} (?= \s [\w.@/()-]{{1,64}} (?:\[\d+\])? : )
        | kernel: (?=\s)
        | \[ [ ]{{0,8}} \d{{1,8}} \. \d{{3,6}} \] :?
        | \[ (?: \w{{3}} [ ] )? {_MONTH} [ ] {_CLOCK} [ ] \d{{4}} \]
        | <\d{{1,2}}> (?=\[)
        | \[ (?: rank | default | gw | worker | node ) [ ]? \d{{1,6}} \] :?
        | \[ \d{{1,5}},\d{{1,5}} \] <std(?:err|out)> :?
        | \( [\w.-]{{1,60}} (?: [ ] [\w.=-]{{1,40}} ){{0,2}}? [ ] pid=\d{{1,10}}
          (?: , [ ] ip=[\w.:]{{1,60}} )? \) :?
        | [A-Za-z][\w.-]{{0,80}} [-_] \d{{1,4}} \s+ \| (?=\s|$)
        | [^\t]{{1,100}} \t [^\t]{{1,100}} \t (?=\ufeff?\d{{4}}-\d{{2}}-)
        | std(?:err|out) [ ] [FP] (?=\s)
        | [IWEFD]\d{{4}} [ ] {_CLOCK} \s+ \d{{1,10}} (?=\s)
        | time={_DAY}T{_CLOCK} (?: Z | [+-]\d{{2}}:?\d{{2}} )? (?=\s)
        | \#\#\[ (?:error|warning|debug|group) \]
        | \d{{1,4}}: (?=\s\S)
    )"""
)
#: Beginnings of lines that never continue the previous line.
_STARTS = re.compile(
    r"""(?x) \s* (?: MIOpen(?:\(|[ ]Error) | Traceback | File[ ]" | :\d: | \[ | Aborted | rocBLAS | what\(\)
        | \w*(?:Error|Exception|Warning): | terminate[ ]called | Segmentation | Memory[ ]access
        | HW[ ]Exception | HIP[ ]error | amdgpu | \#\d | \(gdb\) | In[ ]file[ ]included | \#include\b
        | [\w./<>+-]+:\d+: )"""
)
_LISTS = re.compile(r"\s*(?:[-*+|=~^#$%/](?:\s|$)|\d+%|[\w ]{1,40}:\s|export |\S+=\S)")

_LETTERS = re.compile(r"[^\W\d_]+")
_GFX = re.compile(r"gfx[0-9]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
#: Lines that differ only in numbers count as equal. The digits of target names are replaced by letters, so
#: that failures on gfx1030 and gfx1010 stay distinct.
_SPELLED = str.maketrans("0123456789", "GHJKLMNPQR")
_TEMPORARY = re.compile(r"(?<=[-_./\\])[0-9a-f]{4,}(?![\w])")


@dataclass(frozen=True)
class Line:
    """A cleaned line of a log.

    ``number`` and ``last`` are the line numbers of the first and the last occurrence, counted from 1.
    """

    number: int
    text: str
    count: int = 1
    last: int = 0


@dataclass(frozen=True)
class Log:
    """The distinct lines of a file, in the order of their first appearance.

    Lines that differ only in numbers are kept once.

    - ``total``: number of lines in the file
    - ``left_out``: number of distinct lines that were dropped because there were too many
    - ``shortened``: number of long lines whose middle was not read
    """

    lines: tuple[Line, ...]
    total: int
    left_out: int = 0
    shortened: int = 0


class _Entry:
    """A raw line, and the next lines that can continue the raw line."""

    __slots__ = ("at", "count", "last", "lines", "number", "raw", "width")

    def __init__(self, raw: str, number: int, lines: Sequence[str], at: int, width: int) -> None:
        self.raw = raw
        self.number = self.last = number
        self.count = 1
        # At first, ``lines`` has all lines of the block, and ``at`` is the index of ``raw`` in ``lines``.
        # To save memory, ``alone`` drops all lines that cannot continue ``raw``.
        self.lines = lines
        self.at = at
        self.width = width

    def alone(self) -> None:
        self.lines = self.following()
        self.at = -1

    def following(self) -> Sequence[str]:
        if self.at < 0:
            return self.lines
        before = self.lines[self.at - 1] if self.at else ""
        return self.lines[self.at + 1 : self.at + MOST_PARTS] if wrapped(self.raw, before, self.width) else ()


def read_log(stream: BinaryIO, start: bytes = b"") -> Log:
    """Read a log of any size, in UTF-8 or UTF-16. Raise OSError if the stream cannot be read."""
    kept = _Kept()
    total = shortened = 0
    for block in _blocks(stream, start):
        lines = block.split("\n")
        if max(map(len, lines)) >= LONGEST:
            lines = list(map(cut, lines))
            shortened += sum(map(was_cut, lines))
        text = "\n".join(lines)
        kept.add(lines, without_numbers(text).split("\n"), total + 1, _grave_lines(text, lines))
        total += len(lines)
    return Log(_cleaned(kept.entries()), total, kept.left_out, shortened)


def of_text(text: str) -> Log:
    return read_log(io.BytesIO(text.encode("utf-8", "replace")))


def _blocks(stream: BinaryIO, start: bytes) -> Iterator[str]:
    chunk = start + stream.read(_BLOCK)
    encoding = _encoding(chunk)
    decode = codecs.getincrementaldecoder(encoding)("replace").decode
    newline, rest = "", ""
    while chunk:
        following = stream.read(_BLOCK)
        if encoding == "utf-8-sig" and _is_binary(chunk):
            chunk = chunk.translate(None, _HIGH)
        text = rest + decode(chunk, not following)
        # Some programs end lines with a carriage return only.
        newline = newline or ("\r" if "\n" not in text and "\r" in text else "\n")
        block, end, rest = text.rpartition(newline) if following else (text.removesuffix(newline), text, "")
        rest = cut(rest)
        if end:
            yield _without_escapes(block, newline)
        chunk = following


def _is_binary(chunk: bytes) -> bool:
    """Return True if ``chunk`` is not UTF-8 and has many bytes that are not ASCII.

    Replacing each invalid byte takes long, and the messages that matter are ASCII.
    """
    # A block can begin within a character. An incremental decoder accepts a character that is cut at the end.
    sample = chunk[:_SAMPLE].lstrip(_CONTINUE)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return len(sample.translate(None, _HIGH)) < 0.8 * len(sample)
    return False


def _encoding(start: bytes) -> str:
    """Return the encoding of a log that begins with ``start``."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    # PowerShell writes UTF-16 without a byte order mark to pipes.
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
    return without_escapes(block)


class _Kept:
    def __init__(self) -> None:
        self.left_out = 0
        self._firm: dict[str, _Entry] = {}
        self._tail: OrderedDict[str, _Entry] = OrderedDict()
        self._head_left, self._head_room = _HEAD, _ROOM
        self._grave_left, self._grave_room = _GRAVE, _ROOM
        self._tail_room = _ROOM

    def add(self, lines: list[str], keys: list[str], number: int, grave: Collection[int]) -> None:
        """Add ``lines``. Lines with equal ``keys`` are duplicates.

        ``number`` is the line number of the first line. ``grave`` are the indexes of lines that may report a
        failure.
        """
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
                    self._new(key, _Entry(lines[at], number + at, lines, at, width), at in grave)
                    continue
                tail.move_to_end(key)
                entry.alone()
            entry.count += 1
            entry.last = number + at

    def _new(self, key: str, entry: _Entry, grave: bool) -> None:
        size = len(entry.raw)
        if self._head_left and self._head_room > size:
            self._head_left -= 1
            self._head_room -= size
        elif grave and self._grave_left and self._grave_room > size:
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


def _grave_lines(text: str, lines: Sequence[str]) -> frozenset[int]:
    """Return the indexes of the lines of ``text`` with a word of a failure."""
    # Searching the whole text for each word is much faster than searching each line for every word.
    lowered = text.lower()
    if len(lowered) != len(text):  # some letters have a longer lower case
        return frozenset(at for at, line in enumerate(lines) if _grave(line))
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    found: set[int] = set()
    for word in _GRAVE_WORDS:
        at = lowered.find(word)
        while at >= 0:
            line = bisect_right(starts, at) - 1
            found.add(line)
            at = lowered.find(word, starts[line + 1])
    return frozenset(found)


def _cleaned(entries: Iterable[_Entry]) -> tuple[Line, ...]:
    lines: dict[str, Line] = {}
    for entry in entries:
        for text in pieces(entry.raw, entry.following(), entry.width):
            line = lines.get(key := same(text))
            if line is None:
                lines[key] = Line(entry.number, text, entry.count, entry.last)
            elif line.last != entry.last or line.number != entry.number:
                count = line.count + entry.count
                lines[key] = replace(line, count=count, last=max(line.last, entry.last))
    return tuple(lines.values())


def cut(line: str) -> str:
    """Return the line, or only its start and end if the line has more than ``LONGEST`` characters.

    If the line is a whole log with escaped line ends, also keep sections that report a failure.
    """
    if len(line) <= LONGEST:
        return line
    # Search the middle only if the line is a whole log, because the search takes time and the middle of most
    # long lines contains nothing useful.
    if _is_spelled(line) and _grave(line[_SHOWN : -_SHOWN // 2]):
        shorter = _without_middle(line)
        if len(shorter) <= LONGEST:
            return shorter
    return f"{line[:_SHOWN]}{_GAP}{line[-(_SHOWN // 2 - len(_GAP)) :]}"


def _is_spelled(line: str) -> bool:
    """Return True if the line is a whole log with escaped line ends."""
    ends = line.count("\\n")
    return bool(ends) and ('\\"' in line or (ends > 1 and not _WINDOWS_PATH.search(line)))


def _without_middle(line: str) -> str:
    parts = line.split("\\n")
    kept: dict[int, str] = {}
    for order in (range(len(parts)), range(len(parts) - 1, -1, -1)):
        room = LONGEST // 4
        for at in order:
            room -= len(parts[at]) + 2
            if room < 0:
                break
            kept[at] = parts[at]
    left = LONGEST - sum(len(part) + 2 for part in kept.values())
    for at, part in enumerate(parts):
        if at not in kept and len(part) + 2 <= left and _grave(part):
            kept[at] = part
            left -= len(part) + 2
    return "\\n".join(kept[at] for at in sorted(kept))


def was_cut(line: str) -> bool:
    """Return True if ``cut`` replaced the middle of this line by "…"."""
    return len(line) == LONGEST and line.startswith(_GAP, _SHOWN)


def without_numbers(text: str) -> str:
    """Return the text without numbers and addresses."""
    if "gfx" in text:
        text = _GFX.sub(lambda match: match[0].translate(_SPELLED), text)
    if "0x" in text:
        text = _HEX.sub("", text)
    # bytes.translate is much faster than str.translate for text that is not ASCII.
    return (
        text.encode("utf-8", "surrogatepass").translate(None, b"0123456789").decode("utf-8", "surrogatepass")
    )


def same(text: str) -> str:
    """Return a key that is equal for lines that differ only in blanks and numbers."""
    if "comgr" in text or "tmp" in text:
        text = _TEMPORARY.sub("", text)
    return without_numbers(text.replace(" ", ""))


def wrapped(raw: str, before: str, width: int) -> bool:
    """Return True if the line after ``raw`` can continue ``raw``.

    ``before`` is the line before ``raw``. ``width`` is the length of the longest line near ``raw``.
    """
    if not _NARROWEST <= len(raw) <= width <= _WIDEST or len(raw) < width > _WIDEST_MAIL:
        return False
    return len(before) < width or _starts(raw)


def pieces(raw: str, following: Sequence[str], width: int) -> Iterator[str]:
    """Yield the clean texts of ``raw`` and of the lines in ``following`` that continue ``raw``.

    ``width`` is the length at which lines were wrapped.
    """
    whole = _joined(raw, following, width)
    if "\\n" in whole and _is_spelled(whole):
        parts = [
            part
            for end in _SPELLED_END.split(whole)
            for part in _BREAK.split(_SPELLED_LETTER.sub(_meant, end))
        ]
    else:
        parts = _BREAK.split(whole)
    parts = [part for part in parts if part.strip()]
    for at, part in enumerate(parts):
        # A progress bar overwrites its earlier states. Keep only the last state.
        if at + 1 < len(parts) and _shape(part) == _shape(parts[at + 1]):
            continue
        text = _clean(part)
        if text:
            yield text


def _meant(match: re.Match[str]) -> str:
    if code := match[1] or match[2]:
        return chr(int(code, 16))
    return {None: "\x1b", "t": " ", "r": "\r"}.get(match[3], match[3] or "")


def _shape(part: str) -> str:
    return "".join(sorted("".join(_LETTERS.findall(part))))


def _clean(text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        text = _CONTROLS.sub("", _BLANKS.sub(" ", without_escapes(text))).translate(_QUOTES)
    if "[" in text:
        text = _BARE_COLOURS.sub("", text)
    if "<" in text:
        text = _TAGS.sub("", text)
    if "&" in text:
        # Text that was escaped twice has "&amp;gt;" for ">".
        text = html.unescape(html.unescape(text)) if "&amp;" in text else html.unescape(text)
        text = _CONTROLS.sub("", _BLANKS.sub(" ", text)).translate(_QUOTES)
    if "``" in text or "~~" in text:
        text = _FENCE.sub("", text)
    return _without_prefixes(text)


def _without_prefixes(text: str) -> str:
    at = 0
    while match := _QUOTE.match(text, at) or _PREFIX.match(text, at):
        if match.end() == at:
            break
        at = match.end()
    return text[at:].strip() if at else text.strip()


def _starts(part: str) -> bool:
    seen = part if part.isprintable() else _CONTROLS.sub("", part)
    return bool(_STARTS.match(seen) or _PREFIX.match(seen))


def _joined(raw: str, following: Sequence[str], width: int) -> str:
    whole, last = raw, raw
    for line in following:
        part = line[_mark(line) :]
        if not part.strip() or _starts(part) or _alike(line, last):
            break
        if len(last) == width and _is_window(width, (raw, *following), _mark(raw)):
            whole += part
        elif _goes_on(last, part, width) and _is_mail((raw, *following), width):
            whole = f"{whole.rstrip()} {part.lstrip()}"
        else:
            break
        last = line
    return whole


def _alike(line: str, other: str) -> bool:
    return line[_mark(line) :].lstrip()[:8] == other[_mark(other) :].lstrip()[:8]


def _mark(line: str) -> int:
    """Return the length of the quote prefix of a line, e.g. 2 for "> " in a mail."""
    match = _QUOTE.match(line)
    return match.end() if match else 0


def _is_window(width: int, lines: Sequence[str], mark: int) -> bool:
    """Return True if ``width`` is probably the width of a window in which lines were wrapped."""
    return (
        not _WINDOWS.isdisjoint((width, width - mark))
        or len({same(line) for line in lines if len(line) == width}) > 1
    )


def _is_mail(lines: Sequence[str], width: int) -> bool:
    """Return True if ``lines`` were probably wrapped between words at this width, as in a mail."""
    # Require two breaks. Even if nothing was wrapped, the longest line can look like one break, because its
    # length is ``width``.
    return width <= _WIDEST_MAIL and sum(_is_mail_break(*pair, width) for pair in zip(lines, lines[1:])) > 1


def _is_mail_break(line: str, after: str, width: int) -> bool:
    part = after[_mark(after) :]
    return (
        bool(part.strip()) and not _starts(part) and not _alike(line, after) and _goes_on(line, part, width)
    )


def _goes_on(line: str, part: str, width: int) -> bool:
    """Return True if ``part`` can continue ``line`` in a wrapped mail."""
    first = part.lstrip()[0]
    if len(line) < _NARROWEST or not (first.islower() or first in "'\"<(`") or _LISTS.match(part):
        return False
    return len(line.rstrip()) + 1 + len(part.split(None, 1)[0]) > width
