"""Rules from the structure of a log to inferences: scope, failure, owner, arithmetic, chip and stack.

A rule is one function that reads a ``LogContext``. Its docstring has the source. ``RULES`` has them in the
order in which they are asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Optional

from rocmprobe.explain.extraction import PYTHON, USER, Error, LogStructure, Memory, owner_of, reports_failure
from rocmprobe.explain.log_facts import Facts
from rocmprobe.explain.signatures import Hit
from rocmprobe.knowledge import causes
from rocmprobe.knowledge.compatibility import THIS, Answer
from rocmprobe.text.log import Line

#: Causes that the program, its packages or its build can have on any vendor's GPU.
ANYWHERE = frozenset(("program", "outside", "none", "speed", "memory"))
_GIB = 1024**3
#: How a program ended, if it failed.
ENDED = frozenset(("exception", "segv", "abort", "hang"))
#: Of the memory that a limit, another process or the desktop takes: less explains no failure.
_NOTICEABLE = 0.25 * _GIB
#: So many times the memory that is asked for is enough, in pieces or not.
_AMPLE = 20
#: A GPU with less memory is the one of a processor, whose share the BIOS sets.
_SHARE_OF_AN_APU = 3 * _GIB
#: The LDS of one workgroup on every GCN, RDNA and CDNA chip up to MI300 (LLVM, User Guide for AMDGPU
#: Backend).
_LDS_BYTES = 65_536


@dataclass(frozen=True)
class Inference:
    """What a rule concludes: a clause for people, points by cause, and the layer that failed, where known.

    ``elsewhere`` is True if AMD's stack has no part in the failure. ``remedy`` is what to do about just this,
    in place of the general advice for the causes in ``points``.
    """

    says: str
    points: Mapping[str, float] = field(default_factory=dict)
    layer: Optional[str] = None
    elsewhere: bool = False
    remedy: str = ""


@dataclass(frozen=True)
class LogContext:
    """All that a rule may read: the structure of the log, the facts, the words of
    ``explain/situations.py``, the signatures found, and the relations that chip and stack answer
    with "no"."""

    structure: LogStructure
    facts: Facts
    words: frozenset[str]
    hits: tuple[Hit, ...]
    refused: tuple[Answer, ...] = ()
    lines: tuple[Line, ...] = ()

    @property
    def fatal(self) -> tuple[Hit, ...]:
        """The signatures that name a failure of AMD's stack."""
        return tuple(hit for hit in self.hits if hit.signature.kind == "fatal" and not _is_anywhere(hit))

    def fatal_besides(self, *allowed: str) -> tuple[Hit, ...]:
        """Return the fatal signatures that speak for other causes than ``allowed``."""
        return tuple(
            hit
            for hit in self.fatal
            if any(weight > 0 and name not in allowed for name, weight in hit.signature.points.items())
        )

    def explains(self, line: int) -> bool:
        """Return True if a signature of any kind of failure is in this line."""
        return any(
            line in (found.number, found.last)
            for hit in self.hits
            if hit.signature.kind == "fatal" and hit.signature.points
            for found in hit.lines
        )


def reason(context: LogContext) -> tuple[Inference, ...]:
    """Return what the rules infer, in their order. A rule that shows AMD's stack to have no part is the last
    one asked."""
    found: list[Inference] = []
    for rule in RULES:
        for inference in rule(context):
            found.append(inference)
            if inference.elsewhere:
                return tuple(found)
    return tuple(found)


def _is_anywhere(hit: Hit) -> bool:
    named = [name for name, weight in hit.signature.points.items() if weight > 0]
    return all(causes.cause(name).group in ANYWHERE for name in named)


# ---- is it AMD's stack at all? -------------------------------------------------------------------------

