"""Meanings of the error messages of rocminfo, rocm-smi and amd-smi.

Sources of the messages: rocminfo.cc, rocm_smi.py and amdsmi_init.py of ROCm 1.8 to 7.2, and reports of users.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: A user's name in rocminfo's message about groups. It is removed, because it is private.
_MEMBER = re.compile(r"(?<!\S)\S{1,200}(?= is (?:not )?(?:a )?member of )")
_LONGEST = 300
_MOST_LINES = 5000
_WIDEST = 1000


@dataclass(frozen=True)
class Failure:
    """The reason why a tool gave no result. ``line`` is the output line that shows the reason."""

    state: str
    meaning: str
    line: str = ""


_DRIVER = "the amdgpu kernel driver is not loaded"
_NO_RUNTIME = "the HSA runtime could not start, so no ROCm program can start on this machine"
_MEANINGS = tuple(
    (re.compile(pattern), state, meaning)
    for pattern, state, meaning in (
        (r"error while loading shared libraries|(?:ImportError|ModuleNotFoundError): |OSError: [^\[\n]*\.so|"
         r"Unable to load .{0,40} library",
         "library-missing", "the tool itself is broken: a library or module that it needs is missing"),
        (r"ROCk module is NOT (?:loaded|live)|[Dd]rivers? not (?:initialized|loaded)\b|"
         r"Driver Initialized, but amdgpu not found|amdgpu not found in modules",
         "driver-not-loaded", _DRIVER),
        (r"/dev/kfd\b.*Permission denied|EACCES",
         "permission-denied", "this user has no permission to open /dev/kfd: not in the group that owns it, "
         "or a container without the device"),
        (r"/dev/kfd\b.*(?:No such file or directory|ENOENT)",
         "no-kfd", "the driver is loaded but there is no /dev/kfd: no GPU that KFD supports, or a container "
         "without the device"),
        (r"/dev/kfd\b.*No such device",
         "no-kfd", "/dev/kfd exists, but has no driver"),
        (r"/dev/kfd\b.*Cannot allocate memory|/dev/kfd\b.*ENOMEM",
         "kfd-refused", "the kernel could not set up this process for compute (out of memory, or a GPU that "
         "KFD does not support)"),
        (r"/dev/kfd\b.*Operation not permitted",
         "kfd-refused", "the kernel forbids /dev/kfd: a container or sandbox without the device"),
        (r"Unable to open /dev/kfd|/dev/kfd\b.*(?:Invalid argument|Bad address)",
         "kfd-refused", "the kernel's compute driver refuses access, as it does without a usable GPU"),
        (r"unsupported GPU|unrecognized id",
         "unsupported-gpu", "the runtime does not know this GPU or the one that an override names"),
        (r"No WDDM adapters found|WSL environment detected",
         "no-wsl-adapter", "inside WSL the runtime finds no GPU: the Windows driver offers none"),
        (r"HSA_STATUS_ERROR_OUT_OF_RESOURCES|Call retur?ned 4104",
         "hsa-init-failed", f"{_NO_RUNTIME}: out of resources (also reported if /dev/kfd is unusable)"),
        (r"hsa api call failure|hsa_init Failed|HSA_STATUS_ERROR|HSA Error:", "hsa-init-failed", _NO_RUNTIME),
        (r"(?i)unable to detect any GPU devices|no (?:AMD )?GPUs? (?:devices? )?(?:found|detected|available)",
         "no-gpu", "the tool finds no AMD GPU"),
        (r"(?i)permission denied", "permission-denied",
         "this user has no permission for a file that the tool needs"),
        (r"Traceback \(most recent call last\)", "tool-broken", "the tool itself failed"),
    )
)  # fmt: skip


def failure(text: str) -> Optional[Failure]:
    """Return the failure that a tool's output reports, or None if the output has no known error."""
    text = "\n".join(line[:_WIDEST] for line in cleaned(text).splitlines()[:_MOST_LINES])
    for pattern, state, meaning in _MEANINGS:
        match = pattern.search(text)
        if match:
            return Failure(state, meaning, _line_around(text, match.start()))
    return None


def cleaned(text: str) -> str:
    """Return ``text`` without colours, control characters and user names."""
    return _MEMBER.sub("<user>", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def first_lines(text: str, count: int = 3) -> str:
    """Return the first lines of a text as one line."""
    return "; ".join(line[:_LONGEST] for _, line in zip(range(count), _filled(cleaned(text))))


def _filled(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if line.strip())


def _line_around(text: str, place: int) -> str:
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    return text[start : end if end >= 0 else len(text)].strip()[:_LONGEST]
