"""Foreign text made harmless: no control byte, no lone surrogate, nothing that reorders other text."""

from __future__ import annotations

import re
from typing import Optional

#: Colour codes, cursor moves and terminal titles (CSI, OSC, and two-character sequences).
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")

#: What XML forbids, what terminals obey, and what reorders the text around it (bidi controls, U+2028).
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
#: Our own symbols and punctuation in ASCII, for a terminal or a file that takes nothing else.
_ASCII = str.maketrans({
    "✓": "+", "✕": "x", "▲": "!", "↯": "!", "∞": "8", "≠": "!", "†": "!", "⊗": "x", "◔": "~", "⊕": "+",
    "⊘": "-", "◌": "-", "∅": "-", "·": "-", "…": "~", "“": '"', "”": '"', "µ": "u",
})  # fmt: skip
_BREAKS = re.compile(r"\s*[\n\t]\s*")
#: Only this many times the wanted length is cleaned: a line of a log may have megabytes.
_CLEANED = 8
#: Share of a text cut in its middle that is before the cut.
_BEFORE = 0.6


def plain(text: str) -> str:
    """``text`` without terminal sequences; other control characters become visible escapes.

    Newlines and tabs stay.
    """
    if not _UNSAFE.search(text):
        return text
    cleaned = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSAFE.sub(_visible, cleaned)


def is_plain(text: str) -> bool:
    """Whether ``plain`` would leave ``text`` as it is."""
    return not _UNSAFE.search(text)


def encodable(text: str, encoding: Optional[str]) -> str:
    """Return ``text`` with our own symbols in ASCII if ``encoding`` is not one of Unicode.

    Each symbol is one character also in ASCII, so that columns stay aligned.
    """
    return text if (encoding or "").lower().startswith("utf") else text.translate(_ASCII)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str, limit: int = 200) -> str:
    """``text`` in one plain line of at most ``limit`` characters; what is cut off becomes "…"."""
    text = str(text)
    begun = text[: _CLEANED * limit]
    line = " ".join(plain(begun).split())
    return line if len(line) <= limit and len(begun) == len(text) else line[: limit - 1] + "…"


def quoted(value: object, limit: int = 80) -> str:
    """A value from a file as a message quotes it."""
    # What repr would make of a long text is thrown away, and of a number of many digits it is refused.
    if isinstance(value, str):
        return one_line(repr(value[: 2 * limit]), limit)
    try:
        return one_line(repr(value), limit)
    except ValueError:
        return "a huge number"


def message(text: str, limit: int = 2000) -> str:
    """What went wrong, in one plain line: the beginning says where, the end the fix, so that what is above
    ``limit`` characters is cut out of the middle."""
    half = _CLEANED * limit
    shortened = text if len(text) <= 2 * half else f"{text[:half]} … {text[-half:]}"
    line = _BREAKS.sub(" ", plain(shortened)).strip()
    if len(line) <= limit:
        return line
    before = int(_BEFORE * limit)
    return f"{line[:before]} … {line[before + 3 - limit :]}"