#: Exceptions that Python code raises about itself, its files and its network.
#: Source: Python, Built-in Exceptions; requests and urllib3, exceptions; pydantic, ValidationError.
_PLAIN = frozenset(
    {
        "TypeError", "KeyError", "AttributeError", "NameError", "UnboundLocalError", "IndexError",
        "ValueError", "FileNotFoundError", "FileExistsError", "IsADirectoryError", "NotADirectoryError",
        "JSONDecodeError", "UnicodeDecodeError", "UnicodeEncodeError", "SyntaxError", "IndentationError",
        "ZeroDivisionError", "RecursionError", "HTTPError", "ConnectionError", "ConnectTimeout",
        "ReadTimeout", "SSLError",
        "MaxRetryError", "ProxyError", "ValidationError", "SafetensorError", "UnpicklingError", "LookupError",
        "OverflowError", "ConfigurationError", "EntryNotFoundError", "RepositoryNotFoundError",
        "GatedRepoError", "LocalEntryNotFoundError", "ConfigAttributeError", "ScannerError", "BadZipFile",
    }
)  # fmt: skip
#: Exceptions that only report that another process or thread failed; the reason stands above them.
_FOLLOWS = re.compile(
    r"CalledProcessError|BrokenPipe|EOFError|ConnectionReset|ConnectionRefused|ChildFailed|ProcessExited|Dead"
    r"|ActorDied|ActorError|WorkerCrashed|RayTaskError|ProcessRaised|SystemExit|InternalTorchDynamo|BackendCompilerFailed"
)
#: Words by which an error is about a GPU, its libraries or its compiler after all.
_OF_A_STACK = re.compile(
    r"(?i)\bhip|\broc|miopen|cuda|cudnn|cublas|\bgpus?\b|gfx\d|nccl|rccl|triton|aotriton|kernel image"
    r"|\.so\b|\.dll\b|\.pyd\b"
    r"|symbol|glibc|\bhsa|solver|/dev/(?:kfd|dri)|out of memory|amdgpu|\bfp8\b|float8|sm_\d|device function"
    r"|bfloat16"
    r"|hsaco|llvm|ptx"
)


_CUDA_BUILD_OF_TORCH = re.compile(r"libtorch_cuda\w*\.so|libc10_cuda\.so")


def other_vendor(context: LogContext) -> Iterator[Inference]:
    """Infer that the GPU is another vendor's.

    Source: the names that drivers print (NVIDIA-SMI, Metal, collect_env).
    """
    vendors = set(context.structure.vendors)
    stated = context.facts.gpu or ""
    if context.facts.true_gfx or context.facts.effective_gfx or "amd" in vendors:
        return
    name = (
        "NVIDIA" if "nvidia" in vendors or re.search(r"(?i)nvidia|geforce|\b[rg]tx\b|tesla", stated) else ""
    )
    name = name or ("Apple" if "apple" in vendors or re.search(r"(?i)apple|\bM[1-5]\b", stated) else "")
    if name and not re.search(r"(?i)amd|radeon|instinct", stated):
        raised = f"; {_raised(context.structure)}" if _raised(context.structure) else ""
        named = any(_CUDA_BUILD_OF_TORCH.search(line.text) for line in context.lines)
        if named and "+rocm" in (context.facts.torch or ""):
            says = "a part of PyTorch is a build for CUDA, and torch is one for ROCm"
            yield Inference(says, {"wrong-torch-build": 4.6}, "torch-build")
            return
        whose = "this torch is a build for CUDA" if named else f"the GPU is from {name}"
        points = {"outside": 6.0} if context.structure.failed else {}
        remedy = _remedy(context.structure) or (
            "With an AMD GPU, install PyTorch for ROCm: `rocmprobe install` prints the commands."
            if named
            else f"rocmprobe knows AMD's GPUs only. Search for the message in the tracker of "
            f"{_raiser(context.structure) or USER}."
        )
        yield Inference(f"{whose}{raised}", points, "user-code", elsewhere=True, remedy=remedy)


