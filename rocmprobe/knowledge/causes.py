"""The closed vocabulary of findings: why something fails (causes), where (layers), and what to do then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.stacks import amd_index
from rocmprobe.text.tables import table

#: What is known of a machine or a log, in words that the ``when`` of an advice may name.
SITUATIONS = frozenset(
    {
        "rdna1", "rdna2", "rdna3", "rdna3.5", "rdna4", "gcn", "vega", "cdna", "apu",
        "override", "no-override", "override-invalid", "override-lacks", "override-covers",
        "override-needless", "wheel-holds", "wheel-lacks", "rocm-lists",
        "torch-1", "torch-2", "rocm-4", "rocm-5", "rocm-6", "torch-cpu", "torch-cuda",
        "tensorflow", "llama", "windows", "wsl", "container", "cluster", "find-restricted",
        "exception", "segv", "abort", "hang", "miopen", "jit", "training", "system-include",
        "convolution", "transposed-convolution", "batch-norm", "rnn", "ctc-loss",
    }
)  # fmt: skip
#: What follows from the silicon alone, and may be named there, too: its target, and that no wheel of
#: PyTorch's index (official) or of AMD's holds code for it.
CHIP_WORDS = frozenset({"official-lacks", "amd-lacks", *(row.gfx for row in gpus.all_targets())})
#: Causes that a build with code for the chip fixes.
OF_THE_BUILD = frozenset(
    {
        "arch-not-in-wheel", "arch-not-in-rocm-lib", "rocblas-missing-arch", "hipblaslt-missing-arch",
        "override-isa-mismatch",
    }
)  # fmt: skip
_NOT = "not-"
_GFX = "{gfx}"
_ANY_GFX = "gfxNNNN"
_AMD_INDEX = "{amd_index}"


@dataclass(frozen=True)
class Advice:
    """What to do, where all words of ``when`` hold; ``not-WORD`` holds where WORD does not.

    ``{gfx}`` in ``text`` is replaced by the reader's own target, ``{amd_index}`` by the index of AMD's wheels
    for this target.
    """

    text: str
    when: tuple[str, ...] = ()

    def given_to(self, chip: Optional[str]) -> str:
        """The text for that target; for one that is not known, with a name to replace and how to find it."""
        text = self.text
        if _AMD_INDEX in text:
            text = text.replace(_AMD_INDEX, amd_index(chip))
        if chip or _GFX not in text:
            return text.replace(_GFX, chip or "")
        look_up = "the name that `env -u HSA_OVERRIDE_GFX_VERSION rocminfo | grep gfx` shows"
        return f"{text.replace(_GFX, _ANY_GFX)} Instead of {_ANY_GFX} write {look_up}."


@dataclass(frozen=True)
class Layer:
    """A place where something can break; lower ones first in the table. One that is ``within`` another is a
    part of it. ``fails`` is a clause for a failure there of which no more is known, ``advice`` what to do
    then, ``confirm`` what would tell more."""

    name: str
    title: str
    within: str = ""
    fails: str = ""
    confirm: str = ""
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True)
class Group:
    """Causes that are told apart last: they look alike, and much of the cure is the same. ``title`` is a
    clause."""

    name: str
    title: str
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class Cause:
    """A reason, the layer in which it usually sits, and what a user needs to know of it.

    ``verify`` shows that it is cured, ``confirm`` decides for it against others. ``advice`` is in the order
    in which it is considered, and the last one always holds.
    """

    name: str
    layer: str
    group: str
    title: str
    sentence: str
    source: str
    explanation: str
    verify: str
    confirm: str
    links: tuple[str, ...]
    advice: tuple[Advice, ...]


@lru_cache(maxsize=1)
def layers() -> tuple[Layer, ...]:
    """Every layer that a finding may name."""
    return tuple(
        Layer(
            **{
                **row,
                "confirm": _paragraph(row.get("confirm", "")),
                "advice": _advice(row.get("advice", ())),
            }
        )
        for row in table("causes")["layer"]
    )


@lru_cache(maxsize=1)
def groups() -> tuple[Group, ...]:
    """Every group of causes, in the order of the table."""
    return tuple(Group(**{**row, "advice": _advice(row["advice"])}) for row in table("causes")["group"])


def layer(name: str) -> Layer:
    """The layer of that name. Raises StopIteration where the vocabulary has none."""
    return next(row for row in layers() if row.name == name)


def group(name: str) -> Group:
    """The group of that name. Raises StopIteration where the vocabulary has none."""
    return next(row for row in groups() if row.name == name)


def parts_of(name: str) -> tuple[str, ...]:
    """The layers within another."""
    return tuple(row.name for row in layers() if row.within == name)


@lru_cache(maxsize=1)
def causes() -> tuple[Cause, ...]:
    """Every cause that a finding may name."""
    return tuple(_cause(row) for row in table("causes")["cause"])


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, Cause]:
    return {cause.name: cause for cause in causes()}


@lru_cache(maxsize=1)
def decisions() -> Mapping[frozenset[str], str]:
    """The question that distinguishes two look-alikes, by their names."""
    return {frozenset(row["between"]): _paragraph(row["ask"]) for row in table("causes")["decide"]}


def cause(name: str) -> Cause:
    """The cause of that name.

    Raises KeyError where the vocabulary has none.
    """
    return _by_name()[name]


def advice_for(name: str, situations: frozenset[str], silicon: Optional[str] = None) -> str:
    """What to do about a cause in these situations (of SITUATIONS), on the target ``silicon``, where known.

    Raises KeyError where the vocabulary has no such cause.
    """
    row = gpus.target(silicon)
    given = chosen(cause(name).advice, situations, silicon)
    if name in (*OF_THE_BUILD, "wrong-torch-build") and row:
        return f"{given} `rocmprobe install` ranks what there is for {row.gfx}."
    return given


def chosen(advice: Iterable[Advice], situations: frozenset[str], silicon: Optional[str] = None) -> str:
    """The first advice of which all words hold, for the target ``silicon``, where known."""
    row = gpus.target(silicon)
    words = situations | _words_of(row) if row else situations
    first = next(each for each in advice if all_hold(each.when, words))
    return first.given_to(row.gfx if row else None)


def all_hold(when: tuple[str, ...], words: frozenset[str]) -> bool:
    """Whether each word of ``when`` is among ``words``, and WORD of each ``not-WORD`` is not."""
    return all(word[len(_NOT) :] not in words if word.startswith(_NOT) else word in words for word in when)


def _words_of(row: gpus.Target) -> frozenset[str]:
    """Those of CHIP_WORDS that hold."""
    lacking = (("official-lacks", not row.wheels), ("amd-lacks", not row.amd_wheels))
    return frozenset({row.gfx, *(word for word, lacks in lacking if lacks)})


def question(first: str, second: str) -> str:
    """What to find out to decide between two causes: what distinguishes this pair, or what confirms one.

    Raises KeyError where the vocabulary does not have the first.
    """
    return decisions().get(frozenset({first, second})) or cause(first).confirm


def _cause(row: Mapping[str, Any]) -> Cause:
    texts = {key: _paragraph(value) for key, value in row.items() if isinstance(value, str)}
    return Cause(**texts, links=tuple(row["links"]), advice=_advice(row["advice"]))


def _advice(rows: Iterable[Mapping[str, Any]]) -> tuple[Advice, ...]:
    return tuple(Advice(_paragraph(each["text"]), tuple(each.get("when", ()))) for each in rows)


def _paragraph(text: str) -> str:
    return " ".join(text.split())
