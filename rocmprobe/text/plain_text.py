"""Functions that make untrusted text safe to print."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Optional

#: Colour codes, cursor moves and terminal titles (CSI, OSC, and sequences of two or three characters).
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_]|[ -/]+[0-~])"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: Characters that XML forbids, that control terminals, or that reorder text (bidi controls, U+2028).
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
#: rocmprobe's own symbols and punctuation in ASCII, for a terminal or a file that supports only ASCII.
#: Each symbol becomes exactly one ASCII character, so columns stay aligned.
_ASCII = str.maketrans({
    "✓": "+", "✕": "x", "▲": "!", "↯": "!", "∞": "8", "≠": "!", "†": "!", "⊗": "x", "◔": "~", "⊕": "+",
    "⊘": "-", "◌": "-", "∅": "-", "·": "-", "…": "~", "“": '"', "”": '"', "µ": "u",
})  # fmt: skip
_BREAKS = re.compile(r"\s*[\n\t]\s*")
#: Limit of the text that is cleaned, as a multiple of the wanted length. A log line can have megabytes.
_CLEANED = 8
#: If the middle of a text is cut out, the fraction of the remaining text that comes before the cut.
_BEFORE = 0.6


def plain(text: str) -> str:
    """Return ``text`` without terminal sequences, and with other control characters as visible escapes.

    Newlines and tabs are kept.
    """
    if not _UNSAFE.search(text):
        return text
    cleaned = without_escapes(text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSAFE.sub(_visible, cleaned)


def without_escapes(text: str, move: str = "") -> str:
    """Return ``text`` without the control sequences of terminals.

    ``move`` replaces the sequences that move the cursor.
    """
    if "\x1b" not in text and "\x9b" not in text:
        return text
    return _ESCAPES.sub(lambda match: "" if match[0][-1] in "mK" or match[0][1] == "]" else move, text)


def without_controls(text: str) -> str:
    """Return ``text`` without control sequences and control characters. Newlines and tabs are kept."""
    return _CONTROLS.sub("", without_escapes(text))


def is_plain(text: str) -> bool:
    """Return True if ``plain`` would not change ``text``."""
    return not _UNSAFE.search(text)


def encodable(text: str, encoding: Optional[str]) -> str:
    """Return ``text`` with rocmprobe's own symbols in ASCII if ``encoding`` is not a Unicode encoding."""
    return text if (encoding or "").lower().startswith("utf") else text.translate(_ASCII)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str, limit: int = 200) -> str:
    """Return ``text`` as one plain line of at most ``limit`` characters. "…" marks a cut-off end."""
    text = str(text)
    begun = text[: _CLEANED * limit]
    line = " ".join(plain(begun).split())
    return line if len(line) <= limit and len(begun) == len(text) else line[: limit - 1] + "…"


def first_words(text: str, limit: int) -> str:
    """Return the first words of ``text``, at most ``limit`` characters.

    Redaction does not recognise a part of an identifier, so no word may be cut before.
    """
    return text if len(text) <= limit else text[:limit].rpartition(" ")[0]


def quoted(value: object, limit: int = 80) -> str:
    """Return the repr of a value as one plain line of at most ``limit`` characters."""
    # Shorten text before repr, which is slow for long text. repr of an int with too many digits raises
    # ValueError.
    if isinstance(value, str):
        return one_line(repr(value[: 2 * limit]), limit)
    try:
        return one_line(repr(value), limit)
    except ValueError:
        return "a huge number"


def message(text: str, limit: int = 2000) -> str:
    """Return an error message as one plain line of at most ``limit`` characters.

    Cut out the middle of a longer message.
    """
    half = _CLEANED * limit
    shortened = text if len(text) <= 2 * half else f"{text[:half]} … {text[-half:]}"
    line = _BREAKS.sub(" ", plain(shortened)).strip()
    if len(line) <= limit:
        return line
    before = int(_BEFORE * limit)
    return f"{line[:before]} … {line[before + 3 - limit :]}"


def joined(words: Sequence[str], most: int = sys.maxsize) -> str:
    """Return the words with commas and a final "and", e.g. "a, b and 2 more" if ``most`` is 2."""
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def sentence_case(words: str) -> str:
    """Return ``words`` with a capital at the beginning."""
    return f"{words[:1].upper()}{words[1:]}"


def assignments(variables: Mapping[str, object]) -> list[str]:
    """Return each variable with its value, e.g. "A=1"."""
    return [f"{name}={value}" for name, value in variables.items()]
