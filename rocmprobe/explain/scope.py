"""Rules about scope: whether AMD's stack, another vendor, a package manager, the network or the program
failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Optional

from rocmprobe.explain.errors import FoundError, find_error
from rocmprobe.explain.extraction import PYTHON, USER, Error, LogStructure, is_warning, reports_failure
from rocmprobe.explain.inference import ENDED, Inference, LogContext, raised, short
from rocmprobe.text.log import Line

#: Exceptions about Python code, files or the network, and not about the GPU.
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
#: Exceptions that only report that another process or thread failed. The log shows the reason earlier.
_FOLLOWS = re.compile(
    r"CalledProcessError|BrokenPipe|EOFError|ConnectionReset|ConnectionRefused|ChildFailed|ProcessExited|Dead"
    r"|ActorDied|ActorError|WorkerCrashed|RayTaskError|ProcessRaised|SystemExit|InternalTorchDynamo|BackendCompilerFailed"
)
#: Packages with their own GPU kernels. Their exceptions can report a failure of the GPU.
OF_GPUS = re.compile(
    r"^(?:triton|vllm|flash_attn|xformers|bitsandbytes|deepspeed|apex|aiter|exllama\w*|auto_gptq|awq|jaxlib?|cupy|"
    r"onnxruntime|migraphx|tensorflow|mamba_ssm|causal_conv1d|llama_cpp\w*|ctranslate2)$"
)
#: Words that show that an error is about a GPU, its libraries or its compiler.
_OF_A_STACK = re.compile(
    r"(?i)\bhip|\broc|miopen|cuda|cudnn|cublas|\bgpus?\b|gfx\d|nccl|rccl|triton|aotriton|kernel image"
    r"|\.so\b|\.dll\b|\.pyd\b"
    r"|symbol|glibc|\bhsa|solver|/dev/(?:kfd|dri)|out of memory|amdgpu|\bfp8\b|float8|sm_\d|device function"
    r"|\bXLA|\bHLO\b|by agent|Tensile"
    r"|bfloat16|hsaco|llvm|ptx|cufft|hipfft|rocfft|curand|cusolver|cusparse|magma|vulkan|\bvk::|ErrorDeviceLost|sycl|\bxpu\b|directml"
)
#: Error numbers of the operating system for files, the disk or the network.
#: Source: Linux, errno.h: ENOENT, EACCES, EEXIST, ENOTDIR, EISDIR, ENOSPC, ENAMETOOLONG, ENETUNREACH,
#: ECONNREFUSED.
_SYSTEM_ERROR = re.compile(r"\[Errno (?:2|13|17|20|21|28|36|101|111)\](?!.*(?:\.so\b|/dev/))")


#: Only torch for CUDA has these files. If a program does not find them, its torch is not for CUDA.
NO_CUDA_IN_TORCH = re.compile(r"(?:libtorch_cuda\w*|libc10_cuda)\.so: cannot open shared")
_CUDA_BUILD_OF_TORCH = re.compile(r"libtorch_cuda\w*\.so|libc10_cuda\.so")


#: NVIDIA's assembler, which Triton from PyPI calls on any machine.
_FOR_NVIDIA = re.compile(r"\bptxas\b|PTX codegen")


def line_of_ptxas(context: LogContext) -> Optional[Line]:
    """Return the line in which Triton calls NVIDIA's assembler.

    Return None if the log names OpenCL, because NVIDIA's OpenCL also calls the assembler.
    """
    if any("opencl" in line.text.lower() for line in context.lines):
        return None
    return next((line for line in context.lines if _FOR_NVIDIA.search(line.text)), None)


#: (vendor, word in ``LogStructure.vendors``, pattern for names of the vendor's GPUs).
_VENDORS = (
    ("NVIDIA", "nvidia", re.compile(r"(?i)nvidia|geforce|\b[rg]tx\b|tesla")),
    ("Apple", "apple", re.compile(r"(?i)apple|\bM[1-5]\b")),
    ("Intel", "intel", re.compile(r"(?i)intel|\barc a?\d{3}|\biris\b")),
)


def other_vendor(context: LogContext) -> Iterator[Inference]:
    """Infer that the GPU is from another vendor.

    Source: the names that drivers print (NVIDIA-SMI, Metal, collect_env).
    """
    vendors, stated = context.structure.vendors, context.facts.gpu or ""
    if context.is_amd or re.search(r"(?i)amd|radeon|instinct", stated):
        return
    name = next(
        (who for who, word, pattern in _VENDORS if word in vendors or pattern.search(stated)),
        "",
    )
    if name:
        error = f"; {raised(context.structure)}" if raised(context.structure) else ""
        named = any(_CUDA_BUILD_OF_TORCH.search(line.text) for line in context.lines)
        if any(NO_CUDA_IN_TORCH.search(line.text) for line in context.lines):
            return
        if name == "NVIDIA" and line_of_ptxas(context):
            return
        whose = "this torch is a build for CUDA" if named else f"the log names a GPU or software of {name}"
        points = {"outside": 6.0} if context.structure.failed else {}
        kinds = (*(("nvidia",) if name == "NVIDIA" and not named else ()), "elsewhere")
        meaning = next((each for kind in kinds if (each := find_error(context.lines, kind))), None)
        numpy = any(_NUMPY.search(line.text) for line in context.lines)
        if meaning:
            error = f"; {meaning.says} (line {meaning.line})"
        remedy = (
            (_NUMPY_REMEDY if numpy else "")
            or remedy_of_error(context.structure)
            or (meaning.step if meaning else "")
            or (
                "With an AMD GPU, install PyTorch for ROCm: `rocmprobe install` prints the commands."
                if named
                else "rocmprobe knows AMD's GPUs only. Search for the message in the tracker of "
                f"{_raiser(context.structure) or USER}."
            )
        )
        yield Inference(f"{whose}{error}", points, "user-code", elsewhere=True, remedy=remedy)


#: Python's ImportError about a file that is not in a folder of packages or of Python itself.
_OF_OWN_FILE = re.compile(
    r"cannot import name '(?P<name>\w+)' from(?: partially initialized module)? '[\w.]+' "
    r"\((?![^)]{0,300}(?:(?:site|dist)-packages|[\\/]lib[\\/]python|[\\/]Lib[\\/]))[^)]{0,300}\.py\)"
)

#: (pattern for a Python error, advice). ``{name}`` is the name in the message. Each row's comment gives the
#: source of the error. No row is for a missing torch, because the right build depends on the GPU.
_REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = (
    (  # PyTorch torch/utils/cpp_extension.py
        re.compile(r"detected CUDA version"),
        "Torch was built for another CUDA toolkit: set CUDA_HOME to a toolkit of torch's version, or use a "
        "ready wheel of the extension. This is only for NVIDIA GPUs. For an AMD GPU, `rocmprobe install` "
        "prints which torch to install first.",
    ),
    (  # Python, the command line
        re.compile(r"can't open file '(?P<name>[^']+)'"),
        "Python does not find the script {name}: change to its folder, or give its full path.",
    ),
    (  # Python, subprocess
        re.compile(r"No such file or directory: '(?P<name>[a-z][\w-]{1,20})'"),
        "The program {name} is not installed, or not in PATH: install it with the system's package manager.",
    ),
    (  # Python, ModuleNotFoundError for a folder of the program itself
        re.compile(
            r"No module named '(?:modules|library|src|utils|scripts|networks|backend|lib|tools|core)\."
        ),
        "The module is part of the program, whose folder is incomplete or contains files of two versions. "
        "Update all files to one version (`git status`, then `git pull`, or clone again).",
    ),
    (  # Python, ModuleNotFoundError
        re.compile(r"No module named '?(?P<name>(?!torch)\w+)"),
        "Install the package with the module {name} in the Python that runs the program: `python -m pip "
        "install -r requirements.txt`, from the program's folder. If it is installed, another Python runs "
        'the program: `python -c "import sys; print(sys.executable)"`.',
    ),
    (  # Python, ImportError of a file outside of the packages' folders
        _OF_OWN_FILE,
        "The file in the message belongs to the program, but lacks {name}: the program's folder is "
        "incomplete or mixes two versions, or the import names the wrong file.",
    ),
    (  # Python, ImportError
        re.compile(
            r"cannot import name '\w+' from (?:partially initialized module )?'(?P<name>(?!torch)\w+)"
        ),
        "The installed {name} is older or newer than the program expects: install the version that the "
        "program's requirements.txt or README names, in a separate virtual environment.",
    ),
    (  # Python, AttributeError of a module
        re.compile(r"module '(?P<name>(?!torch)\w+)[\w.]*' has no attribute"),
        "The name is misspelt, or the {name} that Python imports has another version, is broken, or is "
        'hidden by a file of that name. `python -c "import {name}; print({name}.__file__)"` shows the '
        "file. Then reinstall the version that the program's requirements.txt names.",
    ),
    (  # conda, CondaHTTPError; pip
        re.compile(r"HTTP 404|404 Client Error|404 NOT FOUND"),
        "This file is no longer at this address: the version was removed, or a mirror lacks it. Use a "
        "newer requirements.txt, and the official channel (~/.condarc) or index.",
    ),
    (  # PyTorch aten/src/ATen/mps
        re.compile(r"not (?:currently )?(?:implemented|supported) for the MPS device"),
        "PyTorch on Apple GPUs lacks this operator: update PyTorch, or set PYTORCH_ENABLE_MPS_FALLBACK=1 "
        "before Python starts.",
    ),
    (  # Cython, the check of compiled modules against NumPy
        re.compile(r"numpy\.\w+ size changed|numpy\.core\.multiarray failed"),
        "A package was built for another NumPy than the installed one. Install the NumPy that the program's "
        "requirements.txt names, or reinstall that package to build it for this NumPy.",
    ),
    (  # PyTorch torch/nn/modules/module.py, load_state_dict; safetensors
        re.compile(
            r"state_dict|[Uu]nexpected key\b|[Mm]issing key\b|size mismatch for|does not contain tensor"
        ),
        "The checkpoint was made for another model, version or option than the program builds: use the "
        "options of its training, or the checkpoint that the program names.",
    ),
    (  # huggingface_hub/file_download.py
        re.compile(r"hf_transfer|hf_xet"),
        "Run `pip install hf_xet` (or hf_transfer, with HF_HUB_ENABLE_HF_TRANSFER=1), as the message says. "
        "Then start the download again.",
    ),
    (  # safetensors, a device that it does not know
        re.compile(r"SafetensorError.*device .* is invalid"),
        "This safetensors does not know the device: update it (`pip install -U safetensors`), or load the "
        'model to "cpu" and move it afterwards.',
    ),
    (  # safetensors, zipfile, pickle, PyTorch caffe2/serialize
        re.compile(
            r"SafetensorError|HeaderTooLarge|BadZipFile|invalid load key|PytorchStreamReader|not a zip"
        ),
        "The model file is damaged, incomplete or in another format: delete it, download it again, and "
        "compare its size with the one on its page.",
    ),
    (  # huggingface_hub/errors.py
        re.compile(r"GatedRepo|RepositoryNotFound|\b40[13] (?:Client Error|Forbidden|Unauthorized)"),
        "The server refuses the file: accept the terms on the model's page, log in with `hf auth login`, and "
        "check the model's name.",
    ),
    (  # Python, TypeError of a call
        re.compile(r"unexpected keyword argument|required positional argument|positional arguments? but"),
        "The versions of two packages do not match: install the versions in the program's requirements.txt, "
        "or update the program and its extensions together.",
    ),
    (  # Python, FileNotFoundError
        re.compile(r"FileNotFoundError.*'(?P<name>[^']+)'|\[Errno 2\].*'(?P<name2>[^']+)'"),
        "The file or folder {name} is missing: correct the path in the command or the settings, or put the "
        "file there.",
    ),
    (  # json, PyYAML
        re.compile(r"JSONDecodeError|ScannerError|ParserError"),
        "A settings file or a server's response is not valid JSON or YAML: correct or delete the file that "
        "the traceback reads.",
    ),
    (  # Python's parser
        re.compile(r"SyntaxError|IndentationError"),
        "The program needs another version of Python than this one: its README names the version.",
    ),
)


def remedy_of_error(structure: LogStructure) -> str:
    """Return what to do about the last error, or "" if its message does not say."""
    error = structure.error
    text = f"{error.kind}: {error.message}" if error else ""
    for pattern, remedy in _REMEDIES:
        if match := pattern.search(text):
            name = next(filter(None, match.groups()), "")
            return remedy.format(name=name) if name or "{name}" not in remedy else ""
    return ""


def _raiser(structure: LogStructure) -> str:
    """Return the package that raised the error, or "" for Python itself and the user's own files."""
    return structure.python_owner if structure.python_owner not in (PYTHON, USER) else ""


