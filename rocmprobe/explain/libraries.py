"""Rules about libraries and packages that are missing, of another release, or built for other hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocmprobe.explain.extraction import PYTHON, USER, is_warning, owner_of
from rocmprobe.explain.inference import Inference, LogContext, short
from rocmprobe.explain.scope import NO_CUDA_IN_TORCH, OF_GPUS, line_of_ptxas
from rocmprobe.text.log import Line

_NOT_IN = re.compile(r"(?P<path>/\S+): version .?(?P<symbol>(?:GLIBCXX|CXXABI|GLIBC)_[\d.]+).? not found")
_OF_THE_SYSTEM = re.compile(r"^/(?:usr/)?lib(?:32|64)?/")


def shadowed_library(context: LogContext) -> Iterator[Inference]:
    """Infer that a C or C++ runtime in the folder of a program hides the runtime of the system.

    Source: ld.so(8).
    """
    for line in context.lines:
        if (match := _NOT_IN.search(line.text)) and not _OF_THE_SYSTEM.match(match["path"]):
            yield Inference(
                f"line {line.number}: {match['path']} hides the system's newer library",
                {"library-path": 5.0, "rocm-package-wrong-os": -5.0},
                "user-env",
            )
            return


def own_runtime_in_wsl(context: LogContext) -> Iterator[Inference]:
    """Infer that the libhsa-runtime64 in a PyTorch wheel hides the system's libhsa-runtime64, which supports
    WSL.

    Source: AMD, Install PyTorch for ROCm on WSL (replace the wheel's libhsa-runtime64).
    """
    if "wsl" in context.words and "+rocm" in (context.facts.torch or "") and _sees_nothing(context):
        yield Inference(
            "a PyTorch wheel contains its own ROCr, without WSL support",
            {"library-path": 3.6},
            "hsa",
        )


def _sees_nothing(context: LogContext) -> bool:
    names = {hit.signature.name for hit in context.hits}
    return "no-hip-gpus" in names or {"asks-available", "prints-false"} <= names


def other_release(context: LogContext) -> Iterator[Inference]:
    """Infer that an extension failed because torch was built for another ROCm than the installed ROCm.

    Source: HIP. A process can load only one version of libamdhip64.
    """
    raiser, torch = context.structure.python_owner, re.search(r"\+rocm(\d\.\d)", context.facts.torch or "")
    system = re.match(r"(\d\.\d)", context.facts.rocm or "")
    if torch and system and torch[1] != system[1] and raiser not in ("", USER, PYTHON, "torch"):
        yield Inference(
            f"{raiser} failed; torch is built for ROCm {torch[1]}, and the installed ROCm is {system[1]}",
            {"rocm-versions-mixed": 3.4},
        )


_ABSENT = re.compile(
    r"(?:^|[\s:('\"])(?:/\S+/)?lib(?P<name>[\w+-]+)\.so(?P<number>[.\d]*): cannot open shared object"
    r"|(?:[Cc]ouldn.t|[Cc]ould not|[Cc]annot|[Ff]ailed to|[Uu]nable to) (?:open|load|find)[^.]{0,40}?"
    r"\blib(?P<other>[\w+-]+)\.so"
    r"|[Ll]oading .?lib(?P<loading>[\w+-]+)\.so[.\d]*.? failed"
)
#: Libraries that only profilers need.
_SPARE = re.compile(r"libhsa-amd-aqlprofile64")
_BINARY_ABSENT = re.compile(r"(/\S+-packages/\S+\.so): cannot open shared object")
_IN_RELEASE = re.compile(r"/opt/rocm-(\d\.\d[\d.]*)/\S+: cannot open shared object")
_OF_ROCM = re.compile(r"(?i)^(?:amdhip|hip|hsa|roc|MIOpen|amd_comgr|rccl|migraphx|torch|c10)")
#: Releases of ROCm, keyed by (name of a library, its major version). Source: the packages of AMD's repository
#: (repo.radeon.com/rocm/apt) for 3.3 to 7.0; HIP's changelog for 3.5.
_RELEASES: dict[tuple[str, str], str] = {
    ("hip_hcc", ""): "3.3 or older", ("hip_hcc", "3"): "3.3 or older",
    ("amdhip64", "3"): "3.5 to 3.10", ("amdhip64", "4"): "4", ("amdhip64", "5"): "5", ("amdhip64", "6"): "6",
    ("amdhip64", "7"): "7", ("hipblas", "0"): "5.5 or older", ("hipblas", "1"): "5.6 or 5.7",
    ("hipblas", "2"): "6", ("hipblas", "3"): "7", ("rocblas", "0"): "5.5 or older",
    ("rocblas", "3"): "5.6 or 5.7", ("rocblas", "4"): "6", ("rocblas", "5"): "7",
}  # fmt: skip


def absent_library(context: LogContext) -> Iterator[Inference]:
    """Infer from a missing library which software is missing: ROCm or another package.

    Source: ld.so(8).
    """
    for line in context.lines:
        if _SPARE.search(line.text):
            continue
        if "aqlprofile API table load failed" in line.text:
            says = f"line {line.number}: the profiler does not find libhsa-amd-aqlprofile64"
            remedy = (
                "Install the package hsa-amd-aqlprofile (binary only) of the same ROCm release. Programs "
                "run without it: only profilers need it."
            )
            yield Inference(says, {"runtime-library-missing": 5.0}, "user-env", remedy=remedy)
            return
        package = owner_of(inside[1]) if (inside := _BINARY_ABSENT.search(line.text)) else USER
        if package not in (USER, PYTHON, "torch"):
            says = f"line {line.number}: {package} has no binary for this GPU"
            yield Inference(says, {"cuda-only-extension": 4.8, "library-path": -4.0}, "user-env")
            return
        if release := _IN_RELEASE.search(line.text):
            says = f"line {line.number}: a file of ROCm {release[1]} is missing"
            remedy = (
                f"Something still points to ROCm {release[1]}: check LD_LIBRARY_PATH, the files in "
                "/etc/OpenCL/vendors and /etc/ld.so.conf.d, and `ls -d /opt/rocm*`. Correct or delete that "
                "entry."
            )
            yield Inference(
                says, {"rocm-versions-mixed": 4.6, "library-path": -2.0}, "user-env", remedy=remedy
            )
            return
        if match := _ABSENT.search(line.text):
            name = match["name"] or match["other"] or match["loading"]
            if re.match(r"(?i)cu|nv", name):
                continue
            yield _absent(line, name, (match["number"] or "").strip("."))
            return


def _absent(line: Line, name: str, number: str) -> Inference:
    says = f"line {line.number}: lib{name} is not found"
    if release := _RELEASES.get((name, number.partition(".")[0])):
        remedy = (
            f"lib{name}.so{f'.{number}' if number else ''} belongs to ROCm {release}, for which the program "
            "was built. Install the program's build for your ROCm (`cat /opt/rocm/.info/version`), or ROCm "
            f"{release}. If this ROCm is installed, set its folder: `export LD_LIBRARY_PATH=/opt/rocm/lib`."
        )
        first, second = ("library-path", "runtime-library-missing")
        # Every installation and every wheel has amdhip64, so the path to amdhip64 is probably wrong. Other
        # libraries are probably missing.
        if name != "amdhip64":
            first, second = second, first
        points = {first: 4.2, second: 1.4, "rocm-versions-mixed": 1.4}
        return Inference(f"{says}, a library of ROCm {release}", points, "user-env", remedy=remedy)
    points = {"library-path": 2.6} if _OF_ROCM.match(name) else {"runtime-library-missing": 4.4}
    return Inference(says, points, "user-env")


_DLL = re.compile(
    r"(?:Error loading \"[^\"]*[\\/]|Could not find module '(?:[^']*[\\/])?)(?P<name>[\w.-]+\.dll)"
)
#: (pattern for the name of a DLL that does not load, advice). Other DLLs usually do not load because the C++
#: runtime is missing. data/causes.toml (runtime-library-missing) has the advice for them. Source:
#: torch/__init__.py (_load_dll_libraries), the rocm-sdk packages, amd-smi's amdsmi_wrapper.py.
_DLLS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"(?i)^(?:torch_hip|c10_hip|amdhip|hip|roc|miopen|amd_comgr)"),
        "A ROCm DLL that {name} needs is missing, or an older copy is found first: `where amdhip64_7.dll` "
        "lists the copies. `pip list` must show the rocm-sdk packages of torch's own index. Reinstall torch "
        "from one index in a fresh virtual environment.",
    ),
    (
        re.compile(r"(?i)^libsmi|amdsmi"),
        "amd-smi on Windows is for servers with virtual GPUs, and needs a driver that desktops lack. Its "
        "error says nothing about ROCm: run `hipinfo` to check the GPU.",
    ),
)


def absent_dll(context: LogContext) -> Iterator[Inference]:
    """Infer which package is at fault if Windows cannot load a DLL.

    Source: Windows, error 126; Python, ctypes.
    """
    for line in context.lines:
        match = _DLL.search(line.text)
        remedy = next((text for pattern, text in _DLLS if match and pattern.search(match["name"])), "")
        if match and remedy:
            says = f"line {line.number}: {match['name']} does not load"
            yield Inference(
                says, {"runtime-library-missing": 1.0}, "user-env", remedy=remedy.format(**match.groupdict())
            )
            return


_UNFIT_BINARY = re.compile(r"(/\S+-packages/\S+\.so[.\d]*): undefined symbol")
#: Packages that fit only one release of torch, and are in the same index as torch.
_OF_TORCH = re.compile(r"Could not find module '[^']*[/\\]site-packages[/\\](torchaudio|torchvision)[/\\]")


def unfit_binary(context: LogContext) -> Iterator[Inference]:
    """Infer that a package was built for another torch or ROCm, because a binary of the package does not
    load.

    Source: ld.so(8); Python, ctypes on Windows.
    """
    for line in context.lines:
        if match := _OF_TORCH.search(line.text):
            says = f"line {line.number}: the binary of {match[1]} was built for another torch"
            points = {"python-package-conflict": 5.0, "runtime-library-missing": -4.0}
            remedy = (
                "Install torch, torchvision and torchaudio in one command, from one index, in a fresh "
                "virtual environment: then pip chooses matching versions."
            )
            yield Inference(says, points, "user-env", remedy=remedy)
            return
        package = owner_of(match[1]) if (match := _UNFIT_BINARY.search(line.text)) else USER
        if package not in (USER, PYTHON, "torch", "torchvision", "torchaudio"):
            says = f"line {line.number}: the binary of {package} was built for another ROCm or torch"
            points = {"cuda-only-extension": 4.6, "library-path": -3.0, "rocm-versions-mixed": 0.8}
            yield Inference(says, points, "torch-build")
            return


_PYTHON_SYMBOL = re.compile(r"(?P<path>\S+): undefined symbol: (?P<symbol>_?Py\w+)")


def other_python(context: LogContext) -> Iterator[Inference]:
    """Infer that a binary was built for another Python, because this Python lacks a symbol.

    Source: ld.so(8); the names of Python's C API.
    """
    for line in context.lines:
        if match := _PYTHON_SYMBOL.search(line.text):
            says = f"line {line.number}: {match['symbol']} belongs to another Python than the running one"
            remedy = (
                f"{match['path'].rpartition('/')[2]} was built for another Python: run it with that Python, "
                "or build it for this one. ROCm's packages have modules only for the system's own Python."
            )
            points = {"python-package-conflict": 5.0, "library-path": -4.0}
            yield Inference(says, points, "user-env", remedy=remedy)
            return


_LOCAL_VERSION = re.compile(
    r"\b(?P<name>torch|torchvision|torchaudio)(?:==|-| )v?\d[\d.]*(?:\.dev\d+)?\+(?P<build>rocm|cu|cpu)"
)


def mixed_builds(context: LogContext) -> Iterator[Inference]:
    """Infer from the versions of torch and its sister packages that they are builds for different hardware.

    Source: PyTorch's local versions (+rocm6.2, +cu118, +cpu).
    """
    builds: dict[str, str] = {}
    for line in context.lines:
        for match in _LOCAL_VERSION.finditer(line.text):
            builds[match["name"]] = match["build"]
    if "torch" in builds and len(set(builds.values())) > 1:
        words = {"rocm": "ROCm", "cu": "CUDA", "cpu": "the CPU"}
        says = " and ".join(f"{name} is a build for {words[build]}" for name, build in sorted(builds.items()))
        remedy = (
            "Run `pip uninstall torch torchvision torchaudio`, then install all three in one command, from "
            "one index. For an AMD GPU, `rocmprobe install` prints the index. For an NVIDIA GPU, use the "
            "index of your CUDA."
        )
        yield Inference(
            says, {"python-package-conflict": 5.0, "wrong-torch-build": -4.0}, "user-env", remedy=remedy
        )


_TRITON_OF_NVIDIA = (
    "With an AMD GPU, the Triton for NVIDIA has replaced the one for ROCm. Run `pip uninstall triton "
    "pytorch-triton-rocm`, then reinstall torch from its index, which adds the right Triton. With an NVIDIA "
    "GPU, update torch: its Triton does not know the GPU."
)


def triton_of_nvidia(context: LogContext) -> Iterator[Inference]:
    """Infer that the Triton for NVIDIA is installed, because it calls NVIDIA's assembler.

    Source: Triton third_party/nvidia/backend/compiler.py.
    """
    if line := line_of_ptxas(context):
        points = {"python-package-conflict": 5.0, "triton-compile-failure": -3.0}
        says = f"line {line.number}: Triton compiles for an NVIDIA GPU"
        yield Inference(says, points, "triton", remedy=_TRITON_OF_NVIDIA)


_SYMBOL_OF_CUDA = re.compile(r"undefined symbol: cu(?:da|blas|dnn|sparse|fft)\w*")


def extension_for_cuda(context: LogContext) -> Iterator[Inference]:
    """Infer from a missing file or symbol that a package was built for torch with CUDA.

    Source: PyTorch, the names of its libraries by build.
    """
    for line in context.lines:
        if match := NO_CUDA_IN_TORCH.search(line.text) or _SYMBOL_OF_CUDA.search(line.text):
            says = f"line {line.number}: a package was built for a torch with CUDA ({match[0].split(':')[0]})"
            remedy = (
                "The installed torch is not a build for CUDA. With an AMD GPU, keep torch and install the "
                "package's build for ROCm, or remove it: `rocmprobe install` prints matching versions. With "
                "an NVIDIA GPU, install torch for CUDA."
            )
            points = {"cuda-only-extension": 6.5, "wrong-torch-build": -3.0, "library-path": -4.0}
            yield Inference(says, points, "torch-build", remedy=remedy)
            return


_HIP_OF_TORCH = re.compile(r"(?:libc10_hip|libtorch_hip)\.so: cannot open shared")


def extension_for_rocm(context: LogContext) -> Iterator[Inference]:
    """Infer from a missing library that a package was built for torch with ROCm.

    Source: PyTorch, the names of its libraries by build.
    """
    for line in context.lines:
        if (match := _HIP_OF_TORCH.search(line.text)) and not is_warning(line.text):
            file = match[0].split(":")[0]
            says = f"line {line.number}: a package needs torch for ROCm, and this is another build ({file})"
            remedy = (
                "With an AMD GPU, install torch for ROCm (`rocmprobe install` prints the commands), of the "
                "version that the package was built for. With an NVIDIA GPU, install the package's "
                "build for CUDA."
            )
            points = {"wrong-torch-build": 5.0, "library-path": -4.0, "python-package-conflict": 2.0}
            yield Inference(says, points, "torch-build", remedy=remedy)
            return


_NOT_BUILT = re.compile(
    r"(?:wasn't|was not|not) (?:built|compiled)\b|is not supported because|No operator found for"
    r"|no kernel image|not implemented for|[Nn]o .{0,20}kernels? (?:found|available)"
)


def extension_without_kernels(context: LogContext) -> Iterator[Inference]:
    """Infer that a package has no kernel for this GPU or problem.

    Source: xformers ops/fmha/dispatch.py; bitsandbytes cextension.py.
    """
    raiser = context.structure.python_owner
    if any("memory_efficient_attention" in line.text for line in context.lines):
        raiser = "xformers"
    if context.fatal or not OF_GPUS.search(raiser) or raiser == "triton":
        return
    for line in context.lines:
        if _NOT_BUILT.search(line.text):
            remedy = (
                f"Install a build of {raiser} for torch's ROCm (`python -c \"import torch; "
                'print(torch.version.hip)"`), or switch it off in the program: PyTorch has its own '
                "attention and most optimizers."
            )
            says = f"line {line.number}: {raiser} was not built with a kernel for this GPU or this problem"
            yield Inference(says, {"cuda-only-extension": 4.6, "outside": -5.0}, "torch-build", remedy=remedy)
            return


_COMMAND_ABSENT = re.compile(
    r"'(?P<quoted>[^']+)' is not recognized as an internal or external command"
    r"|(?:^|: )(?P<plain>[\w./+-]+): (?:command )?not found$"
    r"|^make: (?P<made>\S+): No such file or directory$"
    r"|an't exec \"(?P<exec>[^\"]+)\": No such file"
)
_COMPILER = re.compile(r"(?i)(?:clang|hipcc|cmake|ninja|g\+\+|gcc|nvcc|cl\.exe|make)[\w+.-]*$")


_COMPILER_OF_ROCM = re.compile(r"/rocm[^/]*/.*(?:clang|hipcc|lld)[\w+.-]*$")


def absent_command(context: LogContext) -> Iterator[Inference]:
    """Infer that a command is not installed or not found.

    Source: POSIX shells; cmd.exe.
    """
    if context.fatal:
        return
    for line in context.lines:
        if match := _COMMAND_ABSENT.search(line.text):
            name = match["quoted"] or match["plain"] or match["made"] or match["exec"]
            if _COMPILER_OF_ROCM.search(name):
                yield Inference(
                    f"line {line.number}: ROCm's compiler {short(name)} is not installed",
                    {"jit-compiler-missing": 5.0}, "user-env",
                    remedy="Install the package with ROCm's LLVM, of the same release as the rest "
                    "(rocm-llvm or llvm-amdgpu). This also causes messages about unset values.",
                )  # fmt: skip
                return
            builds = bool(_COMPILER.search(name))
            remedy = (
                f"The command {name} is missing: check if the installed release still has a command of this "
                "name, install the command, or add its folder to PATH"
            ) + (
                " (ROCm's compilers are in its lib/llvm/bin; HIP_CLANG_PATH sets the folder)."
                if builds
                else "."
            )
            points = {"source-build-failure": 4.0} if builds else {"outside": 3.4}
            says = f"line {line.number}: the command {short(name)} is not found"
            yield Inference(says, points, "user-env", remedy=remedy)
            return


_IN_TWO_PACKAGES = re.compile(r"trying to overwrite .*which is also in package (?P<other>\S+)")


def clashing_packages(context: LogContext) -> Iterator[Inference]:
    """Infer that two packages have the same file, so only one of them can be installed.

    Source: dpkg src/main/archives.c.
    """
    for line in context.lines:
        if match := _IN_TWO_PACKAGES.search(line.text):
            says = f"line {line.number}: two packages contain the same file; {match['other']} has it already"
            remedy = (
                f"Run `sudo apt remove {match['other']}`, then install again. The packages are of different "
                "families or releases: amdgpu-... of the driver's installer, rock-... of old ROCm, or the "
                "distribution's own packages."
            )
            points = {"rocm-versions-mixed": 5.4, "kernel-driver-mismatch": -2.0}
            yield Inference(says, points, "user-env", remedy=remedy)
            return


_NO_RELEASE = re.compile(
    r"repo\.radeon\.com.{0,200}(?:\b404\b|Not Found|does not have a Release file)"
    r"|\b404\b.{0,200}repo\.radeon\.com"
)


def absent_release(context: LogContext) -> Iterator[Inference]:
    """Infer that AMD's server has no packages at the configured address.

    Source: apt and dnf, HTTP status 404.
    """
    for line in context.lines:
        if _NO_RELEASE.search(line.text):
            says = f"line {line.number}: AMD's server has no packages at this address"
            remedy = (
                "The address names a release of ROCm, the driver or the system that does not exist there. "
                "Check the folders of https://repo.radeon.com in a browser, and correct the file in "
                "/etc/apt/sources.list.d or /etc/yum.repos.d."
            )
            yield Inference(says, {"rocm-package-wrong-os": 5.0}, "user-env", remedy=remedy)
            return


_WANTED = re.compile(
    r"lib(?:amdhip64|hiprtc|rocblas|hipblas|MIOpen|rccl)\.so\.(\d): cannot open shared"
    r"|amdhip64_(\d)\.dll\W{1,3}(?:was )?not found"
)


def wanted_release(context: LogContext) -> Iterator[Inference]:
    """Infer that a program needs HIP from another ROCm release than the installed ROCm.

    Source: CLR. Since ROCm 5, the soname of its library contains the major version of ROCm.
    """
    here = {
        number[0] for number in re.findall(r"/rocm-(\d)\.\d", "\n".join(line.text for line in context.lines))
    }
    here |= set(re.findall(r"^(\d)\.\d", context.facts.rocm or ""))
    for line in context.lines:
        match = _WANTED.search(line.text)
        if match and "amdhip64" in match[0] and here and not here & set(filter(None, match.groups())):
            asked = match[1] or match[2]
            found = ", ".join(sorted(here))
            says = f"line {line.number}: the program needs HIP of ROCm {asked}, but ROCm {found} is installed"
            yield Inference(
                says, {"library-path": 2.8, "rocm-versions-mixed": 1.6, "runtime-library-missing": -1.6}
            )
            return
