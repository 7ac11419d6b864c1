"""Markdown as GitHub reads it, and what must never come of foreign text in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

_READER = MarkdownIt("commonmark", {"html": True}).enable("table")
_FOLD = re.compile(r"(<details><summary>[\w ,:()]+</summary>|</details>)\n*")
#: What GitHub makes links of in the text that is left after Markdown is read.
_LINKED = re.compile(r"(?i)@\w|#\d|\bgh-\d|://|\bwww\.|\b[0-9a-f]{7,40}\b|:[a-z_]+:")
#: Of the characters that terminals and readers obey, none is left.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def headings(source: str) -> list[str]:
    tokens = _READER.parse(source)
    return [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]


def lists(source: str) -> int:
    return sum(token.type in ("bullet_list_open", "ordered_list_open") for token in _READER.parse(source))


def sections(source: str) -> dict[str, str]:
    """The text below each heading of the third level, which is how GitHub's forms head their fields."""
    parts = re.split(r"(?m)^### (.+)$", source)
    return dict(zip(parts[1::2], parts[2::2]))


def fences(source: str) -> list[tuple[str, str]]:
    """Language and content of every block of code."""
    return [(token.info, token.content) for token in _READER.parse(source) if token.type == "fence"]


def faults(source: str) -> list[str]:
    """What is wrong with Markdown that holds foreign text: empty for a sound one."""
    tokens, lines = _READER.parse(source), source.splitlines()
    return [*_unsafe(source), *_of_blocks(tokens, lines), *_of_text(tokens)]


def _unsafe(source: str) -> list[str]:
    return [f"unsafe character {found[0]!r}" for found in _UNSAFE.finditer(source)]


def _of_blocks(tokens: list[Token], lines: list[str]) -> Iterator[str]:
    depth = 0
    for token in tokens:
        first, last = token.map or (0, 0)
        if token.type == "html_block":
            if not _FOLD.fullmatch(token.content):
                yield f"HTML: {token.content[:80]!r}"
            depth += 1 if token.content.startswith("<details>") else -1
        elif token.type == "heading_open" and depth:
            yield f"a heading in a fold that does not end: {lines[first]!r}"
        elif token.type == "fence" and lines[last - 1].strip() != token.markup:
            yield f"a fence that does not end: {lines[first]!r}"
        elif token.type == "table_open":
            bars = {line.count("|") for line in lines[first:last]}
            if len(bars) > 1:
                yield f"a table with rows of {sorted(bars)} bars: {lines[first]!r}"
        elif token.type in ("code_block", "hr", "heading_open") and token.markup in ("", "-", "="):
            yield f"{token.type} from text: {lines[first]!r}"
    if depth:
        yield "folds do not match"


def _of_text(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        for each in token.children or ():
            if each.type in ("html_inline", "link_open", "image"):
                yield f"{each.type}: {token.content[:120]!r}"
            elif each.type == "text" and _LINKED.search(each.content):
                yield f"text that GitHub links: {each.content[:120]!r}"