def plain_error(context: LogContext) -> Iterator[Inference]:
    """Infer that Python, a package, a file or the network caused the error.

    If a line names a failure of AMD's stack or an abnormal end, the inference has less weight.

    Source: the types of exceptions and the owner of the innermost frame.
    """
    error = context.structure.error
    if (
        error is None
        or not (error.kind or _SYSTEM_ERROR.search(error.message))
        or context.explains(error.line)
        or not _is_plain(error, context.structure.python_owner)
    ):
        return
    if context.fatal or context.words & (ENDED - {"exception"}):
        yield Inference(
            f"{raised(context.structure) or short(error.message)}, an error in code or data", {"outside": 1.5}
        )
        return
    says = f"{raised(context.structure) or short(error.message)}, an error in code or data"
    remedy = remedy_of_error(context.structure)
    yield Inference(says, {"outside": 5.0}, "user-code", elsewhere=True, remedy=remedy)


#: Program and process id in a line of the system's journal. The date and host are already removed.
#: Source: systemd, journalctl's default format.
_JOURNAL = re.compile(r"([\w.@-]+)\[\d+\]: ")


#: Start of each line that AMD's runtime for WSL prints. Source: librocdxg.
_OF_WSL = re.compile(r"pid:\d+ tid:0x")


def own_error(structure: LogStructure, lines: Iterable[Line]) -> Optional[FoundError]:
    """Return the last error if the program itself caused it."""
    error, shown = structure.error, tuple(lines)
    if (
        error is None
        or _OF_WSL.search(error.message)
        or any(_OF_A_STACK.search(line.text) for line in shown if reports_failure(line.text))
    ):
        return None
    # If the lines of a system's journal come from several programs, do not guess which program failed.
    if len({match[1] for line in shown if (match := _JOURNAL.match(line.text))}) > 1:
        return None
    whose = _raiser(structure) or error.package or USER
    what = short(f"{error.kind}: {error.message}".strip(": "))
    return FoundError(
        error.line,
        f"{whose} stops with its own error ({what}); rocmprobe finds no line about the GPU or its software",
        remedy_of_error(structure)
        or f"Search for this message in the tracker of {whose}. Check the program's input and options, and "
        "update it with its packages in a separate virtual environment.",
        "user-code",
    )


