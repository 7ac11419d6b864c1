"""A failed build: the first error of a compiler, a linker or CMake in a log, and what to do about just that.

A build tells its reason first, and ends in messages that only follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Optional

from rocmprobe.text.log import Line

#: Longer messages are cut.
_LONGEST = 100


@dataclass(frozen=True)
class BuildError:
    """The first error of a build. ``text`` is its message, ``remedy`` what to do about it ("" if the message
    does not tell). ``of_amd`` is True if a line names AMD's GPUs or their software, False if none does and a
    compiler refused a source file, None if that cannot be told."""

    line: int
    text: str
    remedy: str
    of_amd: Optional[bool]


_FILES = r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hxx|hip|inc|inl|m|mm|f90|comp|cl|s|S|pyx)"
#: Source: GCC, Clang, Visual C++, rustc, glslc: how each prints an error in a source file.
_REFUSED = (
    rf"{_FILES}(?::\d+){{1,2}}: (?:fatal )?error\b"
    rf"|{_FILES} ?\(\d+(?:,\d+)?\) ?: (?:fatal )?error C\d{{4}}"
    r"|\berror LNK\d{4}|^error\[E\d{4}\]|shaderc: internal error"
)
#: Source: the same, GNU ld, LLD, CMake, GNU make.
_ERROR = re.compile(
    rf"(?P<refused>{_REFUSED})"
    r"|(?:^|[\s/])(?:g?cc|[cg]\+\+|clang(?:\+\+)?|hipcc|nvcc|glslc|ld|ld\.lld|lld|collect2)(?:-\d+|\.exe)?: "
    r"(?:fatal )?error\b|undefined reference to|\bcannot find -l\w"
    r"|^error: (?:use of undeclared|no (?:matching|member)|unknown type|static assertion|Illegal instruction)"
    r"|^\s*CMake Error|package configuration file provided by"
    r"|make(?:\[\d+\])?: \*\*\* No rule|internal compiler error|PrintStackTraceSignalHandler"
)
#: CMake names what it misses some lines below "CMake Error at FILE".
_CMAKE = re.compile(r"^\s*CMake Error")
_CMAKE_LINES = 8
#: A compilation while a program runs is no build: MIOpen and HIP (comgr, hiprtc), torch.compile, Triton.
_AT_RUN_TIME = re.compile(r"comgr[-_]\w+|MIOpen\(HIP\)|hiprtc|torchinductor|[\\/]\.triton|miopenStatus")
_OF_AMD = re.compile(
    r"(?i)\bhip|[_.]hip\b|hipcc|rocm|amdgpu|amdgcn|gfx\d|rocblas|miopen|tensile|amddevicelibs|\brccl"
    r"|composable_kernel|\bck_|migraphx|comgr|\bhsa|/kcl/|\bkcl_|\bdrm_|drivers/gpu/drm"
)

#: What to do about an error of a build, by its message. ``{name}`` is what the message names.
#: Source of each: who prints it.
_REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (  # GCC, Clang: #include; Visual C++ C1083
        re.compile(r"(?:fatal error: |C1083.*?)['\"]?(?P<name>[\w./+-]+)['\"]?(?: file not found|: No such)"),
        "The header {name} is missing: install the package that brings it, or name its folder in CPATH. "
        "HIP's own headers are in /opt/rocm/include.",
    ),
    (  # CMake, find_package
        re.compile(r"provided by \"(?P<name>[\w-]+)\"|Could NOT find (?P<name2>[\w-]+)"),
        "CMake does not find {name}: install its development package, and give CMake the folder that it is "
        "in, as in `-DCMAKE_PREFIX_PATH=/opt/rocm`.",
    ),
    (  # GNU ld, LLD
        re.compile(r"(?:cannot find|unable to find library) -l(?P<name>[\w+-]+)"),
        "The linker does not find lib{name}.so: install the package that has it, or name its folder with -L. "
        "ROCm's libraries are in /opt/rocm/lib.",
    ),
    (  # GNU ld, LLD, Visual C++
        re.compile(r"undefined reference to|undefined symbol: |LNK2(?:001|019)"),
        "The linker does not find a function: a library is missing from the command, or it is of another "
        "release or compiler than its headers. Build in an empty folder, with libraries of one release.",
    ),
    (  # GCC, Clang
        re.compile(r"unrecognized command.line option|unknown argument|unsupported option"),
        "The compiler does not know an option that the build gives: it is another compiler, or another "
        "release of it. HIP code wants ROCm's own: `CXX=/opt/rocm/llvm/bin/clang++`.",
    ),
    (  # Clang, GCC
        re.compile(
            r"undeclared|no member named|no matching function|unknown type name|not declared|has no member"
        ),
        "The source and the headers that it includes are of different releases: take the release of the "
        "source that names the installed one.",
    ),
    (  # Clang, the ROCm toolchain
        re.compile(r"cannot find ROCm device library"),
        "hipcc does not find ROCm's device library: install rocm-device-libs of the same release, or name "
        "its folder with --rocm-device-lib-path (HIP_DEVICE_LIB_PATH).",
    ),
    (  # LLVM, GCC
        re.compile(
            r"PrintStackTraceSignalHandler|internal compiler error|error in backend|frontend command failed"
        ),
        "The compiler itself crashed. Build with fewer jobs (MAX_JOBS=2), in case memory ran out; if it "
        "crashes at the same file, with another release of the compiler.",
    ),
)  # fmt: skip


def first_error(lines: Collection[Line]) -> Optional[BuildError]:
    """Return the first error of the build that a log shows, None if it shows no failed build."""
    texts = [line.text for line in lines]
    for place, line in enumerate(lines):
        if match := _ERROR.search(line.text):
            if any(map(_AT_RUN_TIME.search, texts)):
                return None
            whole = texts[place : place + _CMAKE_LINES] if _CMAKE.match(line.text) else [line.text]
            text = line.text[match.start() :] if match[0].startswith("undefined") else line.text
            of_amd = True if any(map(_OF_AMD.search, texts)) else False if match["refused"] else None
            return BuildError(line.number, _cut(text.strip()), _remedy(" ".join(whole)), of_amd)
    return None


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _remedy(text: str) -> str:
    for pattern, remedy in _REMEDIES:
        if match := pattern.search(text):
            return remedy.format(name=next(filter(None, match.groupdict().values()), ""))
    return ""
