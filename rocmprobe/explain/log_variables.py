"""Environment variables that a log shows to be set: in a command line, a script, a dump."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = (
    r"(?:HSA|HIP|ROCR|ROC|ROCM|MIOPEN|PYTORCH|TORCH|AMD|ROCBLAS|HIPBLASLT|HIPRTC|HCC|GPU|HSAKMT|TENSILE|OLLAMA"
    r"|AMDGPU|MLIR)_[A-Z0-9_]{2,60}|CUDA_VISIBLE_DEVICES|LD_LIBRARY_PATH|LD_PRELOAD|AMD_SERIALIZE_KERNEL"
)
#: NAME=value, "NAME": "value", environ["NAME"] = "value", and NAME value after the words that set one.
_ASSIGNED = re.compile(
    rf"""(?x) (?<![\w$\{{,.-]) (?P<quote>["'`])? (?P<name>(?!\w+_(?:STATUS|ERROR)_){_NAME}) (?:["'`]\]?)?
        (?: (?<!["'`\]]) = | \s?=\s?(?=["']) | (?P<colon>:)\s?(?![A-Z_\d]+[:=]) | (?<=\]) \s?=\s?
          | (?<=\w) \s+ (?=[\d'"]) (?P<blank>) )
        (?: "(?P<double>[^"]{{0,400}})" | '(?P<single>[^']{{0,400}})'
          | (?P<bare>[^\s"'`;&|<>()\],}}]{{1,400}}) )"""
)
_TRIGGER = re.compile(r"[A-Z]_[A-Z]|_DEVICES")
#: What a program says that gives advice is not what was set.
_ADVICE = re.compile(
    r"""(?xi) (?: passing | setting | consider(?:ing)? | try(?:ing)? | us(?:e|ing) | by | with | via
        | please | or | e\.g\. | example | you[ ](?:can|may|should)[ ](?:also[ ])?set | to[ ]set | need[ ]to
        | should ) \s+ (?:the[ ])? ["'`(]? $"""
)
_SETS = re.compile(r"(?i)(?:^|\s)(?:ENV|set -gx|set -x|setenv)\s+$")
#: Number of characters before a name that show what it is used for.
_LOOK_BACK = 40
#: Of compilers, whose definitions look alike.
_DEFINES = re.compile(r"(?:-D|-defsym,|,)\s?$")


def variables_in(texts: Iterable[str]) -> dict[str, str]:
    """The variables that these lines show to be set, each with the value that was shown last."""
    found: dict[str, str] = {}
    for text in texts:
        if not _TRIGGER.search(text):
            continue
        for match in _ASSIGNED.finditer(text):
            before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
            if _DEFINES.search(before) or _ADVICE.search(before):
                continue
            if match["blank"] is not None and not _SETS.search(before):
                continue
            if match["colon"] and not (
                match["quote"] or before in ("", "- ") or "map[" in text[: match.start()]
            ):
                continue
            value = match["double"] or match["single"] or match["bare"]
            if value:
                found[match["name"]] = value
    return found