#: (program that installs software, pattern for its error messages, advice). Source: pacman and makepkg,
#: lib/libalpm and scripts; BuildKit solver; pip's resolver; conda's exceptions; apt-pkg; dnf; uv-resolver;
#: git.
_INSTALLERS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "apt", re.compile(r"EXPKEYSIG|NO_PUBKEY|signatures? (?:were|couldn't be verified|was) "),
        "The repository's signing key is missing or too old: download it again from the repository's page "
        "(for ROCm `wget https://repo.radeon.com/rocm/rocm.gpg.key`, into /etc/apt/keyrings), then run "
        "`sudo apt update`. Do not switch the check off.",
    ),
    (
        "the package manager",
        re.compile(r"[Cc]ould(?:n't| not) resolve host|Temporary failure (?:in name )?resolving"),
        "The network cannot resolve the server's name: run `getent hosts repo.radeon.com` to test this. "
        "With a container, restart Docker after a change of the firewall.",
    ),
    (
        "apt", re.compile(r"Mirror sync in progress|unexpected size|Hash Sum mismatch"),
        "The files on the server are inconsistent for now. Nothing is wrong here: repeat `sudo apt update` "
        "in an hour. If the error stays, a proxy keeps old files: first run `sudo rm -r "
        "/var/lib/apt/lists/*`.",
    ),
    (
        "the package manager", re.compile(r"nothing provides lib(?:c|stdc\+\+|m)\.so\.\d+\(GLIBC"),
        "The package was built for a newer release of the distribution, with a newer C library. Use the "
        "package for your release, a newer system, or a container. Never replace the C library.",
    ),
    (
        "pip", re.compile(r"Running setup\.py install for torch|torch-0\.1\.\d"),
        "pip finds no torch wheel for this Python and system, and uses a very old source package. Use a "
        "64-bit Python that has wheels, and PyTorch's own index (`rocmprobe install` prints it).",
    ),
    (
        "Docker", re.compile(r"nvidia-container-cli|could not select device driver .*gpu"),
        "`--gpus` needs NVIDIA's driver and container toolkit, and one of them does not work. With an "
        "NVIDIA GPU, `nvidia-smi` must work on the host. With an AMD GPU, omit `--gpus`, and start the "
        "container with `--device /dev/kfd --device /dev/dri`.",
    ),
    (
        "pacman",
        re.compile(r"^error: (?:failed to (?:commit|prepare) trans|target not found)|exists in filesystem"),
        "Run `pacman -Qo FILE` on the file in conflict. Remove the package that owns it, or the file if no "
        "package owns it, and install again.",
    ),
    (
        "makepkg", re.compile(r"^==> ERROR:"),
        "The recipe (PKGBUILD) is older than its sources: update it, read the comments on its page, or use "
        "the distribution's package.",
    ),
    (
        "Docker",
        re.compile(
            r"failed to solve: (?!process)|failed to resolve source|pull access denied|manifest unknown"
        ),
        "Docker does not find the image: correct its name and tag (`docker images` lists the local images), "
        "or first build its base image.",
    ),
    (
        "pip",
        re.compile(r"externally-managed-environment"),
        "The system protects its Python. Run `python3 -m venv venv`, then `venv/bin/pip install ...` with "
        "the torch index that `rocmprobe install` prints. Do not use --break-system-packages.",
    ),
    (
        "Poetry",
        re.compile(r"Unable to find installation candidates|SolverProblemError"),
        "The index has no file of this version for this Python and system: correct the version, the source "
        "of torch in pyproject.toml, or the Python, and lock again.",
    ),
    (
        "pip",
        re.compile(
            r"Could not find a version that|No matching distribution found|ResolutionImpossible"
            r"|not a supported wheel on this platform"
        ),
        "The index has no package of this name and version for this Python and system: check the index "
        "address, the version, and the Python (`python --version`). AMD's and PyTorch's indexes each "
        "support few Python versions.",
    ),
    (
        "conda",
        re.compile(
            r"PackagesNotFoundError|Unsatisfiable|ResolvePackageNotFound|LibMambaUnsat|nothing provides __"
        ),
        "No set of packages in these channels fits: create a new environment with fewer pinned versions, "
        "and install torch with pip from its own index.",
    ),
    (
        "apt",
        re.compile(r"^E: (?:Unable to locate|Failed to fetch|The repository)|has no installation candidate"),
        "apt does not find the package. Run `apt-cache search NAME`: its name may differ in this release "
        "(ROCm's packages were renamed). If nothing is found, the sources in /etc/apt/sources.list.d must "
        "name this release of the system.",
    ),
    (
        "dnf", re.compile(r"^Error: Unable to find a match"),
        "dnf does not find the package: the repositories in /etc/yum.repos.d must be for this release of "
        "the system.",
    ),
    (
        "the package manager", re.compile(r"nothing provides .{0,160}needed by"),
        "Search for the missing package. It is in a disabled repository (openSUSE: devel:languages:..., "
        "Fedora and RHEL: EPEL, CRB), or has another name in this distribution. If the name differs, the "
        "package that needs it has a mistake. Do not ignore the dependency.",
    ),
    (
        "uv", re.compile(r"No solution found when resolving"),
        "No set of versions fits: relax the pins in pyproject.toml, and use the torch index for torch only.",
    ),
    (
        "git",
        re.compile(r"Pulling is not possible|have unmerged files|would be overwritten by (?:merge|checkout)"),
        "git does not update a folder with changed files: `git status` lists them, `git stash` saves them. "
        "Then run `git pull`, and install the requirements again.",
    ),
    (
        "git",
        re.compile(r"^fatal: (?:unable to access|repository .* not found|clone of .* failed|could not read)"),
        "git cannot fetch the repository: check its address, the network and your access.",
    ),
)  # fmt: skip


