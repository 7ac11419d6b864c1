"""Restoration of the original words of messages in a log.

This module reverts translations (data/translations.toml), letters misread in screenshots, and phrases that
were broken or cut off at the end of a line.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from rocmprobe.text.tables import table

#: Texts of hipGetErrorString (CLR hipamd/src/hip_error.cpp). A missing end can be restored only if no other
#: text begins in the same way. So all texts with the same beginning are listed.
_HIP_TEXTS = (
    "invalid device function", "invalid device ordinal", "invalid device pointer", "invalid device symbol",
    "invalid device context", "invalid resource handle", "invalid configuration argument",
    "invalid pitch argument", "invalid copy direction for memcpy", "initialization error",
    "driver shutting down", "no ROCm-capable device is detected", "device kernel image is invalid",
    "no kernel image is available for execution on the device", "unspecified launch failure",
    "an illegal memory access was encountered", "named symbol not found",
    "too many resources requested for launch", "the launch timed out and was terminated",
    "operation not supported", "HIP out of memory", "CUDA out of memory",
)  # fmt: skip
#: Names of errors (HIP, HSA, MIOpen, rocBLAS) and of environment variables. No other word resembles these
#: names, so a misread name can be restored.
_NAMES = (
    "hipErrorInvalidDeviceFunction", "hipErrorNoBinaryForGpu", "hipErrorInvalidKernelFile",
    "hipErrorInvalidImage", "hipErrorInvalidDevice", "hipErrorInvalidValue", "hipErrorOutOfMemory",
    "hipErrorNoDevice", "hipErrorLaunchFailure", "hipErrorIllegalAddress", "hipErrorSharedObjectInitFailed",
    "hipErrorInitializationError", "hipErrorNotInitialized", "hipErrorUnknown", "hipErrorNotSupported",
    "miopenStatusUnknownError", "miopenStatusInternalError", "miopenStatusNotImplemented",
    "miopenStatusBadParm", "miopenStatusAllocFailed", "miopenStatusInvalidValue",
    "miopenStatusNotInitialized", "miopenStatusUnsupportedOp",
    "rocblas_status_internal_error", "rocblas_status_not_implemented",
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES", "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION",
    "HSA_STATUS_ERROR_MEMORY_FAULT", "HSA_STATUS_ERROR_EXCEPTION", "HSA_STATUS_ERROR_INVALID_ISA",
    "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION", "HSA_STATUS_ERROR_INVALID_CODE_OBJECT",
    "CUBLAS_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_INTERNAL_ERROR", "CUBLAS_STATUS_NOT_SUPPORTED",
    "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_ARCH_MISMATCH",
    "HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
)  # fmt: skip
#: Phrases that programs always print in the same words.
_SAYINGS = (
    "Memory access fault by GPU", "Page not present or supervisor privilege", "Segmentation fault",
    "core dumped", "cannot open shared object file", "No such file or directory", "Permission denied",
    "Operation not permitted", "TensileLibrary.dat", "Code object build failed", "DLL load failed",
    "The specified module could not be found", "Traceback (most recent call last)",
)  # fmt: skip
PHRASES = (*_HIP_TEXTS, *_NAMES, *_SAYINGS)

#: Letters that look alike in a screenshot. For comparison, the first letter of a group replaces the others.
_ALIKE = ("lI1i|!", "0OoQ", "5S", "8B", "2Z")
_SKELETON = {ord(letter): group[0] for group in _ALIKE for letter in group}
#: Pairs of letters that look like one letter.
_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))
_LIGATURES = {
    0xFB00: "ff",
    0xFB01: "fi",
    0xFB02: "fl",
    0xFB03: "ffi",
    0xFB04: "ffl",
    0xFB05: "st",
    0xFB06: "st",
}
_WIDE = string.ascii_letters + string.digits + "_-./=+"
#: ASCII replacements for typographic quotes and hyphens, soft hyphens, ligatures, and full-width letters of a
#: Chinese or Japanese keyboard.
_TYPED = {
    **dict.fromkeys((0x2018, 0x2019, 0x201A, 0x201B, 0x2032, 0xB4), "'"),
    **dict.fromkeys((0x201C, 0x201D, 0x201E, 0x201F, 0x2033), '"'),
    **dict.fromkeys((0x2010, 0x2011, 0x2212), "-"), 0xAD: None, **_LIGATURES,
    # Replace only the full-width forms of ``_WIDE``. Patterns for messages expect full-width brackets and
    # colons.
    **{0xFF00 + code - 0x20: code for code in map(ord, _WIDE)},
}  # fmt: skip

#: The name of a GPU target in which digits were misread as letters.
_TARGET = re.compile(r"(?<![A-Za-z0-9])gfx(?=[0-9a-f]*[OoQIl|S])([0-9OoQIl|SBa-f]{3,4})(?![A-Za-z0-9|])")
_REAL = re.compile(r"(?:[6-8][0-9]{2}|9[0-5][0-9a-f]|1[0-2][0-9][0-9a-f])")
_OVERRIDE = re.compile(r"(GFX_VERSION[\"']?\s?[=:]\s?[\"']?)([0-9OIl|]{1,2}\.[0-9OIl|]\.[0-9OIl|])(?![\w|])")
_DIGITS = str.maketrans("OoQIl|S", "0001115")

_DOTS = ("…", "...")
#: A phrase that is cut off is restored only if at least this many characters and this fraction of it are
#: present. For names, the fraction is larger, because a name outside ``PHRASES`` can begin in the same way.
#: Names that begin as in ``_WHOLE`` are not restored if cut off, because many other names begin like them.
_LEAST, _SHARE, _SHARE_OF_NAME = 10, 0.6, 0.8
_WHOLE = ("HSA_", "CUBLAS_", "rocblas_", "HIP_VISIBLE", "ROCR_")

#: Parts of the ASCII texts in data/translations.toml (tests/test_restored.py checks that each text has one).
#: If a log is pure ASCII and contains none of these parts, it contains no translated message.
ASCII_PARTS = (
    "nicht ", "Berechtigung", "zugriff", "Zugriff", "Abgebrochen", "Speicherabzug", "Fehler beim",
    "introuvable", "non permise", "Argument invalide", "Instruction ", "Erreur de", "Abandon", "non permis",
    "Permission non", "erreur lors", "Permiso", "No existe el", "No queda", "No se ", "ilegal", "Abortado",
    "Terminado", "Argumento", "al cargar", "orden no", "generado", "Acceso", "no permitida", "Ficheiro",
    "inexistente", "Morto", "erro ao", "Acesso", "Permesso", "non esistente", "Operazione", "Impossibile",
    "impossibile", "Spazio", "sola lettura", "Nessun", "Argomento", "Errore", "errore", "Istruzione",
    "Annullato", "Ucciso", "core dump creato", "comando non", "Accesso", "Nie ma takiego", "Operacja",
    "Unicestwiony", "Przerwane", "nie znaleziono", "procura", "Procura", "argument",
    "WinError ", "Aucun", "nur lesbar", "Adressierung", "Niedozwolona", "fehlgeschlagen", "n'est pas",
    "somente para", "Nicht erlaubter", "no se puede", "erreur de", "El sistema",
)  # fmt: skip
#: Errors of HIP and HSA that some programs print only as a number. Source: hip_runtime_api.h (hipError_t),
#: hsa.h and hsa_ext_amd.h (hsa_status_t).
_HIP_NUMBERS = {
    1: "hipErrorInvalidValue", 2: "hipErrorOutOfMemory", 3: "hipErrorNotInitialized",
    98: "hipErrorInvalidDeviceFunction", 100: "hipErrorNoDevice", 101: "hipErrorInvalidDevice",
    200: "hipErrorInvalidImage", 209: "hipErrorNoBinaryForGpu", 218: "hipErrorInvalidKernelFile",
    303: "hipErrorSharedObjectInitFailed", 700: "hipErrorIllegalAddress", 719: "hipErrorLaunchFailure",
    801: "hipErrorNotSupported", 999: "hipErrorUnknown",
}  # fmt: skip
_HIP_NUMBER = re.compile(r"hipError_t\((\d{1,3})\)|HIP (?:error|failure)(?: code)?:? \(?(\d{1,3})\b(?!\.)")
_HSA_NUMBERS = {
    0x1008: "HSA_STATUS_ERROR_OUT_OF_RESOURCES", 0x100F: "HSA_STATUS_ERROR_INVALID_ISA",
    0x1010: "HSA_STATUS_ERROR_INVALID_CODE_OBJECT", 0x1016: "HSA_STATUS_ERROR_EXCEPTION",
    0x29: "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION", 0x2A: "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION",
    0x2B: "HSA_STATUS_ERROR_MEMORY_FAULT",
}  # fmt: skip
_HSA_NUMBER = re.compile(
    r"(?:hsa_\w+|executable_load|rocminfo\.cc\.? Call)\b.{0,40}?(?:failed|returned|error)\W{0,3}"
    r"(?:(0x10[0-9a-fA-F]{2}|0x2[9aAbB])|(41\d\d))\b"
)
_WINERROR = re.compile(
    r"\[WinError (\d{1,5})\] ?(.*?)(?=[.\u3002] |[.\u3002]?$|[.\u3002]? ?Error loading|: ['\"])"
)


@dataclass(frozen=True)
class Restored:
    """A line in its original words, and the words that were translated, misread or cut off."""

    text: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class _Message:
    english: str
    printed: str
    alone: bool

    @property
    def pattern(self) -> re.Pattern[str]:
        words = re.escape(self.printed)
        if not self.alone:
            return re.compile(words)
        # The message must begin the line or follow a colon or a number, as in "./run.sh: line 3: 12345
        # Aborted (core dumped) python train.py".
        before = r"(?:(?<=^)|(?<=[:\uff1a])|(?<=[:\uff1a\d] )|(?<=[:\uff1a\d]  ))"
        after = r"(?=[.\u3002]?\s*$|\s*[(\uff08]|\s\s)"
        return re.compile(before + words + after)


@cache
def _messages() -> tuple[tuple[_Message, ...], Mapping[int, str]]:
    """Return the translated messages, the longest first, and the English Windows errors by number."""
    rows = table("translations")["message"]
    found = {
        printed: _Message(row["english"], printed, row.get("alone", False))
        for row in reversed(rows)
        for texts in row["text"].values()
        for printed in texts
    }
    by_number = {row["winerror"]: row["english"] for row in rows if "winerror" in row}
    return tuple(sorted(found.values(), key=lambda each: -len(each.printed))), by_number


def typed(text: str) -> str:
    """Return the text with ASCII instead of typographic quotes, hyphens and letters."""
    return text if text.isascii() else text.translate(_TYPED)


def restored(texts: Sequence[str], numbers: Sequence[int]) -> dict[int, Restored]:
    """Return the lines whose original words were found, keyed by their index in ``texts``.

    ``numbers`` are the line numbers in the file.
    """
    changes = _Changes(texts)
    whole = "\n".join(texts)
    if not whole.isascii() or any(part in whole for part in ASCII_PARTS):
        _translate(changes, whole)
    if "gfx" in whole or "GFX_VERSION" in whole:
        _targets(changes, whole)
    _numbers(changes, whole)
    # In ``anything``, look-alike letters are equal and lines are joined. So the beginning of a phrase
    # (``begun``) also matches misread, broken and cut phrases. If both counts are equal, all matches are
    # intact phrases, and there is nothing to restore.
    anything = _skeleton(whole.replace("-\n", "").replace("\n", " "))
    for phrase, begun in _begun():
        if (may_be := anything.count(begun)) and may_be != whole.count(phrase):
            _misread(changes, phrase)
            _broken(changes, whole, numbers, phrase)
            if not phrase.startswith(_WHOLE):
                _cut(changes, phrase)
    return changes.done


class _Changes:
    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        self.done: dict[int, Restored] = {}

    def make(self, at: int, text: str, words: str) -> None:
        known = self.done[at].words if at in self.done else ()
        self.texts[at] = text
        self.done[at] = Restored(text, (*known, *((words,) if words not in known else ())))

    def put(self, at: int, match: re.Match[str], words: str) -> None:
        text = self.texts[at]
        self.make(at, text[: match.start()] + words + text[match.end() :], words)


def _translate(changes: _Changes, whole: str) -> None:
    messages, by_number = _messages()
    if "[WinError " in whole:
        for at, text in enumerate(changes.texts):
            match = _WINERROR.search(text) if "[WinError " in text else None
            english = by_number.get(int(match[1])) if match else None
            if match and english and english not in text:
                changes.make(at, text[: match.start(2)] + english + text[match.end(2) :], english)
    for message in messages:
        if message.printed not in whole:
            continue
        pattern = message.pattern
        for at, text in enumerate(changes.texts):
            if message.printed in text and pattern.search(text):
                changes.make(at, pattern.sub(message.english, text), message.english)


def _targets(changes: _Changes, whole: str) -> None:
    if not (_TARGET.search(whole) or _OVERRIDE.search(whole)):
        return
    for at in range(len(changes.texts)):
        for match in reversed([*_TARGET.finditer(changes.texts[at])]):
            number = match[1].translate(_DIGITS)
            if _REAL.fullmatch(number):
                changes.put(at, match, f"gfx{number}")
        text = changes.texts[at]
        found = _OVERRIDE.search(text)
        if found and (value := found[2].translate(_DIGITS)) != found[2]:
            changes.make(at, f"{text[: found.start(2)]}{value}{text[found.end() :]}", value)


def _numbers(changes: _Changes, whole: str) -> None:
    """Add the name of each error that is printed only as a number."""
    for pattern, names, parts in (
        (_HIP_NUMBER, _HIP_NUMBERS, ("hipError_t(", "HIP error", "HIP failure")),
        (_HSA_NUMBER, _HSA_NUMBERS, ("hsa_", "executable_load", "rocminfo.cc")),
    ):
        if not any(part in whole for part in parts):
            continue
        for at, text in enumerate(changes.texts):
            match = pattern.search(text) if any(part in text for part in parts) else None
            number = next(filter(None, match.groups())) if match else "0"
            name = names.get(int(number, 0))
            if match and name and name not in text:
                changes.make(at, f"{text[: match.end()]} ({name}){text[match.end() :]}", name)


def _skeleton(text: str) -> str:
    # Replace single letters first, because "ci" can become "cl", which is a pair.
    text = text.translate(_SKELETON)
    for pair, letter in _PAIRS:
        text = text.replace(pair, letter)
    return text


@cache
def _begun() -> tuple[tuple[str, str], ...]:
    parts = (phrase[: _least(phrase)].rstrip("rvc") for phrase in PHRASES)
    return tuple(zip(PHRASES, map(_skeleton, parts)))


@cache
def _look_alikes(phrase: str) -> re.Pattern[str]:
    parts, rest = [], phrase
    while rest:
        pair = next((pair for pair in _PAIRS if rest.startswith(pair)), None)
        if pair:
            both, single = pair
            parts.append(f"(?:{both}|{single})")
            rest = rest[len(both if rest.startswith(both) else single) :]
            continue
        group = next((group for group in _ALIKE if rest[0] in group), None)
        parts.append(f"[{re.escape(group)}]" if group else re.escape(rest[0]))
        rest = rest[1:]
    return re.compile(rf"(?<![A-Za-z0-9_]){''.join(parts)}(?![A-Za-z0-9_])")


def _misread(changes: _Changes, phrase: str) -> None:
    pattern = _look_alikes(phrase)
    for at, text in enumerate(changes.texts):
        for match in reversed([*pattern.finditer(text)]):
            # If only the case differs, as in "Invalid device function", nothing was misread.
            if match[0].lower() != phrase.lower():
                changes.put(at, match, phrase)


def _broken(changes: _Changes, whole: str, numbers: Sequence[int], phrase: str) -> None:
    """Restore a phrase that continues on the next line."""
    pattern = re.compile(
        "(?:-\n)?".join("[ \n]" if letter == " " else re.escape(letter) for letter in phrase)
    )
    starts = _starts(whole)
    for match in pattern.finditer(whole):
        breaks = match[0].count("\n")
        at = bisect_right(starts, match.start()) - 1
        if breaks == 1 and numbers[at + 1] == numbers[at] + 1 and phrase not in changes.texts[at]:
            after = whole[match.end() :].partition("\n")[0]
            before = whole[starts[at] : match.start()]
            changes.make(at, f"{before}{phrase}{after}", phrase)


def _starts(whole: str) -> list[int]:
    starts = [0]
    while (found := whole.find("\n", starts[-1])) >= 0:
        starts.append(found + 1)
    return starts


def _least(phrase: str) -> int:
    share = _SHARE if " " in phrase else _SHARE_OF_NAME
    return min(len(phrase) - 1, max(_LEAST, int(share * len(phrase))))


def _cut(changes: _Changes, phrase: str) -> None:
    """Restore a phrase that is cut off at the end of a line."""
    begun = phrase[: _least(phrase)]
    for at, text in enumerate(changes.texts):
        start = text.rfind(begun)
        if start < 0:
            continue
        tail, marked = _without_dots(text[start:])
        if not phrase.startswith(tail) or len(tail) == len(phrase):
            continue
        if sum(other.startswith(tail) for other in PHRASES) > 1:
            continue
        # If there are no dots, the cut must be inside a word. Otherwise the line may be a complete message.
        if marked or (tail[-1].isalnum() and phrase[len(tail)].isalnum()):
            changes.make(at, text[:start] + phrase, phrase)


def _without_dots(text: str) -> tuple[str, bool]:
    for dots in _DOTS:
        head, found, rest = text.rpartition(dots)
        if found and not rest.strip(" \"')]"):
            return head.rstrip("."), True
    return text, False
