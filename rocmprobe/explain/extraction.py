"""Structure of a log: the error that ended the program, frames with their owners, memory, vendors and more.

The rules in ``explain/reasoning.py`` read this structure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Optional

from rocmprobe.explain.builds import BuildError, first_error
from rocmprobe.text.log import Line, Log

#: Owners of frames outside of packages: the interpreter with its standard library, and the user's own files.
PYTHON, USER = "Python", "the program"
_FRAMES = 40


@dataclass(frozen=True)
class Frame:
    """A frame of a stack. ``kind`` is "python", "native" or "kernel".

    For a Python file, ``owner`` is the package, PYTHON or USER. For other frames, ``owner`` is the library or
    kernel module, or "" if unknown.
    """

    kind: str
    owner: str
    text: str
    line: int


@dataclass(frozen=True)
class Error:
    """The last error of a log.

    ``kind`` is the exception's type without its module, or "" for a plain line that reports an error.
    ``package`` is the module that the log prints before the type.
    """

    kind: str
    message: str
    line: int
    package: str = ""


@dataclass(frozen=True)
class Memory:
    """Quantities of an out-of-memory message in bytes, or None if the message does not give them.

    ``allowed`` is a limit that the program set for itself.
    """

    requested: Optional[float] = None
    total: Optional[float] = None
    free: Optional[float] = None
    allocated: Optional[float] = None
    reserved: Optional[float] = None
    allowed: Optional[float] = None

    @property
    def of_others(self) -> Optional[float]:
        """Bytes that other processes use: neither free nor held by PyTorch in this process."""
        if self.total is None or self.free is None or self.allocated is None:
            return None
        return max(0.0, self.total - self.free - self.allocated - (self.reserved or 0.0))


@dataclass(frozen=True)
class LogStructure:
    """Structured content of a log.

    ``frames`` are the native and kernel frames, then the Python frames, each innermost first. ``vendors`` are
    the vendors ("amd", "nvidia", "apple", "intel") whose GPUs or software the log names. ``last`` is the last
    line that is not blank. ``warned`` is the last warning in the three last lines that are not blank.
    ``harmless`` is True if a line is known to be harmless or calls itself harmless. ``excused`` are
    the numbers of lines that are harmless or only look like a failure. ``failed`` is True if any other line
    reports an error or an abnormal end. ``shared_memory`` is (bytes that a kernel requires, limit in bytes).
    ``errnos`` are the error numbers in kernel lines, each with the part of the kernel that reports the
    number. ``as_root`` is True if the log says that the program works as root.
    """

    error: Optional[Error] = None
    frames: tuple[Frame, ...] = ()
    vendors: frozenset[str] = frozenset()
    memory: Optional[Memory] = None
    shared_memory: Optional[tuple[int, int]] = None
    building: str = ""
    build_error: Optional[BuildError] = None
    errnos: tuple[tuple[str, int], ...] = ()
    last: Optional[Line] = None
    warned: Optional[Line] = None
    harmless: bool = False
    failed: bool = False
    as_root: bool = False
    excused: frozenset[int] = frozenset()
    asserted: Optional[Frame] = None
    hint: Optional[Line] = None
    printed: frozenset[str] = frozenset()

    @property
    def python_owner(self) -> str:
        """Owner of the innermost Python frame, or "" if the log has no Python frame."""
        return next((frame.owner for frame in self.frames if frame.kind == "python"), "")

    @property
    def native(self) -> Optional[Frame]:
        """Innermost native or kernel frame with a known owner or symbol."""
        return next((frame for frame in self.frames if frame.kind != "python"), None)


_EXCEPTION = re.compile(
    r"^(?:\w+ \d+ [\d:]+ \S+ )?(?:\[[^\]]{1,40}\]:? ?)?(?:[^|]{0,60}\| ?(?:\w+ ?\| ?)*|> ?|E +)?"
    r"(?:\[rank\d+\]: ?)?"
    r"((?:[A-Za-z_]\w*\.)*)([A-Z]\w*(?:Error|Exception|Timeout|NotFound|Exit|Died|Failure)|(?<=socket\.)timeout)"
    r"(?:: ?(.*)| *$)"
)
#: Lines of an error page, e.g. of ComfyUI's "Error Details".
_REPORTED_KIND = re.compile(r"^\W*Exception Type:\W*(?:(?P<package>[\w.]+)\.)?(?P<kind>[A-Z]\w+)")
_REPORTED_MESSAGE = re.compile(r"^\W*Exception Message:[* ]*(?:\w+Error: )?(.*)")
_THROWN = re.compile(r"terminate called after throwing an instance of \W([\w:]+)\W")
_WHAT = re.compile(r"^ *what\(\): +(.*)")
_PLAIN_ERROR = re.compile(
    r"(?:^|[\s:\]|)])(?:fatal |FATAL |internal compiler |linker )?(?:ERROR|[Ee]rror|FAILED"
    r"|Failed)\b(?![ -]?(?:handling|code 0\b|= ?0\b|\S{0,9}Traceback))"
    r"|is_available(?:\(\))?\s*[:=]\s*False\b"
    r"|^\S*python[\w.]*: can't open file|\"level\": ?\"(?:error|fatal)\""
)
_ABNORMAL = re.compile(
    r"core dumped|[Ss]egmentation fault|\bAborted\b|SIG(?:SEGV|ABRT|KILL|BUS|ILL|FPE)|0xc000[0-9a-f]{4}"
    r"|exit(?:ed)?(?: with)?(?: code| status)?:? -?[1-9]|[Cc]all [Tt]race|BUG:|Oops|\bpanic\b|\bKilled\b"
    r"|HW Exception|Memory access fault|timed? ?out|\bhang|GPU reset|\*ERROR\*|\bfault\b|Assertion .* failed"
    r"|Exception during processing|No operator found"
    r"|failed|not found|cannot|could not|unable to|undefined symbol|No such",
    re.IGNORECASE,
)
_WARNS = re.compile(
    r"(?:\b\w*Warning\b: |\b(?:WARN|WARNING|Warning|warning)\b|^W\d{4} |^W: |\bwarn(?:ings\.warn)?\("
    r"|^(?:\[\S{0,12} ?)?\[W\b|\[W\d)"
)
_PYTHON_FRAME = re.compile(
    r"^[\s|]*(?:\[?\w*\]?:?[|\s>]*)?(?:File \"(?P<file>[^\"]+)\", line \d+|File (?P<notebook>[^\s:]+\.py):\d+"
    r"|(?P<old>/\S+\.py) in \w+\()"
)
_GDB_FRAME = re.compile(
    r"^\s*(?:#\d+\s+(?:0x[0-9a-f]+ (?:in )?)?|0x[0-9a-f]+ in )(?P<symbol>[^\s(][^(]*?)\s*\((?P<rest>.*)"
)
_TORCH_FRAME = re.compile(
    r"^\s*frame #(?P<number>\d+): (?P<symbol>.+?) \+ 0x[0-9a-f]+ .* in (?P<library>\S+)\)"
)
#: A line that ends without a message, because the message is on the next lines.
_NO_MESSAGE = re.compile(r"(?:Error|Exception): *$")
#: A line that ends with only the type: "Module load: FILE: ModuleNotFoundError".
_ENDS_IN_TYPE = re.compile(r": ([A-Z]\w+(?:Error|Exception))$")
_ASSERTION = re.compile(r"(?P<path>\S+\.(?:cpp|cc|c|h|hpp)):\d+: .*\b[Aa]ssertion\b.* failed")
_KERNEL_FRAME = re.compile(
    r"(?:^|[\s:]|\? )(?P<symbol>[a-z_]\w+)\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[(?P<module>\w+)\])?"
)
_LIBRARY = re.compile(r"([\w+.-]+?\.so[.\d]*|[\w+.-]+\.dll)\b")
#: Frames that only pass a failure on: the C library, the C++ runtime, signal handlers.
_PASSES_ON = re.compile(
    r"^(?:n/a|\?\?|_*(?:GI_)?_*(?:raise|abort|libc_\w+|assert\w*|pthread_\w+|kill|restore_rt|clone\w*|start_thread|poll|ioctl)"
    r"|<signal handler called>|gsignal|std::|__cxa|_Unwind|__gnu_cxx|dump_stack\w*|show_\w+|die\w*"
    r"|exc_\w+|asm_\w+"
    r"|do_syscall\w*|entry_SYSCALL\w*|x64_sys_call|__warn\w*|report_bug|handle_bug|page_fault\w*|ret_from_fork\w*"
    r"|worker_thread|process_one_work|kthread|schedule\w*|__schedule\w*)"
)

_AMD = re.compile(
    r"gfx\d{3}|\bamdgpu\b|\bamdkfd\b|\bkfd\b|Radeon|Instinct|FirePro|\bRX ?\d{3,4}\b"
    r"|\bMI\d{2,3}[AX]?\b|\bROC[mkr]\b|rocm|MIOpen|miopen"
    r"|rocblas|hipblas|HIP(?:BLAS|FFT|SPARSE|SOLVER|RTC)"
    r"|hipError|HIP error|\bHIP\b|libamdhip|\bHSA_|hsa_|Strix Halo|\bAMD GPU"
    r"|AMD-APP\b|AMD Accelerated Parallel"
)
#: ``collect_env`` prints these lines if PyTorch was built without ROCm.
_NO_AMD = re.compile(
    r"(?:ROCM used to build PyTorch|HIP runtime version|MIOpen runtime version): N/A|hip: None"
)
_NVIDIA = re.compile(
    r"NVIDIA (?:GeForce|RTX|GTX|Graphics|TITAN|Quadro|Tesla|[AHLB]\d{2,3}\b|GB?\d)|NVIDIA-SMI \d"
    r"|GeForce|\b(?:RTX|GTX) ?\d{3,4}"
    r"|\bTesla [A-Z]\d|\b(?:A100|H100|H200|B200|V100|L40S?)\b|\bsm_\d\d|CUDA used to build PyTorch: "
    r"1\d|Nvidia driver version: \d"
    r"|CUDNN_STATUS_|cuda_dnn\.cc|CUDA SETUP: CUDA runtime path found|CUDA SETUP: Highest compute"
    r"|libtorch_cuda\w*\.so|libc10_cuda\.so|NVIDIA driver on your system is too old"
    r"|NVIDIA-SMI has failed|The detected CUDA version|nvcc fatal"
    r"|(?:cublas(?:Lt)?|cudart|nvrtc)64_\d+\w*\.dll|cudnn\w*64_\d+\.dll|RuntimeError: CUDA error: "
    r"|torch[^\n]{0,20}\+cu1\d\d|lib(?:cudnn|cublas)(?:Lt)?\d?_?\w*\.so|\bNVML\b|\bNVRM: "
    r"|cudnn\d+\.dll|\bCUDA Version: 1\d"
)
_INTEL = re.compile(r"\bi915\b|\bxe 0000:|Intel\(R\) (?:Arc|Iris|UHD|Data Center GPU)|\bipex\b|oneAPI")
_APPLE = re.compile(
    r"\bmacOS\b|\bDarwin\b|Apple M\d|\bMPS\b|mps:0|arm64-apple|(?<![A-Za-z]:)/Users/\w+/|\.dylib\b"
)

_SIZE = r"(-?[\d.]+) ?([KMGT]i?B|[KMGT]?B|bytes)\b"
_REQUESTED = re.compile(rf"(?:[Tt]ried to allocate|allocate|allocating|requested) {_SIZE}")
_QUANTITIES = (
    ("total", re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capaci?ty|total: {_SIZE}")),
    ("free", re.compile(rf"of which {_SIZE} is free|{_SIZE} free|free: {_SIZE}")),
    ("allocated", re.compile(rf"allocated memory {_SIZE} is allocated|{_SIZE} already allocated")),
    ("reserved", re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")),
    ("allowed", re.compile(rf"{_SIZE} allowed")),
)
_MEMORY_LINES = 5
_POWERS = {"": 0, "B": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SHARED = re.compile(
    r"shared memory,? [Rr]equired: ?(\d+),? [Hh]ardware limit: ?(\d+)|local memory \((\d+)\) "
    r"exceeds limit \((\d+)\)"
)
_BUILDING = (
    re.compile(r"(?:Failed building wheel for|Failed to build(?: installable wheels for)?:?|error: "
               r"subprocess-exited.*for) ([\w.-]+)"),
    re.compile(r"Building wheel for ([\w.-]+)"),
    re.compile(r"Could not build wheels for ([\w.-]+)"),
    re.compile(r"^ERROR: Failed building (?:\w+ )*([\w.-]+)"),
)  # fmt: skip
_ERRNO = re.compile(r"(?P<what>[\w.: -]{3,60}?) failed(?: with error)? \(?(?:ret=)?(?P<number>-\d{1,3})\)?")
_AS_ROOT = re.compile(
    r"(?i)\b(?:as root|with sudo|under sudo|using sudo)\b.{0,40}\b(?:works?|fine|succeeds?|ok)\b"
    r"|\b(?:works?|fine|succeeds?)\b.{0,30}\b(?:as root|with sudo|under sudo)\b"
)


#: Text that shows that the output of a command is in the log, keyed by a word of the command.
_OUTPUTS = {
    "rocminfo": re.compile(r"HSA Agents|Marketing Name:|^ *Name: +gfx", re.MULTILINE),
    "dmesg": re.compile(r"^\[ *\d+\.\d+\] .*(?:amdgpu|kfd|drm)|kernel: .*(?:amdgpu|kfd|drm)", re.MULTILINE),
    "get_arch_list": re.compile(r"\['gfx\w+'|get_arch_list"),
    "torch.version": re.compile(r"\+rocm\d|ROCM used to build PyTorch: \d|^\d\.\d\.\d{4,}", re.MULTILINE),
    "torch.__version__": re.compile(r"\+rocm\d|PyTorch version: \d|torch +\d\.\d"),
    "/dev/kfd": re.compile(r"[cC]rw\S* .*(?:/dev/)?kfd"),
    "id -nG": re.compile(r"\bgroups=|is (?:not )?(?:a )?member of .*group"),
    "pip list": re.compile(r"^(?:numpy|torch) +\d|Package +Version", re.MULTILINE),
    "dkms status": re.compile(r"^(?:amdgpu|rock)[-/,].*: installed", re.MULTILINE),
    "lspci": re.compile(r"VGA compatible controller|\[AMD/ATI\]"),
    "uname": re.compile(r"^Linux \S+ \d|microsoft-standard", re.MULTILINE),
    "MIOPEN_LOG_LEVEL": re.compile(r"MIOpen\(HIP\): Info"),
}


def answers(structure: LogStructure, question: str) -> bool:
    """Return True if the log has the output of every command that ``question`` has in backticks.

    Return False if ``question`` has no command.
    """
    commands = [part for piece in re.findall(r"`([^`]+)`", question) for part in re.split(r"[;&]", piece)]
    words = [next((word for word in _OUTPUTS if word in command), "") for command in commands]
    return bool(words) and all(word in structure.printed for word in words)


def extract(log: Log) -> LogStructure:
    """Return the structure of a log."""
    lines = [line for line in log.lines if line.text.strip()]
    text = "\n".join(line.text for line in lines)
    lower = text.lower()
    harmless = frozenset(
        line.number
        for line in (lines if any(word in lower for word in _HARMLESS_WORDS) else ())
        if _HARMLESS.search(line.text)
    )
    excused = _excused(lines) | harmless | (_of_pip(lines) if "pip's" in text else frozenset())
    error = _last_error(line for line in lines if line.number not in excused)
    return LogStructure(
        error=error,
        frames=tuple(_frames(lines, error)),
        vendors=frozenset(_vendors(text)),
        memory=_memory(lines),
        shared_memory=_shared_memory(text),
        building=next((match[1] for pattern in _BUILDING if (match := pattern.search(text))), ""),
        build_error=first_error(lines),
        errnos=tuple(_errnos(lines)),
        last=lines[-1] if lines else None,
        warned=next((line for line in reversed(lines[-3:]) if is_warning(line.text)), None),
        harmless=bool(harmless),
        failed=any(reports_failure(line.text) for line in lines if line.number not in excused),
        as_root=_AS_ROOT.search(text) is not None,
        excused=excused,
        printed=frozenset(word for word, pattern in _OUTPUTS.items() if pattern.search(text)),
        hint=_hint([line for line in lines if line.number not in excused], error),
        asserted=next(
            (
                Frame("native", "", match["path"], line.number)
                for line in reversed(lines)
                if (match := _ASSERTION.search(line.text))
            ),
            None,
        ),
    )


#: Words with which a program calls its own message harmless, and harmless messages of programs and drivers.
#: Source: Linux drivers/gpu/drm/amd (secure display is not needed to compute), drivers/acpi; TensorFlow's
#: start; PyTorch c10/cuda (expandable segments), torch/utils; Stable Diffusion web UI; xformers; pip.
_HARMLESS = re.compile(
    r"(?i)nothing to (?:be concerned|worry) about|\bharmless\b|safe to ignore|(?:safely|can be) ignored?"
    r"|ignore this (?:warning|message)"
    r"|secure ?display|psp gfx command (?:LOAD_TA|INVOKE_CMD)|ACPI (?:BIOS )?(?:Error|Warning)|WC memtype"
    r"|REG_WAIT timeout|Cannot find any crtc|amdgpu\.ids: No such"
    r"|Unable to register cu\w+ factory|computation placer already registered|Could not find TensorRT"
    r"|NUMA node|Ignoring invalid distribution|expandable_segments not supported"
    r"|A matching Triton is not available|No module '?xformers'?\. Proceeding without"
    r"|redirects are currently not supported|Error caught was: No module named|Unable to initialize backend"
    r"|enable gfxoff|(?:PSP|SMU) is resuming|optional \w+ ta ucode is not available"
)
#: Each harmless message contains one of these words. A log without them need not be searched line by line.
_HARMLESS_WORDS = (
    "nothing to", "harmless", "ignor", "display", "psp gfx", "acpi", "memtype", "reg_wait", "crtc",
    "amdgpu.ids", "factory", "computation placer", "tensorrt", "numa node", "expandable_segments",
    "matching triton", "proceeding without", "redirects are", "error caught was", "initialize backend",
    "gfxoff", "is resuming", "ta ucode",
)  # fmt: skip


#: A line with this text before the word "warning" is not a warning: "error: unknown warning option".
_ERROR_BEFORE = re.compile(r"\berror: ")
_FAILURE_OF_GPU = re.compile(r"not supported|unable to|no suitable|permission|fail(?:ed|ure)")
_ERROR_CODE = re.compile(r"\bError \d{3}: |invalid value encountered in cast")
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ")


_HINT = re.compile(
    r"\bHINT:|(?:\b(?:[Pp]lease|[Tt]ry|[Cc]onsider|[Yy]ou (?:can|may|should|need to|must))"
    r"|(?:^|[.:!,] )(?:Use|Set|Install|Run|Add|Pass|Upgrade|Update|Increase|Decrease))\b.{0,80}?"
    r"(?:`[^`]+`|--\w[\w-]+|\binstead\b|\b(?:pip|conda|dnf|brew) install|\bexport \w+="
    r"|\b[A-Z][A-Z0-9_]{5,}=\S)"
)
#: Hints to ignore: standard hints of many messages, hints for other machines, and hints that only hide the
#: failure.
_NO_HINT = re.compile(
    r"(?i)LAUNCH_BLOCKING|USE_(?:CUDA|HIP)_DSA|SERIALIZE_KERNEL|ALLOC_CONF|skip-torch-cuda-test|upgrade pip"
    r"|break-system-packages|report|search for|verbose|--help|nvidia|cuda|public link|MORE_DETAILS"
    r"|nogpu(?:lib|inc)|COMMANDLINE_ARGS|Command line|^(?:PS )?\S*[>$#] ?\S|cmd /c"
    r"|FutureWarning|DeprecationWarning"
    r"|^\s*(?:import|from|return|raise|def|if|for|self\.)\b"
)
_HINT_BEFORE, _HINT_AFTER = 1, 10
_LONGEST_HINT = 400


def _hint(lines: Collection[Line], error: Optional[Error]) -> Optional[Line]:
    if error is None:
        return None
    for line in lines:
        near = -_HINT_BEFORE <= line.number - error.line <= _HINT_AFTER
        if (
            near
            and len(line.text) < _LONGEST_HINT
            and _HINT.search(line.text)
            and not _NO_HINT.search(line.text)
        ):
            return line
    return None


def is_warning(text: str) -> bool:
    """Return True if the program marks this line as a warning.

    Return False for the kernel's "WARNING: CPU:", which is a failed assertion.
    """
    if "level=WARN" in text:  # Ollama also logs failures of the GPU at this level
        return not _FAILURE_OF_GPU.search(text)
    match = _WARNS.search(text)
    if match is None or "WARNING: CPU:" in text or "NCCL WARN" in text:  # errors of the kernel and RCCL
        return False
    return not (
        _ERROR_BEFORE.search(text, 0, match.start()) or _RAISED.match(text) or _ERROR_CODE.search(text)
    )


#: A library that was loaded when the program crashed. Source: systemd, coredumpctl info.
_MODULE = re.compile(r"\s*Module \S+ (?:from|without|with build-id)\b")


def _excused(lines: Collection[Line]) -> frozenset[int]:
    """Return the numbers of lines that only look like a failure.

    These are the tracebacks of warnings, and the list of modules in a core dump.

    A warning's traceback at the end of the log is included only in two cases. Either the line before the
    traceback ends with a colon, or the traceback's first line is marked as a warning.
    """
    found = {line.number for line in lines if _MODULE.match(line.text)}
    last: set[int] = set()
    before, announced = "", False
    inside = False
    for line in lines:
        starts = "Traceback (most recent call last)" in line.text
        if starts:
            inside = is_warning(before) or is_warning(line.text)
            announced = before.rstrip().endswith(":") or is_warning(line.text)
            found |= last
            last = set()
        if inside:
            last.add(line.number)
            inside = not (not starts and _EXCEPTION.match(line.text))
        elif line.text.strip():
            found |= last
            last = set()
        before = line.text
    return frozenset(found | last if announced else found)


#: Messages in which pip reports a dependency conflict, but continues.
_PIP_GOES_ON = re.compile(r"pip's dependency resolver|requires \S+, but you have \S+ .*incompatible")


#: Lines that pip usually prints after a dependency conflict.
_PIP = re.compile(
    r"\s*$|Installing|Successfully|Requirement|WARNING|\[notice\]|\S+ \S+ (?:requires|depends)|.*\$ "
)


def _of_pip(lines: Collection[Line]) -> frozenset[int]:
    """Return the line numbers of pip's messages about dependency conflicts, if other lines follow.

    The other lines report a failure or are not pip's usual output. Without other lines, a conflict can be the
    failure itself, and the result is empty.
    """
    numbers = [line.number for line in lines if _PIP_GOES_ON.search(line.text)]
    later = (line for line in lines if numbers and line.number > numbers[-1])
    return frozenset(
        numbers if any(reports_failure(line.text) or not _PIP.match(line.text) for line in later) else ()
    )


def reports_failure(text: str) -> bool:
    """Return True if this line reports an error or an abnormal end."""
    if is_warning(text):
        return False
    return bool(_EXCEPTION.match(text) or _PLAIN_ERROR.search(text) or _ABNORMAL.search(text))


def _last_error(lines: Iterable[Line]) -> Optional[Error]:
    """Return the exception that ended the log, or else the last line that reports an error.

    For a C++ exception, the message is ``what()`` on the next line. For a Python message with several lines,
    use the first line that is not blank.
    """
    found: Optional[Error] = None
    plain: Optional[Error] = None
    begun: Optional[Error] = None
    thrown = ""
    for line in lines:
        text = line.text
        if text.startswith("Traceback (most recent call last)"):
            found = None  # an earlier error is not the last one, even if this traceback is cut off
        if begun and text.strip() and not _EXCEPTION.match(text):
            found = replace(begun, message=text.strip())
        begun = None
        if match := _EXCEPTION.match(text):
            found = Error(match[2], (match[3] or "").strip(), line.number, match[1].rstrip("."))
            begun = found if _NO_MESSAGE.search(text) else None
        elif match := _ENDS_IN_TYPE.search(text):
            found = Error(match[1], "", line.number)
        elif match := _REPORTED_KIND.match(text):
            found = Error(match["kind"], "", line.number, match["package"] or "")
        elif found and not found.message and (match := _REPORTED_MESSAGE.match(text)):
            found = replace(found, message=match[1].strip())
        elif match := _THROWN.search(text):
            thrown = match[1].rpartition("::")[2]
            found = Error(thrown, "", line.number, match[1].rpartition("::")[0])
        elif thrown and (match := _WHAT.match(text)):
            found = Error(thrown, match[1].strip(), line.number, found.package if found else "")
            thrown = ""
        elif _PLAIN_ERROR.search(text) and not is_warning(text):
            plain = Error("", text.strip(), line.number)
    return found or plain


def _frames(lines: Iterable[Line], error: Optional[Error]) -> Iterator[Frame]:
    """Yield frames, innermost first.

    Native and kernel frames come before Python frames.
    """
    native: list[Frame] = []
    python: list[Frame] = []
    for line in lines:
        if (match := _TORCH_FRAME.match(line.text)) or (match := _GDB_FRAME.match(line.text)):
            owned = match.groupdict().get("library") or match.groupdict().get("rest") or ""
            symbol = match["symbol"].strip()
            library = _LIBRARY.search(owned.replace("\\", "/").rpartition("/")[2] or owned)
            if not _PASSES_ON.match(symbol) or (library and symbol in ("n/a", "??")):
                native.append(Frame("native", library[1] if library else "", symbol, line.number))
        elif match := _PYTHON_FRAME.match(line.text):
            path = match["file"] or match["notebook"] or match["old"]
            if not path.startswith("<"):
                python.append(Frame("python", owner_of(path), path, line.number))
        elif (match := _KERNEL_FRAME.search(line.text)) and not _PASSES_ON.match(match["symbol"]):
            native.append(Frame("kernel", match["module"] or "", match["symbol"], line.number))
    before = [frame for frame in python if error is None or frame.line <= error.line]
    yield from native[:_FRAMES]
    yield from list(reversed(before or python))[:_FRAMES]


def owner_of(path: str) -> str:
    """Return the package of a Python file, PYTHON for the standard library, or USER for any other file."""
    parts = [part for part in re.split(r"[/\\]+", path) if part]
    for folder in ("site-packages", "dist-packages", "custom_nodes", "extensions"):
        if folder in parts[:-1]:
            name = parts[len(parts) - parts[::-1].index(folder)]
            return name[:-3] if name.endswith(".py") else name
    folders = parts[:-1]
    if any(re.fullmatch(r"python3?\.?\d*|Python3\d+|[Ll]ib", part) for part in folders[-4:]) and any(
        re.fullmatch(r"(?i)python3?\.?\d*|lib", part) for part in folders
    ):
        return PYTHON if re.search(r"(?i)[/\\](?:lib[/\\]python3|python3\d+[/\\]lib)", path) else USER
    return USER


def _vendors(text: str) -> Iterator[str]:
    if _AMD.search(_NO_AMD.sub("", text)):
        yield "amd"
    if _NVIDIA.search(text):
        yield "nvidia"
    if _APPLE.search(text):
        yield "apple"
    if _INTEL.search(text):
        yield "intel"


def _bytes(number: str, unit: str) -> float:
    letter = unit[0].upper() if unit[0] in "KMGTkmgt" else ""
    return float(number) * float(1024 ** _POWERS[letter])


def _memory(lines: Iterable[Line]) -> Optional[Memory]:
    texts = [line.text for line in lines]
    said = [place for place, text in enumerate(texts) if re.search(r"(?i)out of memory|OutOfMemory", text)]
    first = next((place for place in said if said[-1] - place < _MEMORY_LINES), 0)
    last = " ".join(texts[first : first + _MEMORY_LINES]) if said else ""
    found = {}
    for name, pattern in (("requested", _REQUESTED), *_QUANTITIES):
        if match := pattern.search(last):
            number, unit = list(filter(None, match.groups()))[:2]
            try:
                found[name] = _bytes(number, unit)
            except ValueError:  # "1.2.3 GiB" is no number
                continue
    return Memory(**found) if found else None


def _shared_memory(text: str) -> Optional[tuple[int, int]]:
    match = _SHARED.search(text)
    if not match:
        return None
    required, limit = (int(group) for group in match.groups() if group)
    return required, limit


def _errnos(lines: Iterable[Line]) -> Iterator[tuple[str, int]]:
    for line in lines:
        if re.search(r"amdgpu|kfd|\bdrm\b", line.text) and (match := _ERRNO.search(line.text)):
            yield match["what"].strip(), int(match["number"])