def installer(context: LogContext) -> Iterator[Inference]:
    """Infer that a program that installs software stopped before anything ran on a GPU.

    Source: the words of each program (``_INSTALLERS``).
    """
    if context.fatal_besides(
        "rocm-package-wrong-os", "python-package-conflict", "unsupported-platform", "wrong-torch-build"
    ):
        return
    for line in context.lines:
        if "whl/rocm" in line.text and "windows" in context.words and "--index" in line.text:
            for_linux = "PyTorch's own index has ROCm wheels for Linux only"
            points = {"outside": 3.0, "rocm-package-wrong-os": 4.6}
            cure = (
                f"{for_linux}. On Windows, use AMD's own wheels if they support your chip (`rocmprobe "
                "install`). Otherwise, use WSL or DirectML."
            )
            says = f"line {line.number}: {for_linux}"
            yield Inference(says, points, "user-env", elsewhere=True, remedy=cure)
            return
        for who, pattern, remedy in _INSTALLERS if "repo.radeon.com" not in line.text else ():
            if pattern.search(line.text):
                says = f"{who} stops (line {line.number}), before anything runs on the GPU"
                yield Inference(says, {"outside": 5.0}, "user-env", elsewhere=True, remedy=remedy)
                return


def known_elsewhere(context: LogContext) -> Iterator[Inference]:
    """Infer from an error's message that a file, a package, the system or the program caused the error.

    Source: data/errors.toml.
    """
    grave = (hit.signature.points for hit in context.hits if hit.signature.kind == "fatal")
    if any(weight > 0 and name != "outside" for points in grave for name, weight in points.items()):
        return
    if found := find_error((line for line in context.lines if not is_warning(line.text)), "elsewhere"):
        says = f"{found.says} (line {found.line})"
        yield Inference(says, {"outside": 5.0}, found.layer, elsewhere=True, remedy=found.step)


