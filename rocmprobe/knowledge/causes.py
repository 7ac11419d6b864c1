"""Closed vocabulary of findings: why something fails (causes), where (layers), and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.stacks import amd_index
from rocmprobe.text.tables import table

#: Words for what is known about a machine or a log. The ``when`` of an advice can name them.
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
#: Words that follow from the silicon alone, which ``when`` can name, too: the target, and that no wheel of
#: PyTorch's index (official) or of AMD's index holds code for it.
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
    """Advice that applies if all words of ``when`` hold. ``not-WORD`` holds if WORD does not.

    ``{gfx}`` in ``text`` is replaced by the reader's own target, and ``{amd_index}`` by the index of AMD's
    wheels for this target.
    """

    text: str
    when: tuple[str, ...] = ()

    def given_to(self, chip: Optional[str]) -> str:
        """Return the text for a target. For an unknown target, use a placeholder and say how to find the
        name."""
        text = self.text
        if _AMD_INDEX in text:
            text = text.replace(_AMD_INDEX, amd_index(chip))
        if chip or _GFX not in text:
            return text.replace(_GFX, chip or "")
        look_up = "the name that `env -u HSA_OVERRIDE_GFX_VERSION rocminfo | grep gfx` shows"
        return f"{text.replace(_GFX, _ANY_GFX)} Instead of {_ANY_GFX} write {look_up}."


@dataclass(frozen=True)
class Layer:
    """A place where something can break. The table lists lower layers first.

    A layer is a part of the layer ``within``. ``fails`` is a clause for a failure in this layer without a
    known cause. ``advice`` says what to do then, and ``confirm`` how to learn more.
    """

    name: str
    title: str
    within: str = ""
    fails: str = ""
    confirm: str = ""
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True)
class Group:
    """Causes that look alike and have most of their fix in common.

    ``title`` is a clause. ``advice`` is the common part of the fix, so a user need not tell the causes apart
    at first.
    """

    name: str
    title: str
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class Cause:
    """A reason for a failure, its usual layer, and what a user needs to know about it.

    ``verify`` says how to check that the failure is fixed. ``confirm`` says how to tell this cause from other
    causes. ``advice`` is in the order of consideration, and the last advice always applies.
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
    """Return every layer that a finding can name."""
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
    """Return every group of causes, in the order of the table."""
    return tuple(Group(**{**row, "advice": _advice(row["advice"])}) for row in table("causes")["group"])


def layer(name: str) -> Layer:
    """Return the layer called ``name``. Raise StopIteration if the vocabulary lacks the layer."""
    return next(row for row in layers() if row.name == name)


def group(name: str) -> Group:
    """Return the group called ``name``. Raise StopIteration if the vocabulary lacks the group."""
    return next(row for row in groups() if row.name == name)


def parts_of(name: str) -> tuple[str, ...]:
    """Return the names of the layers within another layer."""
    return tuple(row.name for row in layers() if row.within == name)


@lru_cache(maxsize=1)
def causes() -> tuple[Cause, ...]:
    """Return every cause that a finding can name."""
    return tuple(_cause(row) for row in table("causes")["cause"])


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, Cause]:
    return {cause.name: cause for cause in causes()}


@lru_cache(maxsize=1)
def decisions() -> Mapping[frozenset[str], str]:
    """Return what to find out to distinguish two similar causes, keyed by their names."""
    return {frozenset(row["between"]): _paragraph(row["ask"]) for row in table("causes")["decide"]}


def cause(name: str) -> Cause:
    """Return the cause called ``name``.

    Raise KeyError if the vocabulary lacks it.
    """
    return _by_name()[name]


def advice_for(name: str, situations: frozenset[str], silicon: Optional[str] = None) -> str:
    """Return advice about a cause in these situations (of SITUATIONS), on the target ``silicon`` if known.

    Raise KeyError if the vocabulary lacks the cause.
    """
    row = gpus.target(silicon)
    given = chosen(cause(name).advice, situations, silicon)
    if name in (*OF_THE_BUILD, "wrong-torch-build") and row:
        return f"{given} `rocmprobe install` ranks what there is for {row.gfx}."
    return given


def chosen(advice: Iterable[Advice], situations: frozenset[str], silicon: Optional[str] = None) -> str:
    """Return the first advice whose words all hold, for the target ``silicon`` if it is known."""
    row = gpus.target(silicon)
    words = situations | _words_of(row) if row else situations
    first = next(each for each in advice if all_hold(each.when, words))
    return first.given_to(row.gfx if row else None)


def all_hold(when: tuple[str, ...], words: frozenset[str]) -> bool:
    """Return True if ``words`` meets every condition of ``when``.

    The condition "WORD" requires WORD in ``words``. The condition "not-WORD" forbids WORD in ``words``.
    """
    return all(word[len(_NOT) :] not in words if word.startswith(_NOT) else word in words for word in when)


def _words_of(row: gpus.Target) -> frozenset[str]:
    """Return the CHIP_WORDS that hold for a target."""
    lacking = (("official-lacks", not row.wheels), ("amd-lacks", not row.amd_wheels))
    return frozenset({row.gfx, *(word for word, lacks in lacking if lacks)})


def question(first: str, second: str) -> str:
    """Return what to find out to decide between two causes.

    If the vocabulary has no entry for this pair, return what confirms the first cause. Raise KeyError if the
    vocabulary lacks the first cause, too.
    """
    return decisions().get(frozenset({first, second})) or cause(first).confirm


def _cause(row: Mapping[str, Any]) -> Cause:
    texts = {key: _paragraph(value) for key, value in row.items() if isinstance(value, str)}
    return Cause(**texts, links=tuple(row["links"]), advice=_advice(row["advice"]))


def _advice(rows: Iterable[Mapping[str, Any]]) -> tuple[Advice, ...]:
    return tuple(Advice(_paragraph(each["text"]), tuple(each.get("when", ()))) for each in rows)


def _paragraph(text: str) -> str:
    return " ".join(text.split())
