"""Which GPU target a card has, by the names that people and programs give it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Optional

from rocmprobe.knowledge import gpus


def gfx_of_card(name: Optional[str]) -> Optional[str]:
    """The target of a card ("RX 5700 XT", "Navi 10 [Radeon RX 5700]"), None where several have that name."""
    if not name:
        return None
    written = re.search(r"\bgfx[0-9]{3,4}[a-f]?\b|\bgfx[0-9]{2,3}[0-9a-f]\b", name)
    if written:
        return written[0]
    chip, _, products = name.partition("[")
    targets = _chips().get(chip.strip().lower()) if products else None
    words = _model(products.partition("/")[0] or name).split()
    if not targets and words:
        targets = _of_model(" ".join(words))
    while not targets and (len(words) > 2 or any(map(str.isdigit, "".join(words[:-1])))):
        words.pop()
        targets = _of_model(" ".join(words))
    return next(iter(targets)) if targets and len(targets) == 1 else None


def _of_model(model: str) -> frozenset[str]:
    """The targets of the cards that are called so, or else of those whose names begin so."""
    begun = (targets for name, targets in _cards().items() if name.startswith(f"{model} "))
    return _cards().get(model) or frozenset().union(*begun)


def _model(name: str) -> str:
    """The distinguishing part of a card's name: "AMD Radeon(TM) RX 5700 XT Graphics" is "rx 5700 xt"."""
    name = re.sub(
        r"\(.*?\)|™|®|\[.*|\b(?:amd|radeon|instinct|graphics|gpu|ati|series|class|like)\b", " ", name.lower()
    )
    return " ".join(re.sub(r"\b(rx|pro|r[579])(?=\d)", r"\1 ", name).split())


@lru_cache(maxsize=1)
def _cards() -> Mapping[str, frozenset[str]]:
    """Targets by the name of a card."""
    found: dict[str, frozenset[str]] = {}
    for target in gpus.all_targets():
        for names in target.names.values():
            for name in names.split(" / "):
                model = _model(name)
                found[model] = found.get(model, frozenset()) | {target.gfx}
    return found


@lru_cache(maxsize=1)
def _chips() -> Mapping[str, frozenset[str]]:
    """Targets by the code name of a chip."""
    found: dict[str, frozenset[str]] = {}
    for target in gpus.all_targets():
        for chip in re.split(r"[,/] ?", target.chip.lower()):
            found[chip] = found.get(chip, frozenset()) | {target.gfx}
    return found
