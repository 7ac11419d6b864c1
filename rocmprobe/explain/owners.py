"""Rules about ownership: whose code failed, by its frames, files, libraries, statuses and kernel messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from rocmprobe.explain.extraction import PYTHON, USER, Error, owner_of
from rocmprobe.explain.inference import Inference, LogContext, short
from rocmprobe.explain.scope import FOR_NVIDIA, OF_GPUS
from rocmprobe.explain.situations import WORDS
from rocmprobe.text.log import Line

#: Owners of native frames by symbol or library, and the layer that fails there.
#: Source: the namespaces of MIOpen, rocBLAS, ROCr, CLR, LLVM, PyTorch and ggml; Linux drivers/gpu/drm.
_OWNERS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("MIOpen", "miopen-exec", re.compile(r"\bmiopen::|\bmiopen[A-Z]|libMIOpen")),
    ("rocBLAS", "rocblas", re.compile(r"rocblas|Tensile|hipblas", re.IGNORECASE)),
    ("ROCr", "hsa", re.compile(r"\brocr::|\bHSA::|\bGpuAgent|libhsa-|\bhsa_|hsaKmt|libhsakmt")),
    ("Triton", "triton", re.compile(r"\btriton|libtriton", re.IGNORECASE)),
    ("HIP", "hip", re.compile(r"\bamd::|\bhip[A-Z:_]|\broc::|amdhip64")),
    ("LLVM", "miopen-compile", re.compile(r"comgr|\bllvm::|\bclang::|\blld::|libLLVM")),
    ("PyTorch", "torch-build", re.compile(r"\b(?:c10|at|torch|caffe2)::|libtorch|libc10")),
    ("the program", "user-code", re.compile(r"\b(?:ggml|llama|whisper|sd)_\w|libggml|libllama")),
)
_DRIVER = re.compile(
    r"^(?:amdgpu|kfd|kgd|dcn?\d*|dm|dc|gfx_v|sdma_v|mes_v|smu|psp|vcn_v|gmc_v|drm|ttm|amdkcl|gmc|vm|svm)_|amdgpu|amdkfd"
)


_KERNEL_ASSERTION = re.compile(r"WARNING: CPU: \d+ PID: \d+ at \S*drivers/gpu/drm/(?:amd|ttm|scheduler)")


def kernel_assertion(context: LogContext) -> Iterator[Inference]:
    """Infer a defect of the kernel driver from an assertion of its own, if no line tells of a GPU that hangs.

    Source: Linux, WARN_ON, whose line has the source file.
    """
    if context.fatal_besides("kernel-driver-regression"):
        return
    for line in context.lines:
        if _KERNEL_ASSERTION.search(line.text):
            says = f"line {line.number}: an assertion of the kernel driver failed"
            yield Inference(says, {"kernel-driver-regression": 2.4}, "driver")
            return


_OOPS = re.compile(
    r"BUG: (?:kernel NULL pointer|unable to handle)|Oops: \d|general protection fault.*PREEMPT"
)
_FROM_DRIVER = re.compile(r"\bamdgpu\b|\bamdkfd\b|\[drm")
#: So many lines before a crash of the kernel, a message of the driver belongs to it.
_BEFORE_OOPS = 6


def kernel_crash(context: LogContext) -> Iterator[Inference]:
    """Infer a defect of the kernel driver from a crash of the kernel among the driver's own messages.

    Source: Linux, arch/x86/mm/fault.c. No program may crash the kernel.
    """
    for place, line in enumerate(context.lines):
        if _OOPS.search(line.text):
            around = context.lines[max(0, place - _BEFORE_OOPS) : place] + context.lines[place + 1 :]
            if any(_FROM_DRIVER.search(each.text) for each in around):
                says = f"line {line.number}: the kernel itself crashed, in or after code of the GPU's driver"
                yield Inference(says, {"kernel-driver-regression": 3.6}, "driver")
            return


#: Steps at which the driver gives a GPU up, and what to look at.
#: Source: Linux drivers/gpu/drm/amd/amdgpu: amdgpu_device.c, amdgpu_discovery.c, amdgpu_psp.c, amdgpu_bios.c;
#: drivers/pci/setup-res.c.
_INIT_FAILED = re.compile(
    r"Fatal error during GPU init|probe of [\w:.]+ failed with error|hw_init of IP block"
)
_INIT_STEPS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "the board gives it too little address space",
        re.compile(r"BAR \d.*(?:can't assign|failed to assign|no space)"),
        "In the BIOS switch on Above 4G Decoding and Resizable BAR, and update the BIOS. With many cards, "
        "try fewer; the kernel's option `pci=realloc` may help.",
    ),
    (
        "it cannot read the card's own description",
        re.compile(r"discovery"),
        "Switch the machine off at the plug for a minute. If it stays, update kernel and linux-firmware, "
        "then BIOS and the card's firmware; then suspect the card.",
    ),
    (
        "its security processor takes no firmware",
        re.compile(r"\bPSP\b|\bpsp\b"),
        "Switch the machine off and on, then update linux-firmware. In a virtual machine the host must "
        "never have used the GPU: bind it to vfio-pci at boot, or use a container instead.",
    ),
    (
        "a file of its firmware is missing",
        re.compile(r"Direct firmware load for \S+ failed|Failed to load firmware|firmware: failed to load"),
        "Install or update linux-firmware (on Debian firmware-amd-graphics), rebuild the initramfs, and "
        "restart.",
    ),
    (
        "it finds no video BIOS",
        re.compile(r"VBIOS|Unable to locate a BIOS ROM"),
        "In a virtual machine give the GPU's ROM file to the guest; else reseat the card and update the "
        "BIOS.",
    ),
)  # fmt: skip


def gpu_start(context: LogContext) -> Iterator[Inference]:
    """Infer at which step the kernel driver could not start the GPU.

    Source: the driver's messages (``_INIT_STEPS``).
    """
    starts = next((line for line in context.lines if _INIT_FAILED.search(line.text)), None)
    for says, pattern, remedy in _INIT_STEPS:
        line = next((line for line in context.lines if pattern.search(line.text)), None)
        if line and (starts or "address space" in says):
            yield Inference(
                f"line {line.number}: the driver cannot start the GPU: {says}",
                {"kfd-missing": 5.0, "kernel-driver-too-old": -1.5}, "driver", remedy=remedy,
            )  # fmt: skip
            return


#: What an error of opening /dev/kfd means, and what to do.
#: Source: Linux drivers/gpu/drm/amd/amdkfd/kfd_chardev.c and kfd_process.c.
_KFD_ERRORS: tuple[tuple[re.Pattern[str], str, dict[str, float], str], ...] = (
    (
        re.compile(r"/dev/kfd.{0,80}(?:Invalid argument|EINVAL)"),
        "/dev/kfd is there and refuses: its number is not the one of the running driver, or the driver "
        "has no GPU",
        {"kfd-missing": 1.0},
        "Compare the first number of `ls -l /dev/kfd` with the line kfd of `cat /proc/devices` on the "
        "host: in a container of LXC or Proxmox the allowed number must be this one. Then `sudo dmesg | "
        "grep -i kfd` on the host.",
    ),
    (
        re.compile(r"/dev/kfd.{0,80}(?:Cannot allocate memory|ENOMEM)"),
        "/dev/kfd is there, and the driver offers no GPU; main memory is not meant",
        {"gpu-unsupported-by-kfd": 0.4},
        "Look in `sudo dmesg | grep -iE 'kfd|amdgpu'`: \"PCI rejects atomics\" asks for another slot, "
        "\"missing in supported_devices\" for a newer kernel, \"Fatal error during GPU init\" names the "
        "step that failed.",
    ),
)  # fmt: skip


#: The driver's own reason.
_KFD_SAYS_WHY = re.compile(r"supported_devices|rejects atomics|not supported on this ASIC")


def kfd_error(context: LogContext) -> Iterator[Inference]:
    """Tell from the error of opening /dev/kfd what keeps programs from the GPU."""
    if any(_KFD_SAYS_WHY.search(line.text) for line in context.lines):
        return
    for line in context.lines:
        for pattern, says, points, remedy in _KFD_ERRORS:
            if pattern.search(line.text):
                yield Inference(f"line {line.number}: {says}", points, "driver", remedy=remedy)
                return


def owner(context: LogContext) -> Iterator[Inference]:
    """Take the layer from the owner of the innermost native frame.

    Source: gdb, systemd-coredump, torch's backtraces, the kernel's call traces.
    """
    frame = context.structure.native
    if frame is None:
        return
    if frame.kind == "kernel":
        if _DRIVER.search(frame.text) or frame.owner in ("amdgpu", "amdkfd", "amdttm", "amdkcl"):
            says = f"line {frame.line}: the kernel's call trace is in the driver ({frame.text})"
            yield Inference(says, {"kernel-driver-regression": 1.6, "gpu-hang-reset": 0.8}, "driver")
        return
    for who, layer, pattern in _OWNERS:
        if pattern.search(f"{frame.text} {frame.owner}"):
            points = {"miopen-solver-bug": 3.4} if "miopen::solver" in frame.text else {}
            yield Inference(
                f"line {frame.line}: the innermost frame is in {who} ({short(frame.text)})", points, layer
            )
            return


#: The parts of a GPU through which the kernels of a program read and write. The others are the command
#: processor and the copy engines, which the runtime and the driver feed.
_OF_KERNELS = re.compile(r"Faulty UTCL2 client ID: (?:TCP|TCC|SQC|TA|CB|DB)\b")


def page_fault(context: LogContext) -> Iterator[Inference]:
    """Tell from the part of the GPU that reports a page fault that a kernel of the program made it.

    Source: Linux drivers/gpu/drm/amd/amdgpu/gmc_v9_0.c and gmc_v10_0.c, the names of the clients.
    """
    if any(hit.signature.shows == "hang" for hit in context.hits):  # what a reset leaves behind
        return
    for line in context.lines:
        if _OF_KERNELS.search(line.text):
            says = f"line {line.number}: a kernel of the program made the page fault, not the driver"
            yield Inference(says, {"gpu-memory-fault-unexplained": 3.0}, "hsa")
            return


#: Statuses by the library that returns them.
#: Source: hipblas.h, rocblas-types.h, hipblaslt.h, miopen.h, nccl.h, hsa.h, hip_runtime_api.h, hipfft.h,
#: rocfft.h,
#: rocsolver, rocrand.h, rocsparse-types.h.
_STATUSES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("rocBLAS or hipBLASLt", "rocblas", re.compile(r"(?:HIP|CU)BLAS(?:LT)?_STATUS_\w+|rocblas_status_\w+")),
    ("hipFFT", "hip", re.compile(r"HIPFFT_[A-Z_]+|CUFFT_[A-Z_]+|rocfft_status_\w+")),
    ("hipSOLVER, hipSPARSE or hipRAND", "hip", re.compile(r"HIP(?:SOLVER|SPARSE|RAND)_STATUS_\w+")),
    ("rocSPARSE or rocRAND", "hip", re.compile(r"roc(?:sparse|rand)_status_\w+|ROCRAND_STATUS_\w+")),
    ("RCCL", "hip", re.compile(r"\bnccl(?!Success)[A-Z]\w+(?:Error|Usage)\b")),
    ("MIOpen", "miopen-exec", re.compile(r"miopenStatus[A-Z]\w+")),
    ("ROCr", "hsa", re.compile(r"HSA_STATUS_\w+")),
    ("HIP", "hip", re.compile(r"\bhipError[A-Z]\w+|HIP_ERROR_\w+|HIP error: [\w -]+")),
)  # fmt: skip


def quoted_status(error: Optional[Error]) -> Optional[tuple[str, str, str]]:
    """Return (library, layer, status) of the status that an error quotes, None if it quotes none."""
    for who, layer, pattern in _STATUSES:
        if error is not None and (match := pattern.search(error.message)):
            return who, layer, match[0].strip()
    return None


def status(context: LogContext) -> Iterator[Inference]:
    """Take the layer from the status that the last error quotes, if no signature knows it.

    Source: the prefix of each library's statuses.
    """
    error = context.structure.error
    known = {line.number for hit in context.hits for line in hit.lines}
    if error is None or error.line in known or context.fatal or context.structure.native is not None:
        return
    if found := quoted_status(error):
        who, layer, name = found
        yield Inference(f"line {error.line}: {name} is {who}'s", {}, layer)


#: Source files by the project that they are from.
_SOURCES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("rocm-smi", "", re.compile(r"rocm_smi|amdsmi|amd_smi", re.IGNORECASE)),
    (
        "the HIP runtime",
        "hip",
        re.compile(r"hipamd|/clr/|rocclr|hip-runtime|\bhip_\w+\.cpp|rocdevice", re.IGNORECASE),
    ),
    ("ROCr", "hsa", re.compile(r"rocr|libhsakmt|ROCT|hsa-runtime", re.IGNORECASE)),
    ("MIOpen", "miopen-exec", re.compile(r"miopen|MLOpen", re.IGNORECASE)),
    ("rocBLAS", "rocblas", re.compile(r"rocblas|Tensile|hipblas", re.IGNORECASE)),
)


#: Files of HIP that load code objects: an assertion there means that none fits.
_CODE_OBJECTS = re.compile(r"hip_(?:code_object|fatbin)\.cpp")


def assertion(context: LogContext) -> Iterator[Inference]:
    """Take the layer from the source file of an assertion that failed.

    Source: the C library's assert, which prints the file.
    """
    frame = context.structure.asserted
    for who, layer, pattern in _SOURCES if frame else ():
        if frame and pattern.search(frame.text):
            says = f"line {frame.line}: an assertion of {who} failed"
            # rocm-smi only reads sensors: it says nothing about compute.
            points = {"source-build-failure": -2.0} if layer else {"outside": 3.4}
            if _CODE_OBJECTS.search(frame.text):
                points.update({"arch-not-in-wheel": 2.0, "arch-not-in-rocm-lib": 2.0})
            yield Inference(says, points, layer or "user-code")
            return


_NOT_IN = re.compile(r"(?P<path>/\S+): version .?(?P<symbol>(?:GLIBCXX|CXXABI|GLIBC)_[\d.]+).? not found")
_OF_THE_SYSTEM = re.compile(r"^/(?:usr/)?lib(?:32|64)?/")


def shadowed_library(context: LogContext) -> Iterator[Inference]:
    """Infer that a C or C++ runtime in a program's own folder hides that of the system.

    Source: ld.so(8).
    """
    for line in context.lines:
        if (match := _NOT_IN.search(line.text)) and not _OF_THE_SYSTEM.match(match["path"]):
            yield Inference(
                f"line {line.number}: {match['path']} is not the system's library, and hides the newer one",
                {"library-path": 5.0, "rocm-package-wrong-os": -5.0},
                "user-env",
            )
            return


def own_runtime_in_wsl(context: LogContext) -> Iterator[Inference]:
    """Infer that the libhsa-runtime64 of a PyTorch wheel hides the one of the system, which knows WSL.

    Source: AMD, Install PyTorch for ROCm on WSL (replace the wheel's libhsa-runtime64).
    """
    if "wsl" in context.words and "+rocm" in (context.facts.torch or "") and _sees_nothing(context):
        yield Inference(
            "a PyTorch wheel brings a ROCr of its own, which does not know WSL",
            {"library-path": 3.6},
            "hsa",
        )


def _sees_nothing(context: LogContext) -> bool:
    names = {hit.signature.name for hit in context.hits}
    return "no-hip-gpus" in names or {"asks-available", "prints-false"} <= names


def other_release(context: LogContext) -> Iterator[Inference]:
    """Infer that an extension failed that was built with another ROCm than torch brings.

    Source: HIP, versions of the runtime; one process has one libamdhip64.
    """
    raiser, torch = context.structure.raiser, re.search(r"\+rocm(\d\.\d)", context.facts.torch or "")
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
#: Libraries without which everything but a profiler works.
_SPARE = re.compile(r"libhsa-amd-aqlprofile64")
_BINARY_ABSENT = re.compile(r"(/\S+-packages/\S+\.so): cannot open shared object")
_IN_RELEASE = re.compile(r"/opt/rocm-(\d\.\d[\d.]*)/\S+: cannot open shared object")
_OF_ROCM = re.compile(r"(?i)^(?:amdhip|hip|hsa|roc|MIOpen|amd_comgr|rccl|migraphx|torch|c10)")
#: The releases of ROCm that a number of a library belongs to.
#: Source: the packages of AMD's repository (repo.radeon.com/rocm/apt) for 3.3 to 7.0; HIP's changelog for
#: 3.5.
_RELEASES: dict[tuple[str, str], str] = {
    ("hip_hcc", ""): "3.3 or older", ("hip_hcc", "3"): "3.3 or older",
    ("amdhip64", "3"): "3.5 to 3.10", ("amdhip64", "4"): "4", ("amdhip64", "5"): "5", ("amdhip64", "6"): "6",
    ("amdhip64", "7"): "7", ("hipblas", "0"): "5.5 or older", ("hipblas", "1"): "5.6 or 5.7",
    ("hipblas", "2"): "6", ("hipblas", "3"): "7", ("rocblas", "0"): "5.5 or older",
    ("rocblas", "3"): "5.6 or 5.7", ("rocblas", "4"): "6", ("rocblas", "5"): "7",
}  # fmt: skip


def absent_library(context: LogContext) -> Iterator[Inference]:
    """Infer from the name of a library that is not found whether ROCm or something else is missing.

    Source: ld.so(8).
    """
    for line in context.lines:
        if _SPARE.search(line.text):
            continue
        package = owner_of(inside[1]) if (inside := _BINARY_ABSENT.search(line.text)) else USER
        if package not in (USER, PYTHON, "torch"):
            says = f"line {line.number}: {package} has no binary for this GPU"
            yield Inference(says, {"cuda-only-extension": 4.8, "library-path": -4.0}, "user-env")
            return
        if release := _IN_RELEASE.search(line.text):
            says = f"line {line.number}: it names a file of ROCm {release[1]}, which is not there"
            remedy = (
                f"Something still points to ROCm {release[1]}: look at LD_LIBRARY_PATH, the files in "
                "/etc/OpenCL/vendors and /etc/ld.so.conf.d, and `ls -d /opt/rocm*`. Correct or delete "
                "that entry."
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
            f"lib{name}.so{f'.{number}' if number else ''} is of ROCm {release}: the program was built for "
            "it. Install the build of the program for your ROCm (`cat /opt/rocm/.info/version`), or that "
            "ROCm. If it is installed, name its folder: `export LD_LIBRARY_PATH=/opt/rocm/lib`."
        )
        first, second = ("library-path", "runtime-library-missing")
        if name != "amdhip64":  # which is in every installation and in every wheel
            first, second = second, first
        points = {first: 4.2, second: 1.4, "rocm-versions-mixed": 1.4}
        return Inference(f"{says}, a library of ROCm {release}", points, "user-env", remedy=remedy)
    points = {"library-path": 2.6} if _OF_ROCM.match(name) else {"runtime-library-missing": 4.4}
    return Inference(says, points, "user-env")


_DLL = re.compile(
    r"(?:Error loading \"[^\"]*[\\/]|Could not find module '(?:[^']*[\\/])?)(?P<name>[\w.-]+\.dll)"
)
#: DLLs by the beginning of their names: whose they are, and what to do. The C++ runtime is behind most
#: others.
#: Source: torch/__init__.py (_load_dll_libraries), the rocm-sdk packages, amd-smi's amdsmi_wrapper.py.
_DLLS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"(?i)^(?:torch_hip|c10_hip|amdhip|hip|roc|miopen|amd_comgr)"),
        "A DLL of ROCm that {name} needs is missing, or an older copy is found first: `where "
        "amdhip64_7.dll` lists the copies. `pip list` must show the rocm-sdk packages of torch's own "
        "index; install torch again, from one index, in a fresh virtual environment.",
    ),
    (
        re.compile(r"(?i)^libsmi|amdsmi"),
        "amd-smi on Windows is for servers with virtual GPUs, and needs a driver that desktops do not "
        "have. It says nothing about ROCm: ask `hipinfo` for the GPU.",
    ),
)


def absent_dll(context: LogContext) -> Iterator[Inference]:
    """Name the owner of a DLL of Windows that does not load.

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
#: Packages that are built for one release of torch, from whose index they come.
_OF_TORCH = re.compile(r"Could not find module '[^']*[/\\]site-packages[/\\](torchaudio|torchvision)[/\\]")


def unfit_binary(context: LogContext) -> Iterator[Inference]:
    """Infer from the owner of a binary that does not load that the package was built for another torch.

    Source: ld.so(8); Python, ctypes on Windows.
    """
    for line in context.lines:
        if match := _OF_TORCH.search(line.text):
            says = f"line {line.number}: the binary of {match[1]} was built for another torch"
            points = {"python-package-conflict": 5.0, "runtime-library-missing": -4.0}
            remedy = (
                "Install torch, torchvision and torchaudio in one command, from one index, in a fresh "
                "virtual environment: then pip chooses those that fit each other."
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
    """Infer from a symbol of Python that a binary was built for another Python.

    Source: ld.so(8); the names of Python's C API.
    """
    for line in context.lines:
        if match := _PYTHON_SYMBOL.search(line.text):
            says = f"line {line.number}: {match['symbol']} is of another Python than the one that runs"
            remedy = (
                f"{match['path'].rpartition('/')[2]} was built for another Python: run it with that one, or "
                "build it for this one. ROCm's packages have modules for the system's own Python alone."
            )
            points = {"python-package-conflict": 5.0, "library-path": -4.0}
            yield Inference(says, points, "user-env", remedy=remedy)
            return


_LOCAL_VERSION = re.compile(
    r"\b(?P<name>torch|torchvision|torchaudio)(?:==|-| )v?\d[\d.]*(?:\.dev\d+)?\+(?P<build>rocm|cu|cpu)"
)


def mixed_builds(context: LogContext) -> Iterator[Inference]:
    """Infer from their versions that torch and its sister packages are builds for different hardware.

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
            "Remove all of them (`pip uninstall torch torchvision torchaudio`), then install them in one "
            "command, from one index: for an AMD GPU the one that `rocmprobe install` prints, for NVIDIA "
            "the one of your CUDA."
        )
        yield Inference(
            says, {"python-package-conflict": 5.0, "wrong-torch-build": -4.0}, "user-env", remedy=remedy
        )


_TRITON_OF_NVIDIA = (
    "With an AMD GPU, the Triton for NVIDIA has replaced the one for ROCm: `pip uninstall triton "
    "pytorch-triton-rocm`, then install torch again from its index, which brings the Triton that fits. With "
    "an NVIDIA GPU, update torch: its Triton does not know the GPU."
)


def triton_of_nvidia(context: LogContext) -> Iterator[Inference]:
    """Infer that the Triton for NVIDIA runs, which calls NVIDIA's assembler.

    Source: Triton third_party/nvidia/backend/compiler.py.
    """
    for line in context.lines:
        if FOR_NVIDIA.search(line.text):
            points = {"python-package-conflict": 5.0, "triton-compile-failure": -3.0}
            says = f"line {line.number}: Triton compiles for an NVIDIA GPU"
            yield Inference(says, points, "triton", remedy=_TRITON_OF_NVIDIA)
            return


_NOT_BUILT = re.compile(
    r"(?:wasn't|was not|not) (?:built|compiled)\b|is not supported because|No operator found for"
    r"|no kernel image|not implemented for|[Nn]o .{0,20}kernels? (?:found|available)"
)


def extension_without_kernels(context: LogContext) -> Iterator[Inference]:
    """Infer that a package with kernels of its own has none for this GPU or problem.

    Source: xformers ops/fmha/dispatch.py; bitsandbytes cextension.py.
    """
    raiser, error = context.structure.raiser, context.structure.error
    if error is None or context.fatal or not OF_GPUS.search(raiser) or raiser == "triton":
        return
    for line in context.lines:
        if line.number >= error.line and _NOT_BUILT.search(line.text):
            remedy = (
                f'Install a build of {raiser} for the ROCm of torch (`python -c "import torch; '
                'print(torch.version.hip)"`), or switch it off in the program: PyTorch has attention and '
                "most optimizers itself."
            )
            says = f"line {line.number}: {raiser} was not built with a kernel for this GPU or this problem"
            yield Inference(says, {"cuda-only-extension": 4.6, "outside": -5.0}, "torch-build", remedy=remedy)
            return


_COMMAND_ABSENT = re.compile(
    r"'(?P<quoted>[^']+)' is not recognized as an internal or external command"
    r"|(?:^|: )(?P<plain>[\w./+-]+): (?:command )?not found$"
)
_COMPILER = re.compile(r"(?i)(?:clang|hipcc|cmake|ninja|g\+\+|gcc|nvcc|cl\.exe|make)[\w+.-]*$")


def absent_command(context: LogContext) -> Iterator[Inference]:
    """Infer that a program that is called is not installed or not found.

    Source: POSIX shells; cmd.exe.
    """
    if context.fatal:
        return
    for line in context.lines:
        if match := _COMMAND_ABSENT.search(line.text):
            name = match["quoted"] or match["plain"]
            builds = bool(_COMPILER.search(name))
            remedy = f"The command {name} is not there: install it, or name its folder in PATH" + (
                " (ROCm's compilers are in its lib/llvm/bin; HIP_CLANG_PATH names the folder)."
                if builds
                else "."
            )
            points = {"source-build-failure": 4.0} if builds else {"outside": 3.4}
            says = f"line {line.number}: the command {short(name)} is not found"
            yield Inference(says, points, "user-env", remedy=remedy)
            return


_JIT = re.compile(r"HIPRTC_ERROR|hiprtcCompileProgram|NVRTC_ERROR|nvrtc\.compile")


def compiled_by_another(context: LogContext) -> Iterator[Inference]:
    """Infer that HIP's run-time compiler refused a kernel of a program, not of MIOpen.

    Source: CLR hiprtc; MIOpen names itself in every line about a kernel.
    """
    if context.words & {"miopen", *WORDS} or not any(_JIT.search(line.text) for line in context.lines):
        return
    if not any(
        weight > 0 and name.startswith(("miopen-", "jit-"))
        for hit in context.fatal
        for name, weight in hit.signature.points.items()
    ):
        return
    raiser = context.structure.raiser
    who = raiser if raiser not in ("", USER, PYTHON) else "the program"
    line = next(line for line in context.lines if _JIT.search(line.text))
    yield Inference(
        f"line {line.number}: HIP's run-time compiler refuses a kernel of {who}, not of MIOpen",
        {"miopen-kernel-compile-failure": -6.0, "outside": 4.4}, "hip",
        remedy="The compiler's first error names what it does not accept. An option or a function means that "
        f"{who} and this ROCm are of different years: take a newer {who}, or its OpenCL or Vulkan version. A "
        "missing header is in libstdc++-dev or in ROCm's -dev packages.",
    )  # fmt: skip


_WANTED = re.compile(
    r"lib(?:amdhip64|hiprtc|rocblas|hipblas|MIOpen|rccl)\.so\.(\d): cannot open shared"
    r"|amdhip64_(\d)\.dll\W{1,3}(?:was )?not found"
)


def wanted_release(context: LogContext) -> Iterator[Inference]:
    """Infer that a program asks for the HIP of another release than is installed.

    Source: CLR, whose soname has the major version of ROCm since ROCm 5.
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
            says = f"line {line.number}: it asks for the HIP of ROCm {asked}, and ROCm {found} is installed"
            yield Inference(
                says, {"library-path": 2.8, "rocm-versions-mixed": 1.6, "runtime-library-missing": -1.6}
            )
            return


def as_root(context: LogContext) -> Iterator[Inference]:
    """Infer missing rights if the program works as root.

    Source: Linux, permissions of /dev/kfd and /dev/dri.
    """
    if context.structure.as_root:
        yield Inference("the log says that it works as root", {"kfd-permission": 4.6}, "permissions")


#: Files of AMD's kernel module outside of the kernel (amdgpu-dkms).
_KERNEL_MODULE = re.compile(r"/kcl/|\bkcl_\w+\.[ch]|/dkms/amdgpu|amdkcl")
_CUDA_BUILD = re.compile(
    r"\bnvcc\b|CUDA_HOME|cuda_runtime\.h|cuda\.h\b|-gencode|CUDAExtension|CUDA_TOOLKIT_ROOT_DIR"
)


def failed_build(context: LogContext) -> Iterator[Inference]:
    """Infer why a build failed, and whether it is for AMD's GPUs at all, from its first error.

    Source: compilers, linkers, pip, CMake and ninja; what asks for nvcc has no HIP sources.
    """
    error, package = context.structure.build_error, context.structure.building
    if package.lower() in ("the", "wheel", "wheels"):
        package = ""
    if context.structure.asserted or not (package or error):  # what asserts is what the build called
        return
    remedy = error.remedy if error else ""
    if error and not remedy:
        remedy = (
            f"Line {error.line} is the first error, and the others follow from it: search for it in the "
            f"tracker of {package or 'what is built'}. A build that is ready may hold your chip: `rocmprobe "
            "list gpus`."
        )
    says = f"{package or 'what is compiled'} did not build"
    if error:
        says += f"; the first error is in line {error.line} ({error.text})"
    if error and _KERNEL_MODULE.search(error.text):
        says = f"line {error.line}: AMD's kernel module does not compile against this kernel ({error.text})"
        points = {"kernel-driver-mismatch": 6.0, "source-build-failure": -4.0}
        yield Inference(says, points, "driver")
        return
    cuda = next((line for line in context.lines if _CUDA_BUILD.search(line.text)), None)
    if cuda is not None and package:
        asks = f"line {cuda.number}: the build of {package} asks for NVIDIA's compiler"
        yield Inference(asks, {"cuda-only-extension": 4.0}, "user-env")
    elif context.fatal_besides(
        "source-build-failure", "cuda-only-extension", "miopen-kernel-compile-failure"
    ):
        return
    elif error and error.of_amd is False and not (context.is_amd or context.facts.rocm):
        says += ", and no line names AMD's GPUs or software"
        remedy = remedy or (
            f"Search for line {error.line} in the tracker of what is built: what follows comes from it."
        )
        yield Inference(says, {"outside": 5.0}, "user-code", elsewhere=True, remedy=remedy)
    else:
        points = {"source-build-failure": 4.0 if error else 2.8}
        yield Inference(says, points, "torch-build", remedy=remedy)


def kernel_errno(context: LogContext) -> Iterator[Inference]:
    """Name the error number that the kernel driver reports.

    Source: Linux, errno.h; drivers/gpu/drm/amd.
    """
    for what, number in context.structure.errnos[:1]:
        meaning = {-12: "no memory", -22: "invalid argument", -62: "timer expired", -110: "no answer in time"}
        says = f"the kernel driver reports {number} ({meaning.get(number, 'an error')}) from {what}"
        yield Inference(says, {"gpu-firmware-bug": 0.6} if number in (-62, -110) else {}, "driver")
