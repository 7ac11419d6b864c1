"""First error of a failed build (compiler, linker, CMake) in a log, and its remedy.

A build prints the reason for its failure first.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Optional

from rocmprobe.text.log import Line

_LONGEST = 100


@dataclass(frozen=True)
class BuildError:
    """First error of a build.

    ``of_amd`` is True if a line of the log names AMD's GPUs or their software. In a log without such a line,
    ``of_amd`` is False if the compiler refused a source file, and None after any other error.
    """

    line: int
    text: str
    remedy: str
    of_amd: Optional[bool]


_FILES = r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|hxx|hip|inc|inl|m|mm|f90|comp|cl|s|S|pyx)"
#: An error in a source file. Source: messages of GCC, Clang, Visual C++, rustc, glslc.
_REFUSED = (
    rf"{_FILES}(?::\d+){{1,2}}: (?:fatal )?error\b|\S:\d+:\d+: fatal error: "
    rf"|{_FILES} ?\(\d+(?:,\d+)?\) ?: (?:fatal )?error C\d{{4}}"
    r"|\berror LNK\d{4}|^error\[E\d{4}\]|shaderc: internal error"
)
#: An error of a build. Source: messages of the programs above, GNU ld, LLD, CMake, GNU make.
_ERROR = re.compile(
    rf"(?P<refused>{_REFUSED})"
    r"|(?:^|[\s/])(?:g?cc|[cg]\+\+|clang(?:\+\+)?|hipcc|nvcc|glslc|ld|ld\.lld|lld|collect2)(?:-\d+|\.exe)?: "
    r"(?:fatal )?error\b|undefined reference to|\bcannot find -l\w"
    r"|^error: option '.*' cannot be specified on this target"
    r"|^error: (?:unrecognized command|use of undeclared|no (?:matching|member)|unknown type|static assertion"
    r"|Illegal instruction)"
    r"|lld-link(?:\.exe)?: error: |^\s*CMake Error|undeclared inclusion\(s\) in rule|ROCm Configuration Error"
    r"|package configuration file provided by"
    r"|make(?:\[\d+\])?: \*\*\* No rule|internal compiler error|PrintStackTraceSignalHandler"
)
#: CMake names the missing part some lines below "CMake Error at FILE".
_CMAKE = re.compile(r"^\s*CMake Error")
_CMAKE_LINES = 16
#: Compilers that run inside a program, not in a build: MIOpen, HIP (comgr, hiprtc), torch.compile, Triton.
_AT_RUN_TIME = re.compile(r"comgr[-_]\w+|MIOpen\(HIP\)|hiprtc|torchinductor|[\\/]\.triton|miopenStatus")
_OF_AMD = re.compile(
    r"(?i)\bhip|[_.]hip\b|hipcc|rocm|amdgpu|amdgcn|gfx\d|rocblas|miopen|tensile|amddevicelibs|\brccl"
    r"|composable_kernel|\bck_|migraphx|comgr|\bhsa|/kcl/|\bkcl_|\bdrm_|drivers/gpu/drm"
)

#: (pattern for a build error, advice). ``{name}`` is the name in the message. Each row's comment gives the
#: source of the error: the program that prints the message.
_REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (  # CPython's and Clang's headers
        re.compile(r"Python\.h['\"]? ?(?:file not found|: No such)"),
        "Python's headers are missing: install python3-dev (python3-devel) for the Python of the build.",
    ),
    (  # Clang, which uses the newest GCC that it finds
        re.compile(
            r"'?(?:cmath|cstdlib|cstddef|limits|string|vector|iostream|algorithm|memory|type_traits)'? "
            r"file not found"
        ),
        "Clang uses the newest GCC's folder, which lacks the C++ headers: install libstdc++-N-dev (or g++) "
        "of that number. `clang++ -v` names it as \"Selected GCC installation\".",
    ),
    (  # CMake
        re.compile(r"CMake \S+ or higher is required|Compatibility with CMake < \S+ has been removed"),
        "This CMake is too old or too new for the source. In both cases, run `pip install 'cmake<4'` in a "
        "virtual environment.",
    ),
    (  # Clang, the ROCm toolchain
        re.compile(r"cannot find (?:ROCm device library|ROCm installation|device library)"),
        "ROCm's device library is missing, or is older than the target: install rocm-device-libs of the "
        "same release, or pass its folder with --rocm-device-lib-path (HIP_DEVICE_LIB_PATH).",
    ),
    (  # CMake, CMakeDetermineCompiler.cmake and CMakeTestCXXCompiler.cmake
        re.compile(r"No CMAKE_\w+_COMPILER could be found|is not able to compile a simple test program"),
        "The compiler is missing or does not work: install g++ and its libstdc++ headers. For HIP, also "
        "install ROCm's clang (CXX=/opt/rocm/llvm/bin/clang++). Delete the build folder, then try again.",
    ),
    (  # CMake, FindCUDA
        re.compile(r"Could NOT find CUDA|CUDA_TOOLKIT_ROOT_DIR|CMAKE_CUDA_COMPILER|CUDAToolkit"),
        "The build needs CUDA. For an AMD GPU, switch the HIP option on (llama.cpp: -DGGML_HIP=ON; others: "
        "-DUSE_ROCM=ON, -DUSE_HIP=ON) in an empty build folder. A program without a HIP option does not run "
        "on AMD GPUs.",
    ),
    (  # CMake, the files that packages export
        re.compile(r"but (?:this|not all the|the following) files?|references the file"),
        "A package's CMake files list a file that is missing or has another name; the lines below name it. "
        "If its folder has a file of another version, the packages are of two releases, or one is faulty. "
        "For a quick test, create a link with the expected name.",
    ),
    (  # HIP, hip-config.cmake; CMake, CMakeDetermineHIPCompiler.cmake
        re.compile(
            r"hip-(?:config|targets|lang-config)\.cmake|HIP runtime CMake package|find CUDA or HIP"
            r"|Could NOT find HIP\b|provided by \"hip\"|cannot find HIP runtime"
        ),
        "CMake does not find a complete HIP. Install HIP's development packages (hip-dev and rocm-cmake; "
        "with AMD's wheels `rocm[devel]`). `hipconfig --full` must work in the same shell. Then build in an "
        "empty folder with -DCMAKE_PREFIX_PATH set to the output of `hipconfig --rocmpath`.",
    ),
    (  # Clang and HIP's headers
        re.compile(r"wave(?:front)?[ _-]?size|static assertion failed"),
        "The source assumes a block or wavefront size (64 lanes on GCN and CDNA, 32 on RDNA) that this "
        "target lacks. Remove the target (AMDGPU_TARGETS, PYTORCH_ROCM_ARCH), or use a release of the "
        "source that supports it. ROCm and the card are not the cause.",
    ),
    (  # Clang, the AMDGPU target
        re.compile(
            r"needs target feature|instruction not supported on this GPU|requires.{0,30}target feature"
        ),
        "The kernel uses instructions of another chip family: remove this target (AMDGPU_TARGETS, "
        "PYTORCH_ROCM_ARCH), or switch off the option that adds the kernel (rocWMMA, flash attention).",
    ),
    (  # Clang, the AMDGPU target
        re.compile(r"invalid target ID|unknown target CPU|unsupported (?:HIP )?gpu architecture"),
        "The compiler does not know a target: it is older than the chip, or the name is misspelt. Use a "
        "newer ROCm, or name only your chip (AMDGPU_TARGETS, PYTORCH_ROCM_ARCH).",
    ),
    (  # CUDA's headers
        re.compile(r"(?:cuda(?:_\w+)?|cublas\w*|cudnn\w*|curand\w*)\.h['\"]? ?(?:file not|: No such)"),
        "The source still includes CUDA's headers: it has no HIP version, or the conversion is incomplete. "
        "Use the branch or release that supports ROCm, in a clean folder. Do not install the CUDA toolkit "
        "for an AMD GPU.",
    ),
    (  # GCC and Clang, for #include; Visual C++, error C1083
        re.compile(r"(?:error: |C1083.*?)['\"]?(?P<name>[\w./+-]+)['\"]?(?: file not found|: No such)"),
        "The header {name} is missing: install its package, or add its folder to CPATH. HIP's own headers "
        "are in /opt/rocm/include.",
    ),
    (  # libstdc++ bits/c++config.h
        re.compile(r"__glibcxx_assert_fail"),
        "The assertions of GCC's C++ library cannot be compiled for the GPU: build without them "
        "(-U_GLIBCXX_ASSERTIONS; some distributions set this macro in CXXFLAGS), or with the C++ library of "
        "an older GCC (--gcc-install-dir).",
    ),
    (  # GCC, setuptools, CMake, Visual Studio
        re.compile(
            r"cannot execute .?cc1|command '\S*(?:gcc|g\+\+|cc)' failed: No such file|(?:gcc|g\+\+): "
            r"(?:command )?not found|Visual C\+\+ 14|vcvarsall|No CMAKE_CX*_COMPILER"
        ),
        "No complete C++ compiler is installed: `sudo apt install build-essential` (Fedora: gcc-c++, "
        "Arch: base-devel, Windows: the Build Tools for Visual Studio with C++).",
    ),
    (  # HIP's headers
        re.compile(r"exactly one of __HIP_PLATFORM"),
        "A compiler other than hipcc reads HIP's headers and needs to know the platform: add "
        "-D__HIP_PLATFORM_AMD__ to CFLAGS and CXXFLAGS.",
    ),
    (  # CMake
        re.compile(r"are set to NOTFOUND"),
        "CMake did not find the libraries listed below this line. Install their development packages in the "
        "release that this source names, and configure again in an empty folder.",
    ),
    (  # NVIDIA nvcc
        re.compile(r"nvcc fatal"),
        "hipcc calls NVIDIA's nvcc. With an AMD GPU, set HIP_PLATFORM=amd. With an NVIDIA GPU, search for "
        "the line in the project's tracker.",
    ),
    (  # Clang, HIP with -fgpu-rdc and LTO
        re.compile(r"__hip_gpubin_handle"),
        "The linker joins GPU code from several files (-fgpu-rdc): build without link-time optimisation "
        "(LTO, IPO), and with the compiler of one ROCm release.",
    ),
    (  # ROCm's headers, recognized by their folder
        re.compile(
            r"^\S*/opt/rocm[\w.-]*/\S*: (?:fatal )?error"
        ),
        "A ROCm header rejects how it is used. First check the compiler command: it needs ROCm's own "
        "compiler of the same release (/opt/rocm/llvm/bin/clang++, hipcc), `-x hip` for GPU code, and C++17 "
        "or newer. If all this is correct, use the source's release for this ROCm.",
    ),
    (  # Clang, which compiles a .cu file as CUDA
        re.compile(r"unsupported CUDA gpu architecture: gfx"),
        "The build passes the file to Clang as CUDA, not as HIP: use a newer release of the source, and "
        "switch its HIP option on. The target itself is valid.",
    ),
    (  # LLD, GNU ld
        re.compile(r"recompile with -fPIC|relocation R_\w+ .*-fPIC"),
        "A part was compiled for a program, not for a library: build with "
        "-DCMAKE_POSITION_INDEPENDENT_CODE=ON (CFLAGS and CXXFLAGS: -fPIC), or use a newer release.",
    ),
    (  # Clang, about default options of a distribution
        re.compile(r"cannot be specified on this target"),
        "A processor option reaches the GPU compiler, usually from a distribution's default flags. Remove "
        "it from CFLAGS and CXXFLAGS, or end them with -fcf-protection=none.",
    ),
    (  # GCC, the kernel's OOM killer
        re.compile(r"Killed signal|virtual memory exhausted|Cannot allocate memory|\bcc1plus\b.*Killed"),
        "Main memory ran out: build with fewer jobs (MAX_JOBS=2, `make -j2`), or add swap.",
    ),
    (  # CUDA crt/host_config.h
        re.compile(r"unsupported GNU version"),
        "The system's GCC is newer than nvcc allows: build with an older GCC (`CC=gcc-12 CXX=g++-12 "
        "CUDAHOSTCXX=g++-12`), or with a newer CUDA toolkit.",
    ),
    (  # the source itself
        re.compile(r"#error|error: #error"),
        "The source itself rejects this compiler, release or target: the words after #error say which. "
        "Change only this.",
    ),
    (  # CMake, find_package
        re.compile(r"provided by \"(?P<name>[\w-]+)\"|Could NOT find (?P<name2>[\w-]+)"),
        "CMake does not find {name}: install its development package, and pass its folder to CMake, e.g. "
        "`-DCMAKE_PREFIX_PATH=/opt/rocm`.",
    ),
    (  # Clang, which uses the newest GCC that it finds
        re.compile(r"(?:cannot find|unable to find library) -lstdc\+\+"),
        "Clang uses the newest GCC's folder, which lacks the C++ library: install libstdc++-N-dev (or g++) "
        "of that number. `clang++ -v` names it as \"Selected GCC installation\".",
    ),
    (  # Bazel
        re.compile(r"undeclared inclusion|ROCm Configuration Error"),
        "Bazel does not find ROCm's headers or libraries where this release of the source expects them: set "
        "ROCM_PATH to the real folder (no link), or use the source's release for your ROCm.",
    ),
    (  # GNU ld, LLD
        re.compile(r"(?:cannot find|unable to find library) -l(?P<name>[\w+-]+)"),
        "The linker does not find lib{name}.so: install its package, or pass its folder with -L. ROCm's "
        "libraries are in /opt/rocm/lib.",
    ),
    (  # GNU ld
        re.compile(r"relocation truncated to fit|relocation overflow|offset overflow in PLT"),
        "The library is too large for 32-bit addresses: build for fewer chips (PYTORCH_ROCM_ARCH), and "
        "without GPU debug code.",
    ),
    (  # GNU ld, versions of symbols
        re.compile(r"undefined (?:reference|symbol).*@[A-Z]"),
        "A library needs the version after the @, but the linker found another version. A conda environment "
        "has its own copies: build outside of it, with the system's compiler.",
    ),
    (  # GNU ld, LLD, Visual C++
        re.compile(r"undefined (?:hidden )?(?:reference|symbol: )|LNK2(?:001|019)"),
        "The linker does not find this function. Its library is missing from the command, was built without "
        "it, or has another release. If it is a GPU function in another file, compile with -fgpu-rdc.",
    ),
    (  # GCC, Clang
        re.compile(r"unrecognized command.line option|unknown argument|unsupported option"),
        "The compiler does not know an option of the build: the build expects another compiler or "
        "release. HIP code needs ROCm's own compiler: `CXX=/opt/rocm/llvm/bin/clang++`.",
    ),
    (  # Clang, GCC
        re.compile(
            r"undeclared|no member named|no matching function|unknown type name|not declared|has no member"
        ),
        "A name is unknown: the source was probably written for another release of its headers, or only for "
        "CUDA. Check which ROCm release the source's README names, and search for the name in its tracker.",
    ),
    (  # LLVM, GCC
        re.compile(
            r"PrintStackTraceSignalHandler|internal compiler error|error in backend|frontend command failed"
        ),
        "The compiler itself crashed. Build with fewer jobs (MAX_JOBS=2), in case memory ran out. If it "
        "crashes at the same file, use another release of the compiler.",
    ),
)  # fmt: skip


def first_error(lines: Collection[Line]) -> Optional[BuildError]:
    """Return the first error of the build that a log shows, or None if the log shows no failed build."""
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
