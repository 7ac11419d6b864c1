"""Probabilities of causes and layers, learned from labelled public reports.

A rule knows what one line means. The learned weights say which words are typical of a cause's reports. Rules
and weights fail on different reports, so a cause that both support is more often correct
(benchmarks/results/explain_new_reports.md). The weights are those of a logistic regression on TF-IDF, and
``benchmarks/learned_causes.py`` makes them.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.text.log import Log, without_frames
from rocmprobe.text.tables import json_table

#: Weights are stored as integers, in units of 1 / ONE.
ONE = 20
#: If a log has more lines, only the lines near its error are used. Words of other lines would outweigh them.
_LINES = 300
#: Number of lines before and after the error of a long log.
_BEFORE, _AFTER = 60, 20
#: Parameters of ``pooled``. The values were chosen for the best first answers to labelled reports
#: (sets 10 to 12 of benchmarks/results/explain_new_reports.md).
_FILL, _FILL_UNKNOWN, _EXPONENT, _SMALLEST = 0.05, 0.6, 0.5, 0.05
#: If a log has fewer words with learned weights, only the rules decide.
_ENOUGH = 16
_WORD = re.compile(r"[a-z_][a-z_0-9]*")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True)
class Learned:
    """Probabilities (0 to 1) of all causes, "unknown" included, and of all layers.

    ``causes`` and ``layers`` each add up to 1.
    """

    causes: Mapping[str, float]
    layers: Mapping[str, float]


def words_in(log: Log, error: Optional[int] = None) -> frozenset[str]:
    """Return the words of a log, each as a hash of 8 hexadecimal digits.

    From a log with more than _LINES lines, use only lines near line ``error``, or no lines if ``error`` is
    None.
    """
    lines = log.lines
    if len(lines) > _LINES:
        lines = tuple(line for line in lines if error and error - _BEFORE <= line.number <= error + _AFTER)
    text = "\n".join(line.text for line in without_frames(lines)).lower()
    return frozenset(
        f"{zlib.crc32(word.encode()):08x}" for word in set(_WORD.findall(_ADDRESS.sub(" ", text)))
    )


def learned(log: Log, error: Optional[int] = None) -> Optional[Learned]:
    """Return the probability of each cause and each layer, given the words of a log.

    Return None if the log has fewer than _ENOUGH known words. ``error`` is the number of the line with the
    last error.
    """
    weights = json_table("learned_causes")
    found = [row.split(";") for word in words_in(log, error) if (row := weights["words"].get(word))]
    if len(found) < _ENOUGH:
        return None
    rarities = [float(rarity) for rarity, _, _ in found]
    length = math.sqrt(sum(rarity**2 for rarity in rarities))
    values = [rarity / length for rarity in rarities]
    return Learned(
        _probabilities(weights["causes"], zip(values, (row for _, row, _ in found))),
        _probabilities(weights["layers"], zip(values, (row for _, _, row in found))),
    )


def _probabilities(biases: Mapping[str, float], found: Iterable[tuple[float, str]]) -> dict[str, float]:
    """Return the probability of each class.

    For each class, multiply the weight of each word by the word's factor. Add the products to the class's
    bias. The probabilities are the softmax of these sums.

    ``found`` has a pair (factor, weights) for each word. ``weights`` is the text "class weight class weight
    ...". Here, ``class`` is the position of a class in ``biases``, and ``weight`` is in units of 1 / ONE.
    """
    sums: dict[int, float] = defaultdict(float)
    for value, row in found:
        numbers = [int(number) for number in row.split()]
        for index, weight in zip(numbers[::2], numbers[1::2]):
            sums[index] += value * weight / ONE
    powers = {name: math.exp(bias + sums[index]) for index, (name, bias) in enumerate(biases.items())}
    total = sum(powers.values())
    return {name: power / total for name, power in powers.items()}


def pooled(shares: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    """Combine the shares that rules give with the learned probabilities. The result adds up to 1.

    First, take most of the share of "unknown" and a little of every other share. Distribute this amount over
    all causes in proportion to ``known``. Then weight each share with its probability in ``known``.
    """
    open_share = shares.get("unknown", 0.0) * _FILL_UNKNOWN
    filled = {name: (1 - _FILL) * share for name, share in shares.items()}
    if open_share:
        filled["unknown"] -= (1 - _FILL) * open_share
    both = {
        name: (filled.get(name, 0.0) + (_FILL + (1 - _FILL) * open_share) * known.get(name, 0.0))
        * (known.get(name, 0.0) + _SMALLEST) ** _EXPONENT
        for name in {**shares, **known}
    }
    total = sum(both.values())
    return {name: share / total for name, share in both.items()}
