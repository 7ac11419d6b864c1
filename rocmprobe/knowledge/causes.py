"""Known causes of failures, layers in which failures occur, and advice for the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.stacks import amd_index
from rocmprobe.text.tables import table

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
#: More conditions for ``Advice.when``. A target, e.g. "gfx1010", means that the chip is this target.
#: "official-lacks" means that no wheel in PyTorch's index has code for the chip. "amd-lacks" means that no
#: wheel in AMD's index has code for the chip.
CHIP_WORDS = frozenset({"official-lacks", "amd-lacks", *(row.gfx for row in gpus.all_targets())})
#: Causes that disappear with a build of PyTorch that has code for the chip.
OF_THE_BUILD = frozenset(
    {
        "arch-not-in-wheel", "arch-not-in-rocm-lib", "rocblas-missing-arch", "hipblaslt-missing-arch",
        "override-isa-mismatch",
    }
)  # fmt: skip
#: Causes that mean that PyTorch, or a library in its wheel, has no code for the chip.
NO_CODE = OF_THE_BUILD - {"override-isa-mismatch", "hipblaslt-missing-arch"}
_NOT = "not-"
_GFX = "{gfx}"
_ANY_GFX = "gfxNNNN"
_AMD_INDEX = "{amd_index}"


@dataclass(frozen=True)
class Advice:
    """Advice for the user if certain facts are true or false.

    - ``when``: conditions, e.g. "wsl" or "not-wsl"
    - ``text``: the advice, in which ``{gfx}`` stands for the target and ``{amd_index}`` for AMD's package
      index
    """

    text: str
    when: tuple[str, ...] = ()

    def given_to(self, chip: Optional[str]) -> str:
        """Return the text with its placeholders replaced for the target ``chip``."""
        text = self.text
        if _AMD_INDEX in text:
            text = text.replace(_AMD_INDEX, amd_index(chip))
        if chip or _GFX not in text:
            return text.replace(_GFX, chip or "")
        look_up = "the name that `env -u HSA_OVERRIDE_GFX_VERSION rocminfo | grep gfx` shows"
        return f"{text.replace(_GFX, _ANY_GFX)} Instead of {_ANY_GFX} write {look_up}."


@dataclass(frozen=True)
class Layer:
    """A layer of hardware or software in which something can fail."""

    name: str
    title: str
    within: str = ""
    fails: str = ""
    confirm: str = ""
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True)
class Group:
    """Causes with similar symptoms, and advice that fits each of these causes."""

    name: str
    title: str
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class Cause:
    """A cause of failures, the layer where it usually occurs, and texts for the user.

    The last item of ``advice`` has no conditions.
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
    """Return every layer, the lowest first."""
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
    """Return the layer ``name``. Raise StopIteration if the name is unknown."""
    return next(row for row in layers() if row.name == name)


def group(name: str) -> Group:
    """Return the group ``name``. Raise StopIteration if the name is unknown."""
    return next(row for row in groups() if row.name == name)


def parts_of(name: str) -> tuple[str, ...]:
    """Return the names of the layers inside the layer ``name``."""
    return tuple(row.name for row in layers() if row.within == name)


@lru_cache(maxsize=1)
def causes() -> tuple[Cause, ...]:
    """Return every cause, in the order of the table."""
    return tuple(_cause(row) for row in table("causes")["cause"])


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, Cause]:
    return {cause.name: cause for cause in causes()}


@lru_cache(maxsize=1)
def decisions() -> Mapping[frozenset[str], str]:
    """Return texts on how to distinguish two similar causes, keyed by the names of the two causes."""
    return {frozenset(row["between"]): _paragraph(row["ask"]) for row in table("causes")["decide"]}


def cause(name: str) -> Cause:
    """Return the cause ``name``. Raise KeyError if the name is unknown."""
    return _by_name()[name]


def advice_for(name: str, situations: frozenset[str], silicon: Optional[str] = None) -> str:
    """Return advice for the cause ``name``. Raise KeyError if the name is unknown.

    ``situations`` are facts about the machine and the failure, e.g. "wsl".
    """
    row = gpus.target(silicon)
    given = first_applicable(cause(name).advice, situations, silicon)
    if name in (*OF_THE_BUILD, "wrong-torch-build") and row:
        return f"{given} `rocmprobe install` ranks the builds for {row.gfx}."
    return given


def first_applicable(
    advice: Iterable[Advice], situations: frozenset[str], silicon: Optional[str] = None
) -> str:
    """Return the text of the first advice whose conditions are all true.

    If the target ``silicon`` is unknown and the text has the placeholder ``{gfx}``, the result also explains
    how to find the target.
    """
    row = gpus.target(silicon)
    words = situations | _words_of(row) if row else situations
    first = next(item for item in advice if all_hold(item.when, words))
    return first.given_to(row.gfx if row else None)


def all_hold(when: tuple[str, ...], words: frozenset[str]) -> bool:
    """Return True if ``words`` meets every condition in ``when``.

    The condition "wsl" requires "wsl" in ``words``. The condition "not-wsl" forbids "wsl".
    """
    return all(word[len(_NOT) :] not in words if word.startswith(_NOT) else word in words for word in when)


def _words_of(row: gpus.Target) -> frozenset[str]:
    lacking = (("official-lacks", not row.wheels), ("amd-lacks", not row.amd_wheels))
    return frozenset({row.gfx, *(word for word, lacks in lacking if lacks)})


def deciding_check(first: str, second: str) -> str:
    """Return instructions for deciding between two causes.

    If the table has no instructions for this pair, return how to confirm the cause ``first``. Raise KeyError
    if ``first`` is unknown.
    """
    return decisions().get(frozenset({first, second})) or cause(first).confirm


def _cause(row: Mapping[str, Any]) -> Cause:
    texts = {key: _paragraph(value) for key, value in row.items() if isinstance(value, str)}
    return Cause(**texts, links=tuple(row["links"]), advice=_advice(row["advice"]))


def _advice(rows: Iterable[Mapping[str, Any]]) -> tuple[Advice, ...]:
    return tuple(Advice(_paragraph(row["text"]), tuple(row.get("when", ()))) for row in rows)


def _paragraph(text: str) -> str:
    return " ".join(text.split())
