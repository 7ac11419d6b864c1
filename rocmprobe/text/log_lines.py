"""One line of a log: what belongs to it and what was put around it on the way."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

#: Characters of a line that are looked at: this many at its start, and half as many at its end.
_SHOWN = 3_000
LONGEST = _SHOWN + _SHOWN // 2
#: Replaces the middle of a longer one.
_GAP = " … "
#: Nobody wraps text narrower or wider than this, and no line that was wrapped had more parts.
_NARROWEST, _WIDEST, MOST_PARTS = 50, 400, 12
#: Mails are wrapped between words, at no more than this.
_WIDEST_MAIL = 120
#: Widths of windows: one line of exactly this length is enough to show that it was wrapped.
_WINDOWS = frozenset((80, 100, 120, 132, 160))

_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\u061c]"
)
_BLANKS = re.compile("[\t\x0b\x0c\x85\xa0\u2000-\u200a\u2028\u2029\u202f\u3000]")
#: Colour codes whose escape character was lost when the text was copied, or is spelled out.
_BARE_COLOURS = re.compile(
    r"(?:\\x1b|\\033|\\u001b|\\e|\^\[|␛)\[[0-9;?]*[A-Za-z]|\[(?:[01]|[349][0-9])?(?:;[0-9]{1,3})*m"
)
_TAGS = re.compile(
    r"(?i)</?(?:pre|code|samp|p|div|span|li|ul|details|summary|blockquote|td|tr|th|table|b|i|em|strong)"
    r"(?: [^<>]*)?>"
)
_BREAK = re.compile(r"(?i)<br\s*/?>|\r")
_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})[\w +-]*|`{3,}\s*$")

_CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:[ ]?[AP]M\b)?"
_DAY = r"(?:\d{4}[-/.]\d{2}[-/.]\d{2}|\d{2}[-/.]\d{2}[-/.]\d{4})"
_MONTH = r"[^\W\d_]{3,4}\.?[ ]{1,2}\d{1,2}"
#: Of a mail or a Markdown page; all parts of a wrapped line have it.
_QUOTE = re.compile(r"\s*(?:>(?=[\s>]|$)\s?)+")
#: What loggers, containers, launchers and kernels put before a line, each of which another may follow.
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
#: What a line begins with that continues none,
_STARTS = re.compile(
    r"""(?x) \s* (?: MIOpen(?:\(|[ ]Error) | Traceback | File[ ]" | :\d: | \[ | Aborted | rocBLAS | what\(\)
        | \w*(?:Error|Exception|Warning): | terminate[ ]called | Segmentation | Memory[ ]access
        | HW[ ]Exception | HIP[ ]error | amdgpu | \#\d | \(gdb\) | In[ ]file[ ]included
        | [\w./<>+-]+:\d+: )"""
)
#: and what, at the start of a line, is more likely a new one than words of a mail that go on.
_LISTS = re.compile(r"\s*(?:[-*+|=~^#$%/](?:\s|$)|\d+%|[\w ]{1,40}:\s|export |\S+=\S)")

_LETTERS = re.compile(r"[^\W\d_]+")
_GFX = re.compile(r"gfx[0-9]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
#: Targets are no numbers: what fails on gfx1030 is not what fails on gfx1010.
_SPELLED = str.maketrans("0123456789", "GHJKLMNPQR")
#: What files and folders are called that exist for one call of a compiler.
_TEMPORARY = re.compile(r"(?<=[-_./\\])[0-9a-f]{4,}(?![\w])")


def cut(line: str) -> str:
    """The line, or where it is longer than ``LONGEST`` characters its start and its end."""
    if len(line) <= LONGEST:
        return line
    return f"{line[:_SHOWN]}{_GAP}{line[-(_SHOWN // 2 - len(_GAP)) :]}"


def was_cut(line: str) -> bool:
    """Whether this is what ``cut`` left of a longer line."""
    return len(line) == LONGEST and line.startswith(_GAP, _SHOWN)


def levelled(text: str) -> str:
    """The text without its numbers and addresses, which identifies repeated lines."""
    if "gfx" in text:
        text = _GFX.sub(lambda match: match[0].translate(_SPELLED), text)
    if "0x" in text:
        text = _HEX.sub("", text)
    # Bytes are far quicker to translate than text that is not ASCII.
    return (
        text.encode("utf-8", "surrogatepass").translate(None, b"0123456789").decode("utf-8", "surrogatepass")
    )


def same(text: str) -> str:
    """What a clean line has in common with those that count as the same: all but blanks and numbers."""
    if "comgr" in text or "tmp" in text:
        text = _TEMPORARY.sub("", text)
    return levelled(text.replace(" ", ""))


def wrapped(raw: str, before: str, width: int) -> bool:
    """Whether a line may begin something that goes on in the next line.

    The longest line near it has ``width`` characters; one ``before`` it that has as many may go on in it.
    """
    if not _NARROWEST <= len(raw) <= width <= _WIDEST or len(raw) < width > _WIDEST_MAIL:
        return False
    return len(before) < width or _starts(raw)


def pieces(raw: str, following: Sequence[str], width: int) -> Iterator[str]:
    """The clean texts of a line: none of an empty one, several of one with ``<br>`` or overwritten parts.

    The lines of ``following`` that are the rest of it, wrapped at ``width`` characters, are joined to it.
    """
    parts = [part for part in _BREAK.split(_joined(raw, following, width)) if part.strip()]
    for at, part in enumerate(parts):
        # A progress bar overwrites itself: only its last state stays.
        if at + 1 < len(parts) and _shape(part) == _shape(parts[at + 1]):
            continue
        text = _clean(part)
        if text:
            yield text


def _shape(part: str) -> str:
    return "".join(sorted("".join(_LETTERS.findall(part))))


def _clean(text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        text = _CONTROLS.sub("", _BLANKS.sub(" ", text))
    if "[" in text:
        text = _BARE_COLOURS.sub("", text)
    if "<" in text:
        text = _TAGS.sub("", text)
    if "&" in text:
        text = _CONTROLS.sub("", _BLANKS.sub(" ", html.unescape(text)))
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
    return bool(_STARTS.match(part) or _PREFIX.match(part))


def _joined(raw: str, following: Sequence[str], width: int) -> str:
    """The line with those after it that are its rest, or as it is."""
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
    """Whether two lines begin with the same letters, as those of a list do."""
    return line[_mark(line) :].lstrip()[:8] == other[_mark(other) :].lstrip()[:8]


def _mark(line: str) -> int:
    """How many characters mark a line as quoted."""
    match = _QUOTE.match(line)
    return match.end() if match else 0


def _is_window(width: int, lines: Sequence[str], mark: int) -> bool:
    """Whether lines end at this width since text was wrapped there, not since one happens to be so long."""
    return (
        not _WINDOWS.isdisjoint((width, width - mark))
        or len({same(line) for line in lines if len(line) == width}) > 1
    )


def _is_mail(lines: Sequence[str], width: int) -> bool:
    """Whether lines end at this width since text was wrapped between words there: more than one has to, as
    no word has room in the longest line."""
    return width <= _WIDEST_MAIL and sum(_is_mail_break(*pair, width) for pair in zip(lines, lines[1:])) > 1


def _is_mail_break(line: str, after: str, width: int) -> bool:
    part = after[_mark(after) :]
    return (
        bool(part.strip()) and not _starts(part) and not _alike(line, after) and _goes_on(line, part, width)
    )


def _goes_on(line: str, part: str, width: int) -> bool:
    """Whether a part continues a line of a mail: its first word, no beginning, had no room there."""
    first = part.lstrip()[0]
    if len(line) < _NARROWEST or not (first.islower() or first in "'\"<(`") or _LISTS.match(part):
        return False
    return len(line.rstrip()) + 1 + len(part.split(None, 1)[0]) > width
