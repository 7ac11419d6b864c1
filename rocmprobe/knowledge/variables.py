"""Catalogue of environment variables (``data/variables.toml``), and labels for variables that are set."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Optional

import msgspec

from rocmprobe.knowledge.gpus import isa_of_override
from rocmprobe.model.facts import FactName
from rocmprobe.model.results import Fact, Machine
from rocmprobe.text.tables import Row, table
from rocmprobe.text.versions import Release, release, version_numbers

EFFECTIVE = "effective"
DEFAULT = "no effect (default already)"
UNKNOWN = "unknown or misspelled"
NOT_LISTED = "not in our table"
REJECTED = "rejected value"
NOT_HERE = "not in this version"
FOLKLORE = "folklore"
#: Word that can follow EFFECTIVE in a label. It means that a process ignores changes of the variable after
#: its first use.
ONCE = "read once per process"
LABELS = (EFFECTIVE, DEFAULT, UNKNOWN, NOT_LISTED, REJECTED, NOT_HERE, FOLKLORE, ONCE)

#: Prefixes of the variables that ROCm or PyTorch can read. A variable with such a prefix is a fact of the
#: machine even if its name is unknown.
PREFIXES = (
    "MIOPEN_", "HSA_", "ROCR_", "HIP_", "AMD_", "ROCBLAS_", "HIPBLASLT_", "PYTORCH_", "TORCH_", "ROCM_",
    "HIPRTC_", "HSAKMT_", "ROC_", "TENSILE_", "ONEDNN_", "MKLDNN_",
)  # fmt: skip
VARIABLE_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile("TOKEN|KEY|SECRET|PASSW|CREDENTIAL")

KINDS = {
    "": "any text",
    "miopen-bool": "0 or 1",
    "mode": "a name or its number",
    "c-int": "a number, 0x for hexadecimal",
    "decimal": "a decimal number",
    "zero-one": "0 or 1",
    "one": "1, or not",
    "hip-bool": "0 or 1",
    "hip-int": "a decimal number",
    "torch-bool": "0 or 1",
    "gfx-version": "MAJOR.MINOR.STEPPING",
    "devices": "indices or GPU-UUIDs, separated by commas",
    "alloc-conf": "option:value, separated by commas",
}


class ValidValue(Row, frozen=True):
    """A valid value of a variable, as a word, a number or both.

    ``searches`` is True if MIOpen searches for minutes in the first call of each shape.
    """

    word: str = ""
    number: Optional[int] = None
    since: str = ""
    searches: bool = False


class Variable(Row, frozen=True):
    """An environment variable: one row of ``data/variables.toml``."""

    name: str
    of: str
    effect: str
    source: str
    values: str = ""
    choices: tuple[ValidValue, ...] = ()
    default: str = ""
    since: str = ""
    until: str = ""
    read: str = "first-call"
    keep: bool = False

    @property
    def once(self) -> bool:
        """True if a process reads the variable only once."""
        return self.read in ("load", "import", "first-call")


@dataclass(frozen=True)
class Label:
    """The catalogue's assessment of a variable that is set.

    If the variable is unknown, ``nearest`` is the most similar known name.
    """

    words: tuple[str, ...]
    why: str
    source: str = ""
    nearest: Optional[str] = None

    @property
    def verdict(self) -> str:
        return self.words[0]


@dataclass(frozen=True)
class _Table:
    by_name: Mapping[str, Variable]
    families: tuple[Variable, ...]
    complete: Mapping[str, Release]


@lru_cache(maxsize=1)
def _table() -> _Table:
    data = table("variables")
    rows = [msgspec.convert(row, Variable) for row in [*data["variable"], *_members(data["family"])]]
    return _Table(
        {row.name: row for row in rows},
        tuple(row for row in rows if row.name.endswith("*")),
        {prefix: version_numbers(last) for prefix, last in data["complete"].items()},
    )


def _members(families: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for family in families:
        common = {key: value for key, value in family.items() if key != "members"}
        for member in family["members"]:
            row = {**common, **member}
            own = {key: row.pop(key, "") for key in ("what", "file")}
            yield {**row, "effect": row["effect"].format(**own), "source": row["source"].format(**own)}


def variables() -> tuple[Variable, ...]:
    """Return every row of the catalogue."""
    return tuple(_table().by_name.values())


def find(name: str) -> Optional[Variable]:
    """Return the catalogue's row for a variable, or None if no row matches.

    If the name itself has no row, use the row of a pattern that matches, e.g. "LC_*".
    """
    table = _table()
    own = table.by_name.get(name)
    return own or next((row for row in table.families if fnmatchcase(name, row.name)), None)


def nearest(name: str) -> Optional[str]:
    """Return the known name that is most similar to ``name``, or None if no name is similar."""
    if len(name) > _LONGEST:
        return None
    # Comparisons are slow, so skip names of very different length, which cannot be misspellings.
    alike = [known for known in _known() if abs(len(known) - len(name)) <= max(2, len(name) // 4)]
    return next(iter(difflib.get_close_matches(name, alike, 1, 0.8)), None)


_LONGEST = 120


def _one_letter_apart(one: str, other: str) -> bool:
    """Return True if the names differ by one letter, or have the same letters in another order.

    Return False if the names differ only in digits.
    """
    # Different digits are not a misspelling: F2X3 and F3X2 name different kernels.
    if re.sub(r"\d", "", one) == re.sub(r"\d", "", other):
        return False
    if sorted(one) == sorted(other):
        return True
    blocks = difflib.SequenceMatcher(None, one, other, False).get_matching_blocks()
    return sum(block.size for block in blocks) >= max(len(one), len(other)) - 1


@lru_cache(maxsize=1)
def _known() -> tuple[str, ...]:
    return tuple(
        row.name for row in variables() if row.of not in ("nobody", "process") and row.name[-1] != "*"
    )


@lru_cache(maxsize=1)
def _tails() -> Mapping[str, tuple[str, ...]]:
    tails: dict[str, tuple[str, ...]] = {}
    for name in _known():
        head, _, tail = name.partition("_")
        tails[tail] = (*tails.get(tail, ()), head)
    return tails


def matters(name: str) -> bool:
    """Return True if ROCm or PyTorch may read the variable, or a variable with a similar name.

    Return False for a name that suggests a secret.
    """
    if _SECRET.search(name):
        return False
    row = find(name)
    if row is not None and row.of != "process":
        return True
    if name in ("LD_LIBRARY_PATH", "LD_PRELOAD") or name.startswith(PREFIXES):
        return True
    head, _, tail = name.partition("_")
    # If only one word follows the first underscore, as in CHIP_PATH, this word is too common to prove a
    # misspelling.
    return (
        "_" in tail
        and len(name) <= _LONGEST
        and bool(difflib.get_close_matches(head, _tails().get(tail, ()), 1, 0.75))
    )


def labels(machine: Machine) -> dict[str, Label]:
    """Return the label of every variable that is set on ``machine``, keyed by name."""
    rocm = _release(machine, "torch.hip", "hip.version", "rocm.version")
    torch = _release(machine, "torch.version")
    return {
        name: label(name, str(fact.value), rocm, torch)
        for name, fact in machine.variables.items()
        if fact.value is not None
    }


def forcing_search(machine: Machine) -> dict[str, str]:
    """Return the variables that are set on ``machine`` and force long searches, with their values."""
    effective = (name for name, label in labels(machine).items() if label.verdict == EFFECTIVE)
    values = {name: str(machine.variables[name].value) for name in effective}
    return {name: value for name, value in values.items() if _searches(name, value.strip().upper())}


def _searches(name: str, value: str) -> bool:
    row = find(name)
    choices = row.choices if row else ()
    return any(each.searches and value in (each.word, str(each.number)) for each in choices)


def label_facts(machine: Machine) -> dict[str, Fact]:
    """Return a fact ``variables.<NAME>`` with the words of the label, for each variable that is set."""
    return {
        f"variables.{name}": Fact(", ".join(label.words), "; ".join(filter(None, (label.why, label.source))))
        for name, label in labels(machine).items()
    }


def label(name: str, value: str, rocm: Optional[Release], torch: Optional[Release]) -> Label:
    """Return the label of ``name=value`` for these releases of ROCm and torch (None if unknown)."""
    row = find(name)
    if row is None:
        return _unknown(name, rocm)
    if row.of == "nobody":
        return Label((FOLKLORE,), row.effect, row.source)
    version, product = (torch, "torch") if row.of == "torch" else (rocm, "ROCm")
    if version and row.since and version < version_numbers(row.since):
        return Label((NOT_HERE,), f"not read before {product} {row.since}", row.source)
    if version and row.until and version > version_numbers(row.until):
        return Label((NOT_HERE,), f"not read after {product} {row.until}", row.source)
    refused = _refused(row, value, rocm)
    if refused:
        return Label((REJECTED,), refused, row.source)
    if row.default and _same(row, value, row.default):
        return Label((DEFAULT,), row.effect, row.source)
    return Label((EFFECTIVE, ONCE) if row.once else (EFFECTIVE,), row.effect, row.source)


def _unknown(name: str, rocm: Optional[Release]) -> Label:
    """Return the label of a name that is not in the catalogue.

    The label has the word UNKNOWN if the name is probably misspelled, or if this ROCm does not read the
    variable. It has the word NOT_LISTED if the catalogue may be incomplete.
    """
    close = nearest(name)
    hint = f"; nearest: {close}" if close else ""
    # Builds and containers set variables with these endings, so a similar known name proves no misspelling.
    if not name.endswith(("_DIR", "_PATH", "_ROOT", "_HOME", "_VERSION")):
        if close is not None and _one_letter_apart(name, close):
            return Label((UNKNOWN,), f"one letter away from a known name{hint}", "", close)
        last = next((last for prefix, last in _table().complete.items() if name.startswith(prefix)), None)
        if last and rocm and rocm <= last:
            why = "not read by any source code that rocmprobe's catalogue covers"
            return Label((UNKNOWN,), why + hint, "", close)
    return Label((NOT_LISTED,), f"not in rocmprobe's catalogue, which may be incomplete{hint}", "", close)


def _release(machine: Machine, *names: FactName) -> Optional[Release]:
    releases = (release(machine.value(name)) for name in names)
    return next(filter(None, releases), None)


# ---- values -------------------------------------------------------------------------------------------

_MIOPEN_OFF = frozenset({"0", "no", "false", "disable", "disabled"})
_MIOPEN_ON = frozenset({"1", "yes", "true", "enable", "enabled"})
#: Twenty digits are enough for every integer type of C. Python rejects much longer numbers.
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}")
#: Texts that strtoul with base 0 accepts completely.
_C_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,19})")
_DEVICE = re.compile(r"-?[0-9]+|GPU-[0-9a-fA-F]+")


def _refused(row: Variable, value: str, rocm: Optional[Release]) -> str:
    text = value.strip()
    if row.values == "miopen-bool":
        return _refused_by_miopen(value, rocm)
    if row.values == "mode":
        return _refused_mode(row, value, rocm)
    if row.values == "c-int" and not _C_INTEGER.fullmatch(text):
        return "not a number: silently read as 0"
    if row.values == "c-int" and row.choices and _number(row, text) not in _numbers(row, rocm):
        return f"ignored: only {_listed(row, rocm)} mean something"
    if row.values in ("decimal", "hip-int") and not _DECIMAL.fullmatch(text):
        return "not a decimal number: only the number at the start counts, or 0 if there is none"
    if row.values == "hip-bool" and text not in ("true", "false") and not _DECIMAL.fullmatch(text):
        return "neither true nor a number: silently read as 0"
    if row.values == "zero-one" and value not in ("0", "1"):
        return "neither 0 nor 1: silently ignored"
    if row.values == "torch-bool" and value not in ("0", "1"):
        return "neither 0 nor 1: torch warns and ignores it"
    if row.values == "gfx-version" and isa_of_override(value) is None:
        return "not MAJOR.MINOR.STEPPING in decimal numbers: the ROCm runtime refuses to start"
    if row.values == "devices" and not all(
        _DEVICE.fullmatch(item.strip()) for item in text.split(",") if text
    ):
        return "neither an index nor a GPU-UUID: the list ends there, and GPUs listed after it are hidden"
    if row.values == "alloc-conf":
        return _refused_option(row, value)
    return ""


def _refused_by_miopen(value: str, rocm: Optional[Release]) -> str:
    words = _MIOPEN_OFF | _MIOPEN_ON
    if rocm is not None and rocm < (6, 0):
        return "" if value in words else "not a word that this MIOpen knows: silently ignored; use 0 or 1"
    if value.lower() in words | {"on", "off"}:
        return ""
    if rocm is not None and rocm < (6, 1):
        return "not a word that this MIOpen knows: silently ignored; use 0 or 1"
    return "not a word that MIOpen knows: from ROCm 6.1, calls fail with 'Invalid value for env variable'"


def _refused_mode(row: Variable, value: str, rocm: Optional[Release]) -> str:
    if not value or value.upper() in {choice.word for choice in _offered(row, rocm) if choice.word}:
        return ""
    # MIOpen reads only the digits at the start of the text.
    digits = re.match(r"\s*[+-]?[0-9]{1,20}", value)
    if digits is None:
        early = "logs an error and uses the default"
        late = "fails with 'stoul' (miopenStatusUnknownError), even in calls that only create a descriptor"
        if rocm is None:
            return f"not a mode: MIOpen up to ROCm 6.0 {early}, a later one {late}"
        return f"not a mode of this version: MIOpen {late if rocm >= (6, 1) else early}"
    if int(digits.group()) not in _numbers(row, rocm):
        return "not a mode of this version: MIOpen logs an error and uses the default"
    return ""


def _refused_option(row: Variable, value: str) -> str:
    known = {choice.word for choice in row.choices}
    # Commas also occur inside the list of roundup_power2_divisions.
    for option in filter(None, re.sub(r"\[[^\]]*\]", "list", value).split(",")):
        name, colon, setting = (part.strip() for part in option.partition(":"))
        if not colon or not setting:
            return f"{name[:40]!r} is not option:value: torch raises an error at the first allocation"
        if name not in known:
            return f"unknown option {name[:40]!r}: torch raises an error"
    return ""


def _offered(row: Variable, rocm: Optional[Release]) -> list[ValidValue]:
    return [
        choice
        for choice in row.choices
        if not (rocm and choice.since and rocm < version_numbers(choice.since))
    ]


def _numbers(row: Variable, rocm: Optional[Release]) -> set[int]:
    return {choice.number for choice in _offered(row, rocm) if choice.number is not None}


def _listed(row: Variable, rocm: Optional[Release]) -> str:
    return ", ".join(str(number) for number in sorted(_numbers(row, rocm)))


def _number(row: Variable, text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-").lower()
    if row.values != "c-int":
        return sign * int(digits)
    return sign * int(digits, 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10)


def _same(row: Variable, value: str, default: str) -> bool:
    if row.values == "miopen-bool":
        return (value.lower() in {*_MIOPEN_ON, "on"}) == (default == "1")
    if row.values == "hip-bool":
        return (value.strip() == "true" or (value.strip() != "false" and int(value) != 0)) == (default == "1")
    if row.values in ("decimal", "hip-int", "c-int"):
        return _number(row, value.strip()) == _number(row, default)
    if row.values == "mode":
        meant = {str(choice.number): choice.word for choice in row.choices}
        return not value or meant.get(value.strip(), value.upper()) == default
    return value == default
