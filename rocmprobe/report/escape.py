"""Escaping of untrusted text for Markdown, so that no HTML, link, image or mention appears.

All text except plain words becomes code, because GitHub links ``@name`` and ``#123`` despite backslashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rocmprobe.text import readable as text

#: Text that needs no code span: letters, numbers and punctuation.
_PROSE = re.compile(
    r"[^\W_]+(?:[-'\u2019.,%+/\xd7\xb7\u2026][^\W_]+)*(?:%|\((?:R|TM|C)\))?|[-\u2013\u2014+\xd7\xb7=\u2026]"
)
#: Words that GitHub turns into links: web addresses, commits, issues.
_LINKED = re.compile(r"(?i)\b(?:www\b|gh-[0-9]|[0-9a-f]{7,40}\b)")
_AROUND = re.compile(r"([(\"'\u201c\u2018]*)(.*?)([)\"'\u201d\u2019.,;:!?\u2026]*)")
_MARKER = re.compile(r"[-+=]+|[0-9]+[.)]")
#: A code span in a sentence of rocmprobe.
_QUOTED = re.compile(r"`([^`]+)`")
_FIRST = 0.25
#: Number of characters reserved for the line that marks a cut.
_MARK = 60
#: Long runs of backticks, which are shortened, because a code span needs more backticks than any run in it.
_TICKS = re.compile("`{10,}")


def words(foreign: str, limit: int = 400) -> str:
    """Return at most ``limit`` characters of untrusted text as one line of safe Markdown."""
    made = ""
    for position, piece in enumerate(_QUOTED.split(_line(foreign, limit))):
        shown = code(piece) if position % 2 else _prose(piece)
        # A Markdown parser would merge two adjacent code spans.
        made += f" {shown}" if made.endswith("`") and shown.startswith("`") else shown
    return made


def _prose(piece: str) -> str:
    parts = piece.split(" ")
    return " ".join(_word(part, first=position == 0) for position, part in enumerate(parts))


def _word(word: str, first: bool) -> str:
    if first and _MARKER.fullmatch(word):
        return code(word)
    match = _AROUND.fullmatch(word)
    before, core, after = match.groups() if match else ("", word, "")
    if after.startswith(")") and core.count("(") > core.count(")"):
        core, after = f"{core})", after[1:]
    if not core or (_PROSE.fullmatch(core) and not _LINKED.search(core)):
        return word
    return f"{before}{code(core)}{after}"


def code(foreign: str, limit: int = 400) -> str:
    """Return a code span of one line that is also safe in a table cell."""
    # Markdown parsers split cells at a bar even inside a code span, so split the span there.
    return "&#124;".join(_span(piece) for piece in _line(foreign, limit).split("|"))


def _line(foreign: str, limit: int) -> str:
    # A log line can have megabytes, and cleaning the whole line would take seconds.
    return _TICKS.sub("```…", text.one_line(str(foreign)[: 8 * limit], limit))


def _span(piece: str) -> str:
    if not piece.strip():
        return piece
    ticks = "`" * (_longest(piece) + 1)
    pad = " " if piece[0] == "`" or piece[-1] == "`" else ""
    return f"{ticks}{pad}{piece}{pad}{ticks}"


def _longest(body: str) -> int:
    return max((len(run) for run in re.findall("`+", body)), default=0)


def fence(foreign: str, language: str = "", limit: int = 4000) -> str:
    """Return a code block that no text in ``foreign`` can close."""
    body = _TICKS.sub("```…", cut(text.plain(cut(foreign.strip("\n"), limit)), limit))
    ticks = "`" * max(3, _longest(body) + 1)
    return f"{ticks}{language}\n{body}\n{ticks}"


def lines(foreign: Iterable[str], most: int, width: int = 300) -> str:
    """Return a code block with the first ``most`` lines, each of at most ``width`` characters."""
    found = list(foreign)
    shown = [text.plain(line[: 8 * width]).replace("\n", " ") for line in found[:most]]
    shown = [line if len(line) <= width else line[: width - 1] + "…" for line in shown]
    if len(found) > most:
        shown.append(f"[... {text.count(len(found) - most, 'line')} more ...]")
    return fence("\n".join(shown), limit=(width + 1) * (most + 1))


def cut(body: str, limit: int) -> str:
    """Return ``body``, shortened to at most ``limit`` characters by a marked cut in the middle."""
    if len(body) <= limit:
        return body
    room = max(limit - _MARK, 0)
    head = int(room * _FIRST)
    mark = f"\n[... {len(body) - room} characters cut here ...]\n"
    return body[:head] + mark + body[len(body) - (room - head) :]


def folded(summary: str, inner: str) -> str:
    """Return a collapsed section of Markdown. The caller must escape ``summary``."""
    return f"<details><summary>{summary}</summary>\n\n{inner}\n\n</details>"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], most: int = 200) -> str:
    """Return a Markdown table. The cells must be valid Markdown already."""
    rows = list(rows)
    lines = [_row(header), _row(["---"] * len(header)), *map(_row, rows[:most])]
    if len(rows) > most:
        lines.append(f"\n{text.count(len(rows) - most, 'row')} left out; results.json has all of them.")
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def joined(blocks: Iterable[str], limit: int) -> str:
    """Return blocks of Markdown with a blank line between them.

    A note replaces the blocks that do not fit into ``limit`` characters.
    """
    mark = "[cut here: the rest does not fit; results.json has all of it]"
    kept: list[str] = []
    room = limit - len(mark) - 2
    for block in filter(None, blocks):
        room -= len(block) + 2
        if room < 0:
            return "\n\n".join([*kept, mark]) + "\n"
        kept.append(block)
    return "\n\n".join(kept) + "\n"