_DISK_FULL = re.compile(r"No space left on device|\bENOSPC\b|[Dd]isk quota exceeded")


def disk_full(context: LogContext) -> Iterator[Inference]:
    """Infer that a disk, or the shared memory of a container, is full.

    Source: Linux, errno.h (ENOSPC, EDQUOT).
    """
    line = next((line for line in context.lines if _DISK_FULL.search(line.text)), None)
    if line is not None and not context.fatal:
        remedy = (
            "Run `df -h` to find the full disk, and `df -h /dev/shm` for the shared memory of data loaders. "
            "Free space there (`docker system prune`, `pip cache purge`), or give the container more: "
            "`--shm-size 8G`."
        )
        says = f"no space is left on a disk (line {line.number})"
        yield Inference(says, {"outside": 5.4}, "user-env", elsewhere=True, remedy=remedy)


#: (GPU interface other than ROCm, pattern for its messages, advice). Source: ggml-vulkan, the Vulkan
#: specification (VK_ERROR_*); torch-directml; Intel's DPC++ and IPEX.
_INTERFACES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "Vulkan", re.compile(r"ggml[-_]vulkan|\bvk::|VK_ERROR_|\bvk[A-Z]\w+\(|libvulkan"),
        "Update the graphics driver (Mesa on Linux), and try the program's previous release. `vulkaninfo "
        "--summary` shows what Vulkan sees.",
    ),
    (
        "DirectML", re.compile(r"DirectML|torch_directml|\bDML\b|\bdml_"),
        "Update the graphics driver of Windows and torch-directml. DirectML lacks many operators, and its "
        "memory is limited. AMD's own wheels for Windows use HIP instead.",
    ),
    (
        "SYCL",
        re.compile(
            r"\bSYCL\b|oneAPI|\bXPU\b|PI_ERROR_|UR_RESULT_|Level[- ]Zero|Native API (?:failed|returns)"
        ),
        "Update the compute runtime of the GPU's vendor, and search in the program's tracker.",
    ),
)  # fmt: skip
_OF_ROCM = re.compile(r"\bHIP\b|\bhip[A-Z_]|\bROC[mkr]\b|\brocm|MIOpen|miopen|\bHSA_|hsa_|amdkfd|rocblas")