#: What to do about an error of Python, by its type and message. ``{name}`` is what the message names.
#: Source of each: who prints it. No row names torch: which build of it fits depends on the GPU.
_REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (  # Python, ModuleNotFoundError
        re.compile(r"No module named '?(?P<name>(?!torch)\w+)"),
        "Install the package that brings the module {name} with the Python that runs the program: `python -m "
        "pip install -r requirements.txt`, from the program's folder. If it is installed, another Python "
        'runs the program: `python -c "import sys; print(sys.executable)"`.',
    ),
    (  # Python, ImportError
        re.compile(
            r"cannot import name '\w+' from (?:partially initialized module )?'(?P<name>(?!torch)\w+)"
        ),
        "The installed {name} is older or newer than the program was written for: install the version that "
        "its requirements.txt or README names, in a virtual environment of its own.",
    ),
    (  # Python, AttributeError of a module
        re.compile(r"module '(?P<name>(?!torch)\w+)[\w.]*' has no attribute"),
        "The {name} that Python imports is broken, of another version, or hidden by a file of that name. "
        '`python -c "import {name}; print({name}.__file__)"` shows which file it is; then install the '
        "version that the program's requirements.txt names again.",
    ),
    (  # Cython, the check of compiled modules against NumPy
        re.compile(r"numpy\.\w+ size changed|numpy\.core\.multiarray failed"),
        "A package was built for another NumPy than the installed one: install the NumPy that the program's "
        "requirements.txt names, or install that package again, so that it is built for this one.",
    ),
    (  # PyTorch torch/nn/modules/module.py, load_state_dict; safetensors
        re.compile(
            r"state_dict|[Uu]nexpected key\b|[Mm]issing key\b|size mismatch for|does not contain tensor"
        ),
        "The checkpoint was made for another model, version or option than the program builds: use the "
        "options that it was trained with, or the checkpoint that the program names.",
    ),
    (  # safetensors, zipfile, pickle, PyTorch caffe2/serialize
        re.compile(
            r"SafetensorError|HeaderTooLarge|BadZipFile|invalid load key|PytorchStreamReader|not a zip"
        ),
        "The model file is damaged, incomplete or of another format: delete it, download it again, and "
        "compare its size with the one on its page.",
    ),
    (  # huggingface_hub/errors.py
        re.compile(r"GatedRepo|RepositoryNotFound|\b40[13] (?:Client Error|Forbidden|Unauthorized)"),
        "The server refuses the file: accept the terms on the model's page, log in with `hf auth login`, and "
        "check the model's name.",
    ),
    (  # Python, TypeError of a call
        re.compile(r"unexpected keyword argument|required positional argument|positional arguments? but"),
        "Two packages are not of versions that fit: install those that the program's requirements.txt names, "
        "or update the program and its extensions together.",
    ),
    (  # Python, FileNotFoundError
        re.compile(r"FileNotFoundError.*'(?P<name>[^']+)'|\[Errno 2\].*'(?P<name2>[^']+)'"),
        "The file or folder {name} is not there: correct the path in the command or the settings, or put the "
        "file there.",
    ),
    (  # json, PyYAML
        re.compile(r"JSONDecodeError|ScannerError|ParserError"),
        "A file of settings, or what a server answered, is not valid JSON or YAML: correct or delete the "
        "file that the traceback reads.",
    ),
    (  # Python's parser
        re.compile(r"SyntaxError|IndentationError"),
        "The program is written for another version of Python than runs it: its README names the version.",
    ),
)


def _remedy(structure: LogStructure) -> str:
    """Return what to do about the last error, "" if its message does not tell."""
    error = structure.error
    text = f"{error.kind}: {error.message}" if error else ""
    for pattern, remedy in _REMEDIES:
        if match := pattern.search(text):
            name = next(filter(None, match.groups()), "")
            return remedy.format(name=name) if name or "{name}" not in remedy else ""
    return ""


def _raiser(structure: LogStructure) -> str:
    """Return the package that raised the error, "" for Python itself and the user's own files."""
    return structure.raiser if structure.raiser not in (PYTHON, USER) else ""


def plain_error(context: LogContext) -> Iterator[Inference]:
    """Infer that the program stopped with an error of Python, of a package, a file or the network, and no
    line names a failure of AMD's stack.

    Source: the types of exceptions and the owner of the innermost frame.
    """
    error = context.structure.error
    if (
        error is None
        or not error.kind
        or context.explains(error.line)
        or not _is_plain(error, context.structure.raiser)
    ):
        return
    if context.fatal or context.words & (ENDED - {"exception"}):
        yield Inference(f"{_raised(context.structure)}, an error of code or data", {"outside": 1.5})
        return
    says = f"{_raised(context.structure)}, an error of code or data"
    remedy = _remedy(context.structure)
    yield Inference(says, {"outside": 5.0}, "user-code", elsewhere=True, remedy=remedy)


#: Packages and messages of the network and of downloads.
#: Source: urllib3, requests, httpx, aiohttp and huggingface_hub, their exceptions; OpenSSL.
_NETWORK_PACKAGES = frozenset(
    ("urllib3", "requests", "httpx", "httpcore", "aiohttp", "huggingface_hub", "hf_xet")
)
_NETWORK = re.compile(
    r"(?i)max retries exceeded|connection to \S+ timed out|connect ?timeout|read(?: operation)? timed out"
    r"|name or service not known|temporary failure in name resolution|certificate verify failed"
    r"|connection refused|connection reset by peer|proxy authentication|cannot reach|failed to "
    r"resolve|offline mode|getaddrinfo|429 too many"
)


