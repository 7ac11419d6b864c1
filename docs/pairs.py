"""The pairs of chip and stack in ``docs/pairs.toml``, and what ``data/compatibility.toml`` says of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.compatibility import Answer, Combination, answers, failing
from rocmprobe.text.tables import toml

Pair = Mapping[str, Any]

_TABLE = Path(__file__).with_suffix(".toml")
#: Who builds for a chip has code for it.
_OWN = ("self", "community", "distribution")
#: A "yes" of one of them: there is code for the chip, or for one that it can stand in for.
_CODE = ("torch-has-code", "wheel-has-code", "amd-wheel-has-code", "silicon-fits-override")
#: What an answer is beside a report, with the words for it.
VERDICTS = {
    "agrees": "the answer is what was reported",
    "contradicts": "reported to work, and the relations say that it stops",
    "silent": "the relations do not answer, or know of nothing that stops a pair that was reported to fail",
}


@lru_cache(maxsize=1)
def pairs() -> tuple[Pair, ...]:
    """Every row, in the order of the table."""
    return tuple(toml(_TABLE.read_text("utf-8"))["pair"])


def combination(pair: Pair) -> Combination:
    """A row in the form that relations are asked in."""
    gfx, override, torch = pair["gfx"], pair.get("override"), pair.get("torch")
    effective = gpus.isa_of_override(override) if override else gfx
    own = (gfx,) if pair.get("built") in _OWN and effective == gfx else None
    return Combination(
        amd=True,
        gfx=gfx,
        effective=effective,
        override=override,
        # What is no version ("nightly of 2024-08") is a torch of an unknown one.
        torch=torch if re.match(r"\d", torch or "") else "torch" if torch else None,
        rocm=pair.get("rocm"),
        system=pair["system"],
        torch_targets=own,
        rocblas_targets=own,
        atomics=pair.get("atomics"),
    )


def said(pair: Pair) -> tuple[str, tuple[Answer, ...]]:
    """One of VERDICTS, and the answers that it rests on; with them the risks of an override."""
    found = answers(combination(pair))
    stops, code = failing(found), tuple(each for each in found if each.holds and each.relation.name in _CODE)
    if pair["outcome"] == "fails":
        return ("agrees", stops) if stops else ("silent", ())
    if stops:
        return "contradicts", stops
    risks = tuple(each for each in found if not each.holds and each.relation.name in _CODE)
    return ("agrees", (*code, *risks)) if code else ("silent", risks)
