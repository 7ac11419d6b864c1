"""Public reports that resemble a log, found by fingerprints of their text.

For each thread, ``data/known_reports.json`` has the address, chip, versions, cause and outcome (a sentence by
rocmprobe's authors). The file also has each thread's fingerprint: hashes of three words in a row. The text of
a thread is not kept. ``benchmarks/known_reports.py`` makes the file.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rocmprobe.text.log import Log, without_frames
from rocmprobe.text.tables import json_table

#: Maximum number of hashes in a fingerprint. The smallest hashes are kept, so that similar long logs keep
#: mostly the same hashes.
SIZE = 128
#: Hexadecimal digits of one hash.
DIGITS = 6
_IN_A_ROW = 3
_WORD = re.compile(r"[a-z_][a-z_0-9]*|#")
#: Text that differs between machines: numbers, addresses and folders.
_VARYING = re.compile(r"0x[0-9a-f]+|(?<![a-z])\d[\d.,:-]*|(?:[a-z]:)?[/\\](?:[\w.+@~-]+[/\\])+")


@dataclass(frozen=True)
class KnownReport:
    """A labelled public thread.

    ``cause`` is a name in ``data/causes.toml``, or "" if the thread established no cause. ``outcome`` is how
    the thread ended, or "" if it named no cure.
    """

    url: str
    outcome: str = ""
    cause: str = ""
    gfx: str = ""
    rocm: str = ""
    torch: str = ""


@dataclass(frozen=True)
class SimilarReport:
    """A known report that resembles the log.

    ``similarity`` is the share (0 to 1) of common text, in which rare words count more.
    """

    report: KnownReport
    similarity: float


def fingerprint(log: Log) -> frozenset[str]:
    """Return the fingerprint of a log: at most SIZE hashes of DIGITS hexadecimal digits."""
    found: set[str] = set()
    for line in without_frames(log.lines):
        words = _WORD.findall(_VARYING.sub(" # ", line.text.lower()))
        for first in range(len(words) - _IN_A_ROW + 1):
            row = " ".join(words[first : first + _IN_A_ROW])
            found.add(f"{zlib.crc32(row.encode()):08x}"[:DIGITS])
    return frozenset(sorted(found)[:SIZE])


@lru_cache(maxsize=1)
def known_reports() -> tuple[tuple[KnownReport, frozenset[str]], ...]:
    """Return every known report with its fingerprint."""
    return tuple(_report(**row) for row in json_table("known_reports")["reports"])


def _report(fingerprint: str, **row: Any) -> tuple[KnownReport, frozenset[str]]:
    starts = range(0, len(fingerprint), DIGITS)
    return KnownReport(**row), frozenset(fingerprint[start : start + DIGITS] for start in starts)


def similar(log: Log, without: Collection[str] = ()) -> tuple[SimilarReport, ...]:
    """Return the reports that share text with a log, the most similar first."""
    known = [(report, hashes) for report, hashes in known_reports() if report.url not in without]
    return ranked(fingerprint(log), known)


def ranked(
    hashes: frozenset[str], known: Iterable[tuple[KnownReport, frozenset[str]]]
) -> tuple[SimilarReport, ...]:
    """Return the known reports that share hashes with ``hashes``, the most similar first.

    The similarity is the cosine of the fingerprints. Rare hashes have more weight.
    """
    listed = list(known)
    times = Counter(each for _, others in listed for each in others)

    def length(of: Iterable[str]) -> float:
        return sum(math.log((len(listed) + 1) / (times[each] + 0.5)) ** 2 for each in of)

    own = length(hashes)
    found = []
    for report, others in listed:
        shared = hashes & others
        if shared and own:
            found.append(SimilarReport(report, length(shared) / math.sqrt(own * length(others))))
    return tuple(sorted(found, key=lambda each: -each.similarity))