def network(context: LogContext) -> Iterator[Inference]:
    """Infer that a download or a connection failed.

    Source: the exceptions of the packages that Python programs download with.
    """
    if context.fatal:
        return
    line = next((line for line in reversed(context.lines) if _NETWORK.search(line.text)), None)
    if line is None and context.structure.raiser not in _NETWORK_PACKAGES:
        return
    says = f"line {line.number}: the network" if line else f"{context.structure.raiser} failed: the network"
    remedy = _remedy(context.structure) or (
        "Try again, also later; check the proxy (HTTPS_PROXY) and the firewall. What can be downloaded with "
        "a browser can be put where the program looks for it."
    )
    yield Inference(
        f"{says}, a download or a server is at fault",
        {"outside": 5.0}, "user-code", elsewhere=True, remedy=remedy,
    )  # fmt: skip


def _is_plain(error: Error, raiser: str) -> bool:
    if _FOLLOWS.search(error.kind) or _OF_A_STACK.search(error.message):
        return False
    if error.kind in _PLAIN or "loading state_dict" in error.message:
        return True
    # Packages raise types of their own for their own faults; torch's RuntimeError may be the GPU's.
    return (
        bool(raiser)
        and raiser not in (USER, PYTHON, "torch", "triton", "vllm", "flash_attn")
        and bool(error.message)
        and error.kind
        not in ("RuntimeError", "ImportError", "OSError", "AssertionError", "ModuleNotFoundError")
    )


def _raised(structure: LogStructure) -> str:
    """Return "PACKAGE raised TYPE (MESSAGE)", "" if the log has no exception."""
    if structure.error is None or not structure.error.kind:
        return ""
    what = f"{structure.error.kind}" + (
        f" ({_short(structure.error.message)})" if structure.error.message else ""
    )
    return f"{structure.raiser or structure.error.package or USER} raised {what}"


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."


# ---- does the log hold the failure? --------------------------------------------------------------------


#: Extensions that have a build of their own for ROCm, or none.
_EXTENSIONS = re.compile(
    r"\b(?:flash_attn|xformers|bitsandbytes|triton|deepspeed|apex|mamba_ssm|causal_conv1d)\b"
)


#: Cython's check of compiled modules, and an import of a name that another version has.
_UNFIT = re.compile(r"cannot import name '|numpy\.\w+ size changed")


def missing_module(context: LogContext) -> Iterator[Inference]:
    """Infer that Python packages are missing or of other versions than the program needs.

    Source: Python, ImportError and ModuleNotFoundError.
    """
    error = context.structure.error
    absent = error is not None and error.kind == "ModuleNotFoundError"
    renamed = next((line for line in context.lines if _UNFIT.search(line.text)), None)
    if context.fatal_besides("cuda-only-extension", "python-package-conflict", "outside"):
        return
    if absent and error and not (_EXTENSIONS.search(error.message) and _is_amd(context)):
        says = f"{_raised(context.structure)}: a Python package is not installed"
    elif renamed is not None:
        says = f"line {renamed.number}: two Python packages are not of versions that fit"
    else:
        return
    remedy = _remedy(context.structure)
    yield Inference(says, {"python-package-conflict": 4.6}, "user-env", elsewhere=True, remedy=remedy)


def _is_amd(context: LogContext) -> bool:
    return "amd" in context.structure.vendors or bool(context.facts.true_gfx or context.facts.effective_gfx)


def only_warnings(context: LogContext) -> Iterator[Inference]:
    """Infer that the log ends in a warning and reports no error.

    Source: Python warnings; torch's and glog's levels.
    """
    if context.structure.failed or context.fatal or context.words & ENDED:
        return
    # A warning that is known to be harmless has its points already.
    points = {"benign-warning": 0.6 if "remark" in context.words else 3.4}
    if context.structure.harmless:
        yield Inference("the program calls its message harmless, and no other line reports an error", points)
    elif context.structure.warned:
        yield Inference("the log ends in a warning, and no line reports an error", points)


# ---- whose code failed? --------------------------------------------------------------------------------

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
                f"line {frame.line}: the innermost frame is in {who} ({_short(frame.text)})", points, layer
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
#: Source: hipblas.h, rocblas-types.h, hipblaslt.h, miopen.h, nccl.h, hsa.h, hip_runtime_api.h.
_STATUSES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("rocBLAS or hipBLASLt", "rocblas", re.compile(r"HIPBLAS(?:LT)?_STATUS_|rocblas_status_")),
    ("MIOpen", "miopen-exec", re.compile(r"miopenStatus[A-Z]")),
    ("ROCr", "hsa", re.compile(r"HSA_STATUS_")),
    ("HIP", "hip", re.compile(r"\bhipError[A-Z]\w+")),
)


