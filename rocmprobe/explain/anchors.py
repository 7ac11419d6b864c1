"""What a text has to contain for a regular expression to match: one of a few plain strings.

A log contains nothing of most signatures. To look for plain strings first saves their compilation and, in a
long log, most of the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Optional

#: Shorter strings are in nearly every text.
_SHORTEST = 3
_OPTIONAL = ("?", "*", "{")


class _Group(NamedTuple):
    """The inside of a group that a match must have, and what stands behind the group."""

    inside: str
    end: int


def anchors(pattern: str) -> Optional[tuple[str, ...]]:
    """Strings of which each match of ``pattern`` has at least one; None where no such strings are known.

    It reads the part of Python's syntax that the signatures use. What it does not know it takes for anything,
    so that the strings are fewer, never wrong.
    """
    if "(?i" in pattern or "(?x" in pattern:
        return None
    found: list[str] = []
    for branch in _branches(pattern):
        best = _of_branch(branch)
        if best is None:
            return None
        found += best
    return tuple(dict.fromkeys(found))


def _walk(pattern: str, start: int = 0) -> Iterator[tuple[int, str, int]]:
    """The letters from ``start`` on that are neither escaped nor in a class, each with its place and how many
    groups are open behind it."""
    depth, at = 0, start
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
        elif letter == "[":
            at = _class_end(pattern, at)
        else:
            depth += (letter == "(") - (letter == ")")
            yield at, letter, depth
        at += 1


def _branches(pattern: str) -> Iterator[str]:
    """The alternatives of a pattern, without those inside of its groups."""
    start = 0
    for at, letter, depth in _walk(pattern):
        if letter == "|" and not depth:
            yield pattern[start:at]
            start = at + 1
    yield pattern[start:]


def _of_branch(branch: str) -> Optional[list[str]]:
    """The longest string that a branch is sure to contain, or else those of one of its groups."""
    runs, run, groups, at = [""], "", [], 0
    while at < len(branch):
        letter = branch[at]
        if letter == "\\" and at + 1 < len(branch) and not branch[at + 1].isalnum():
            run += branch[at + 1]
            at += 2
        elif letter in "([":
            group = _group(branch, at) if letter == "(" else None
            end = group.end if group else _class_end(branch, at) + 1
            if group and not branch.startswith(_OPTIONAL, end) and not group.inside.startswith("?"):
                groups.append(group.inside)
            elif group and group.inside.startswith("?:") and not branch.startswith(_OPTIONAL, end):
                groups.append(group.inside[2:])
            runs.append(run)
            run, at = "", end
        elif letter in "\\.^$?*{+":
            # An optional letter is none that a match must have.
            runs.append(run[:-1] if letter in _OPTIONAL else run)
            run = ""
            at = branch.index("}", at) + 1 if letter == "{" else at + (2 if letter == "\\" else 1)
        else:
            run += letter
            at += 1
    longest = max((*runs, run), key=len)
    if len(longest) >= _SHORTEST:
        return [longest]
    for inside in groups:
        within = anchors(inside)
        if within is not None:
            return list(within)
    return None


def _group(pattern: str, start: int) -> _Group:
    end = next(at for at, letter, depth in _walk(pattern, start) if letter == ")" and not depth)
    return _Group(pattern[start + 1 : end], end + 1)


def _class_end(pattern: str, start: int) -> int:
    """Where the bracket that closes a class stands."""
    at = start + 1
    at += pattern.startswith("^", at)
    at += pattern.startswith("]", at)
    while pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at
