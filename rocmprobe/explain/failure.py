"""The failure that a log shows: the last exception, the innermost native frame, and how the program ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional

from rocmprobe.text.log import Line

#: Owner of Python frames outside of packages.
PROGRAM = "the program"


@dataclass(frozen=True)
class Failure:
    """The failure that a log shows. All fields are empty if the log shows none.

    - ``kind``, ``message``: type and message of the last exception
    - ``owner``: package of the innermost Python frame, PROGRAM, or "" without a frame
    - ``library``: library or kernel module of the innermost native frame
    - ``end``: abnormal end, e.g. "a segmentation fault"
    - ``line``: line of the exception, or else of the frame or the end
    - ``begin``: number of the first line of the last traceback
    """

    kind: str = ""
    message: str = ""
    owner: str = ""
    library: str = ""
    end: str = ""
    line: Optional[Line] = None
    begin: int = 0


_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = re.compile(r"During handling of the above exception|direct cause of the following exception")
#: Python's faulthandler: "Fatal Python error: Segmentation fault", then frames, innermost first.
_FAULTHANDLER = re.compile(r"\(most recent call first\)")
_EXCEPTION = re.compile(
    r"^(?:[^|]{0,60}\| ?|> ?|E +|ERROR:\w*:? ?)?(?:\[rank\d+\]: ?|\(\w+ pid=\d+\) ?)?"
    r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Timeout|Interrupt|Died|Failure|NotFound))(?:: ?(.*)| *$)"
)
_REPORTED_KIND = re.compile(r"^\W*Exception Type:\W*(?:[\w.]+\.)?(?P<kind>[A-Z]\w+)")
_REPORTED_MESSAGE = re.compile(r"^\W*Exception Message:[* ]*(?:\w+Error: )?(.*)")
_THROWN = re.compile(r"terminate called after throwing an instance of \W([\w:]+)\W")
_WHAT = re.compile(r"^ *what\(\): +(.*)")
_PYTHON_FRAME = re.compile(
    r"^[\s|>]*File \"(?P<file>[^\"]+)\", line \d+|^[\s|>]*File (?P<notebook>[^\s:]+\.py):\d+"
)
#: Native frames of gdb, lldb, systemd, PyTorch, faulthandler, WinDbg and the kernel. Each names a library.
_NATIVE_FRAMES = (
    re.compile(r"^\W*(?:frame )?#\d+[: ].*?(?P<library>[\w+.-]+?\.(?:so[.\d]*|dll))\b"),
    re.compile(r"^\s*0x[0-9a-f]+ in .*? from \S*?(?P<library>[\w+.-]+?\.so[.\d]*)"),
    re.compile(r"^\s*(?:\S*/)?(?P<library>[\w+.-]+?\.so[.\d]*)\(\+?\S*\+?0x[0-9a-f]+\)"),
    re.compile(r"(?i)\bfault(?:ing)? module(?: name)?\W+(?P<library>[\w+.-]+\.(?:dll|exe|pyd))"),
    re.compile(r"(?i)^0x[0-9A-F]{8,16}, \S.*?(?P<library>[\w+.-]+\.(?:dll|pyd))\(0x"),
    re.compile(r"(?i)^MODULE_NAME: (?P<library>\w+)"),
    re.compile(r"^[0-9a-f`]{16,17} [0-9a-f`]{16,17} (?P<library>\w+)!"),
    re.compile(r"(?:segfault|general protection fault|trap \w+)\b.*\bin (?P<library>[\w+.-]+?\.so[.\d]*)\["),
    re.compile(r"(?:^|\s)RIP: \S+:\w+\+0x[0-9a-f]+/0x[0-9a-f]+ \[(?P<library>amd\w+|ttm)\]"),
)  # fmt: skip
#: Libraries that only pass a failure on.
_PASSES_ON = re.compile(
    r"(?i)^(?:libc|libpthread|libstdc\+\+|libgcc_s|libm|ld-linux\S*|ld|ntdll|kernelbase|kernel32|ucrtbase"
    r"|vcruntime\w*|msvcp\w*|libpython\S*|python\d+|python3?|_\w+)(?:\.so|\.dll|\.pyd|[-.]|$)"
)
_ENDS = (
    (re.compile(r"[Ss]egmentation fault|SIGSEGV|signal 11\b|status 139\b|(?i:0xc0000005)"
                r"|\b3221225477\b|-1073741819\b|[Aa]ccess violation"
                r"|exit(?:ed)?(?: with)? code:? (?:139|-11)\b"), "a segmentation fault"),
    (re.compile(r"(?i:0xc0000409)|\bAborted\b|\bAbandon\b|SIGABRT|IOT instruction|signal 6\b"
                r"|exit(?:ed)?(?: with)? code:? (?:134|-6)\b"), "an abort"),
    (re.compile(r"(?i:0xc000001d)|SIGILL|[Ii]llegal instruction"), "an illegal instruction"),
)  # fmt: skip
_WARNS = re.compile(r"\b\w*Warning: |^W\d{4} |\[W\d|\[?\bWARNING?\b|\bWarning\b")
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ")
_REPORTS = re.compile(
    r"(?:^|[\s:\]|)])(?:fatal |FATAL )?(?:ERROR|[Ee]rror|FAILED|Failed)\b(?! ?(?:code)? ?=? ?0\b)|core dumped"
    r"|exit(?:ed)?(?: with)?(?: code| status)?:? -?[1-9]|\bpanic\b|\bKilled\b|timed? ?out\b|\bhangs?\b"
    r"|\*ERROR\*|failed|cannot|could not|unable to|undefined symbol|Exception during|NaN=True|\bnan\b"
)
#: Library, by its name, and the layer to which it belongs.
_LAYERS = (
    (r"MIOpen", "miopen-exec"),
    (r"rocblas|hipblas|Tensile|rocsolver", "rocblas"),
    (r"amd_comgr|LLVM|hiprtc", "miopen-compile"),
    (r"amdhip64|rccl|hipfft|rocfft|rocrand|hiprand|rocsparse", "hip"),
    (r"hsa-runtime64|hsakmt|rocdxg|amdocl64|rocprofiler|roctracer", "hsa"),
    (r"triton", "triton"),
    (r"torch|c10|aotriton|caffe2", "torch-build"),
    (r"^amdgpu|^amdkfd|^ttm|amdxc|atidxx|amdkmdag|atikmdag|amdxx|aticfx", "driver"),
)


def is_warning(text: str) -> bool:
    """Return True if the program marks this line as a warning."""
    return bool(_WARNS.search(text)) and not _RAISED.match(text) and "WARNING: CPU:" not in text


def reports_failure(text: str) -> bool:
    """Return True if this line reports an error or an abnormal end."""
    if is_warning(text):
        return False
    return bool(_EXCEPTION.match(text) or _REPORTS.search(text) or _end(text))


def layer_of(library: str) -> str:
    """Return the layer to which a library or kernel module belongs, or "" if it is not AMD's or PyTorch's."""
    return next((layer for pattern, layer in _LAYERS if re.search(pattern, library)), "")


def failure_in(lines: Sequence[Line]) -> Failure:
    """Return the failure that a log shows."""
    kind = message = owner = thrown = ""
    at: Optional[Line] = None
    begin = 0
    inner_first = chained = waits = False
    # A log keeps a repeated line once, and the last occurrence is nearest to the failure.
    for line in sorted(lines, key=lambda line: max(line.number, line.last)):
        text = line.text
        if _TRACEBACK in text:
            begin = begin if chained else max(line.number, line.last)
            kind = message = owner = ""
            inner_first = chained = waits = False
        elif _CHAINED.search(text):
            chained = True
        elif _FAULTHANDLER.search(text):
            inner_first, owner = True, ""
        elif match := _PYTHON_FRAME.match(text):
            path = match["file"] or match["notebook"]
            if not path.startswith("<") and not (inner_first and owner):
                owner = owner_of(path)
        elif (match := _EXCEPTION.match(text)) and not is_warning(text):
            kind, message, at = match[1], (match[2] or "").strip(), line
            waits = not message
        elif match := _REPORTED_KIND.match(text):
            kind, message, at = match["kind"], "", line
        elif kind and not message and (match := _REPORTED_MESSAGE.match(text)):
            message = match[1].strip()
        elif match := _THROWN.search(text):
            thrown = match[1].rpartition("::")[2]
            kind, message, at = thrown, "", line
        elif thrown and (match := _WHAT.match(text)):
            message, at, thrown = match[1].strip(), line, ""
        elif waits and text.strip():
            message, waits = text.strip(), False
    frame, library = _native(lines)
    ended, end = _last_end(lines)
    return Failure(kind, message, owner, library, end, at or frame or ended, begin)


def _native(lines: Iterable[Line]) -> tuple[Optional[Line], str]:
    """Return the innermost native frame that names a library: (its line, the library)."""
    for line in lines:
        for pattern in _NATIVE_FRAMES:
            if (match := pattern.search(line.text)) and not _PASSES_ON.match(match["library"]):
                return line, match["library"]
    return None, ""


def _last_end(lines: Sequence[Line]) -> tuple[Optional[Line], str]:
    return next(((line, end) for line in reversed(lines) if (end := _end(line.text))), (None, ""))


def _end(text: str) -> str:
    return next((end for pattern, end in _ENDS if pattern.search(text)), "")


def owner_of(path: str) -> str:
    """Return the package of a Python file, "Python" for the standard library, or else PROGRAM."""
    parts = [part for part in re.split(r"[/\\]+", path) if part]
    for folder in ("site-packages", "dist-packages", "custom_nodes", "extensions"):
        if folder in parts[:-1]:
            name = parts[len(parts) - parts[::-1].index(folder)]
            return name[:-3] if name.endswith(".py") else name
    if re.search(r"(?i)[/\\](?:lib(?:64)?[/\\]python3[^/\\]*|python3\d+[/\\]lib)[/\\]", path):
        return "Python"
    return PROGRAM