def status(context: LogContext) -> Iterator[Inference]:
    """Take the layer from the status that the last error quotes, if no signature knows it.

    Source: the prefix of each library's statuses.
    """
    error = context.structure.error
    known = {line.number for hit in context.hits for line in hit.lines}
    if error is None or error.line in known or context.fatal or context.structure.native is not None:
        return
    for who, layer, pattern in _STATUSES:
        if match := pattern.search(error.message):
            yield Inference(f"line {error.line}: {match.string[match.start() :][:40]} is {who}'s", {}, layer)
            return


#: Source files by the project that they are from.
_SOURCES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("rocm-smi", "", re.compile(r"rocm_smi|amdsmi|amd_smi", re.IGNORECASE)),
    ("the HIP runtime", "hip", re.compile(r"hipamd|/clr/|rocclr|hip-runtime", re.IGNORECASE)),
    ("ROCr", "hsa", re.compile(r"rocr|libhsakmt|ROCT|hsa-runtime", re.IGNORECASE)),
    ("MIOpen", "miopen-exec", re.compile(r"miopen|MLOpen", re.IGNORECASE)),
    ("rocBLAS", "rocblas", re.compile(r"rocblas|Tensile|hipblas", re.IGNORECASE)),
)


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
    r"(?:^|[\s:(])lib(?P<name>[\w+-]+)\.so[.\d]*: cannot open shared object"
    r"|(?:[Cc]ouldn.t|[Cc]ould not|[Cc]annot|[Ff]ailed to|[Uu]nable to) (?:open|load|find)[^.]{0,40}?"
    r"\blib(?P<other>[\w+-]+)\.so"
)
_BINARY_ABSENT = re.compile(r"(/\S+-packages/\S+\.so): cannot open shared object")
_OF_ROCM = re.compile(r"(?i)^(?:amdhip|hip|hsa|roc|MIOpen|amd_comgr|rccl|migraphx|torch|c10)")


def absent_library(context: LogContext) -> Iterator[Inference]:
    """Infer from the name of a library that is not found whether ROCm or something else is missing.

    Source: ld.so(8).
    """
    for line in context.lines:
        package = owner_of(inside[1]) if (inside := _BINARY_ABSENT.search(line.text)) else USER
        if package not in (USER, PYTHON, "torch"):
            says = f"line {line.number}: {package} has no binary for this GPU"
            yield Inference(says, {"cuda-only-extension": 4.8, "library-path": -4.0}, "user-env")
            return
        if match := _ABSENT.search(line.text):
            name = match["name"] or match["other"]
            if re.match(r"(?i)cu|nv", name):
                continue
            points = {"library-path": 2.6} if _OF_ROCM.match(name) else {"runtime-library-missing": 4.4}
            yield Inference(f"line {line.number}: lib{name} is not found", points, "user-env")
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
    says = f"{package or 'what is compiled'} did not build"
    if error:
        says += f"; the first error is in line {error.line} ({error.text})"
    cuda = next((line for line in context.lines if _CUDA_BUILD.search(line.text)), None)
    if cuda is not None and package:
        asks = f"line {cuda.number}: the build of {package} asks for NVIDIA's compiler"
        yield Inference(asks, {"cuda-only-extension": 4.0}, "user-env")
    elif context.fatal_besides(
        "source-build-failure", "cuda-only-extension", "miopen-kernel-compile-failure"
    ):
        return
    elif error and error.of_amd is False and not (_is_amd(context) or context.facts.rocm):
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


# ---- arithmetic ----------------------------------------------------------------------------------------


def memory(context: LogContext) -> Iterator[Inference]:
    """Say what took the memory, from the numbers of an out-of-memory message.

    Source: PyTorch c10/cuda/CUDACachingAllocator.cpp.
    """
    quantities = context.structure.memory
    if quantities is None:
        return
    total, remedy = quantities.total or 0.0, ""
    if 0 < total < _SHARE_OF_AN_APU:
        remedy = (
            f"The GPU has {_gib(total)} of its own, the share that the BIOS gives to the graphics of the "
            f"processor: give it 4 GB or more there (UMA frame buffer)."
        )
    elif total >= 2 * _SHARE_OF_AN_APU:  # the BIOS of an APU gives enough
        remedy = causes.chosen(causes.cause("vram-oom").advice, context.words - {"apu"}, None)
    if says := _what_took(quantities):
        yield Inference(says, {"vram-oom": 1.0}, "oom", remedy=remedy)
    elif remedy:
        yield Inference(f"the GPU has {_gib(total)}", {"vram-oom": 0.2}, "oom", remedy=remedy)