def other_interface(context: LogContext) -> Iterator[Inference]:
    """Infer that the program uses the GPU through another interface than ROCm.

    Source: the words of each interface (``_INTERFACES``).
    """
    if (
        context.fatal
        or not context.structure.failed
        or any(_OF_ROCM.search(line.text) for line in context.lines)
    ):
        return
    for line in reversed(context.lines):
        for who, pattern, remedy in _INTERFACES:
            if pattern.search(line.text):
                says = f"the program uses {who} (line {line.number}), not ROCm"
                yield Inference(says, {"outside": 5.0}, "user-code", elsewhere=True, remedy=remedy)
                return


#: Packages that download files, and messages of network errors.
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

    Source: the exceptions of the packages with which Python programs download.
    """
    if context.fatal:
        return
    line = next((line for line in reversed(context.lines) if _NETWORK.search(line.text)), None)
    error = context.structure.error
    of_code = error is not None and error.kind in ("ValueError", "TypeError", "KeyError", "ImportError")
    if line is None and (of_code or context.structure.python_owner not in _NETWORK_PACKAGES):
        return
    says = (
        f"line {line.number}: the network"
        if line
        else f"{context.structure.python_owner} failed: the network"
    )
    remedy = remedy_of_error(context.structure) or (
        "Try again later, and check the proxy (HTTPS_PROXY) and the firewall. Or download the file with a "
        "browser and put it where the program looks for it."
    )
    yield Inference(
        f"{says}, a download or a server is at fault",
        {"outside": 5.0}, "user-code", elsewhere=True, remedy=remedy,
    )  # fmt: skip


#: Errors about names in Python code. A name such as "cuda_device" does not make them errors of the GPU.
_OF_PYTHON_ITSELF = re.compile(
    r"AttributeError: .*has no attribute|NameError: name |unexpected keyword argument|required positional"
)


def only_follows(error: Error) -> bool:
    """Return True if the error only reports that another process or thread failed."""
    return bool(_FOLLOWS.search(error.kind)) or "root cause above" in error.message


def _is_plain(error: Error, raiser: str) -> bool:
    if _SYSTEM_ERROR.search(error.message) or "detected CUDA version" in error.message:
        return True
    if only_follows(error):
        return False
    if _OF_OWN_FILE.search(error.message):
        return True
    if _OF_A_STACK.search(error.message) and not _OF_PYTHON_ITSELF.search(f"{error.kind}: {error.message}"):
        return False
    if error.kind in _PLAIN or "loading state_dict" in error.message:
        return True
    # A package's own exception class reports an error of the package. RuntimeError can also report a GPU
    # error.
    return (
        bool(raiser)
        and raiser not in (USER, PYTHON, "torch")
        and not OF_GPUS.search(raiser)
        and bool(error.message)
        and error.kind
        not in ("RuntimeError", "ImportError", "OSError", "AssertionError", "ModuleNotFoundError")
    )


#: Extensions that have a separate build for ROCm, or no build for ROCm.
_EXTENSIONS = re.compile(
    r"\b(?:flash_attn|xformers|bitsandbytes|triton|deepspeed|apex|mamba_ssm|causal_conv1d)\b"
)


_NUMPY = re.compile(r"compiled using NumPy 1")
_NUMPY_REMEDY = "Run `pip install 'numpy<2'`, or install a newer release of the package for NumPy 2."
#: Errors of packages whose versions do not match: a missing name, or a changed size of a NumPy type (Cython).
_UNFIT = re.compile(r"cannot import name '|numpy\.\w+ size changed")


#: Messages of pip and uv, which build packages in an environment without torch.
_ISOLATED = re.compile(
    r"declare it as a build dependency|get_requires_for_build|Getting requirements to build wheel"
)
_NOT_ISOLATED = (
    "The package is built in a separate environment without torch. Install torch first, then the package "
    "with `pip install --no-build-isolation`. On an AMD GPU, first check whether it has a build for ROCm."
)


def missing_module(context: LogContext) -> Iterator[Inference]:
    """Infer that Python packages are missing or of other versions than the program needs.

    Source: Python, ImportError and ModuleNotFoundError.
    """
    error = context.structure.error
    absent = error is not None and error.kind == "ModuleNotFoundError"
    unfit = (line for line in context.lines if _UNFIT.search(line.text))
    renamed = next((line for line in unfit if not _OF_OWN_FILE.search(line.text)), None)
    numpy = next((line for line in context.lines if _NUMPY.search(line.text)), None)
    if context.fatal_besides("cuda-only-extension", "python-package-conflict", "outside"):
        return
    if absent and error and not (_EXTENSIONS.search(error.message) and context.is_amd):
        says = f"{raised(context.structure)}: a Python package is not installed"
    elif renamed is not None:
        says = f"line {renamed.number}: the versions of two Python packages do not match"
    elif numpy is None:
        return
    remedy = remedy_of_error(context.structure)
    if numpy is not None:
        says = f"line {numpy.number}: a package was built for NumPy 1, but NumPy 2 is installed"
        remedy = _NUMPY_REMEDY
    if absent and any(_ISOLATED.search(line.text) for line in context.lines):
        says = f"{says}, in its build environment"
        remedy = _NOT_ISOLATED
    yield Inference(says, {"python-package-conflict": 4.6}, "user-env", elsewhere=True, remedy=remedy)