def _what_took(memory: Memory) -> str:
    if memory.allowed is not None and memory.free and memory.free - memory.allowed > _NOTICEABLE:
        limit = f"the program limits itself to {_gib(memory.allowed)} (set_per_process_memory_fraction)"
        return f"{limit}, while {_gib(memory.free)} are free"
    if memory.requested and memory.total and memory.requested > memory.total:
        return f"one allocation asks for {_gib(memory.requested)}, and the GPU has {_gib(memory.total)}"
    if memory.reserved and memory.requested and memory.reserved > memory.requested > 0:
        return f"{_gib(memory.reserved)} are reserved and not used: the free memory is in pieces"
    if memory.requested and memory.free and memory.free > _AMPLE * memory.requested:
        return (
            f"{_gib(memory.free)} are free, and {_gib(memory.requested)} were refused: a limit, not the size"
        )
    others = memory.of_others
    if others and memory.total and others > max(_NOTICEABLE, 0.15 * memory.total):
        return f"other processes hold {_gib(others)} of {_gib(memory.total)}"
    return ""


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB"


def shared_memory(context: LogContext) -> Iterator[Inference]:
    """Infer that a kernel needs more LDS than the chip has.

    Source: LLVM, User Guide for AMDGPU Backend (64 KiB).
    """
    if context.structure.shared_memory:
        required, limit = context.structure.shared_memory
        if required > limit:
            of_chip = " (all that AMD's chips have)" if limit == _LDS_BYTES else ""
            says = f"a kernel needs {required:,} bytes of LDS, and the limit is {limit:,}{of_chip}"
            yield Inference(says, {"triton-compile-failure": 4.6}, "triton")


_OVERFLOW = re.compile(
    r"(?i)(?:size calculation overflowed|integer multiplication overflow|integer overflow"
    r"|(?:negative|invalid) (?:dimension|size|length)s?[^\n]{0,20}-\d{6,}|\b18446744\d{12}\b|-2147483\d{3}\b)"
)


def overflow(context: LogContext) -> Iterator[Inference]:
    """Infer that a size overflowed its integer type.

    Source: the limits of int32 and uint64.
    """
    for line in context.lines:
        if _OVERFLOW.search(line.text) and reports_failure(line.text):
            yield Inference(
                f"line {line.number}: a size is beyond its integer type", {"miopen-size-limit": 3.0}
            )
            return


# ---- what chip and stack cannot do together ------------------------------------------------------------


#: Relations that every GPU program depends on, not one library alone.
_OF_THE_PROGRAM = frozenset(
    {
        "torch-is-for-amd", "torch-has-code", "wheel-has-code", "amd-wheel-has-code", "package-has-code",
        "silicon-fits-override", "override-is-accepted",
    }
)  # fmt: skip


def facts_alone(context: LogContext) -> Iterator[Inference]:
    """Rank the cause that facts give if the log names no failure, and chip and stack cannot work together.

    Source: data/compatibility.toml.
    """
    if context.fatal or context.structure.warned or not context.structure.failed:
        return
    if any(hit.signature.shows for hit in context.hits):  # the relations themselves weigh what shows
        return
    if not context.words & {"torch", "llama"}:
        return
    for answer in context.refused:
        if answer.relation.name not in _OF_THE_PROGRAM:
            continue
        weights = [
            (weight, name) for points in answer.relation.no.values() for name, weight in points.items()
        ]
        weight, name = max(weights, default=(0.0, ""))
        if weight > 0:
            cause = answer.cause if name == THIS else name
            yield Inference(f"the log names no failure; by the facts, {answer.says}", {cause: 2.6})
            return


Rule = Callable[[LogContext], Iterable[Inference]]

#: In the order in which they are asked: scope, failure, owner, arithmetic, chip and stack.
RULES: tuple[Rule, ...] = (
    other_vendor,
    network,
    missing_module,
    plain_error,
    only_warnings,
    kernel_assertion,
    owner,
    page_fault,
    status,
    assertion,
    shadowed_library,
    own_runtime_in_wsl,
    other_release,
    absent_library,
    unfit_binary,
    wanted_release,
    as_root,
    failed_build,
    kernel_errno,
    memory,
    shared_memory,
    overflow,
    facts_alone,
)
