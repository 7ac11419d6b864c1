"""Situations: words that describe a machine and a failure, and that rules and advice use as conditions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Optional

from rocmprobe.explain.log_facts import Facts
from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.compatibility import Answer, Combination, answers, libraries_with_code
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.stacks import system_of
from rocmprobe.model.results import Fact
from rocmprobe.text.log import Log
from rocmprobe.text.versions import version_numbers

_FAMILIES = {
    "RDNA1": "rdna1", "RDNA2": "rdna2", "RDNA3": "rdna3", "RDNA3.5": "rdna3.5", "RDNA4": "rdna4",
    "Vega": "vega", "GCN": "gcn", "CDNA": "cdna", "CDNA2": "cdna", "CDNA3": "cdna", "CDNA4": "cdna",
}  # fmt: skip
_VERSION = re.compile(r"(?<![0-9.])([0-9]{1,2})\.([0-9]{1,2}|x)(?![0-9])")
_ROCM = re.compile(r"rocm[ _-]?v?([0-9]{1,2}(?:\.(?:[0-9]{1,2}|x))*)", re.IGNORECASE)
_KERNEL = re.compile(r"(?i)(?:linux|kernel|\()[ v-]*(\d\.\d{1,2}(?:\.\d{1,3})?)(?![\d.])")
#: (suffix of the version of a torch that is not for ROCm, pattern for descriptions of this torch).
_OTHER_BUILDS = (
    ("+cu", re.compile(r"\+cu[0-9]{2}|cuda", re.IGNORECASE)),
    ("+cpu", re.compile(r"\+cpu|\bcpu\b", re.IGNORECASE)),
)
#: (word if the relation holds, word if the relation does not hold), keyed by relation.
_BY_ANSWER = {
    "override-is-accepted": ("", "override-invalid"),
    "silicon-fits-override": ("override-covers", "override-lacks"),
    "torch-has-code": ("torch-holds", "torch-lacks"),
    "wheel-has-code": ("wheel-holds", "wheel-lacks"),
    "amd-wheel-has-code": ("", "wheel-lacks"),
    "runtime-knows-chip": ("", "rocm-before-gpu"),
    "rocblas-has-kernels": ("rocblas-holds", ""),
}
#: Patterns for the text of logs and facts, keyed by situation.
_ABOUT = {
    "tensorflow": r"tensorflow|stream_executor",
    "llama": r"\bggml|llama\.cpp|llama[-_](cli|server|bench)|ollama|llama runner",
    "other-program": r"\bjulia\b|AMDGPU\.jl|OpenCL|\bcl[A-Z]\w+\(|darktable|hashcat|[Bb]lender|Cycles"
    r"|onnxruntime|[Mm]igraphx|jaxlib|[Cc][Tt]ranslate2|faster[-_]whisper|LAMMPS|GROMACS|\bclinfo\b",
    "windows": r"\b[Ww]indows (1[01]|[Ss]erver)|\b[A-Z]:[\\/]|0xc000[0-9a-f]{4}|\.dll\b",
    "wsl": r"\bWSL|microsoft-standard|/dev/dxg",
    "container": r"docker|Docker|podman|singularity|apptainer|kubernetes|\bLXC\b|rocm/(py)?t",
    "cluster": r"slurm|\bsrun\b|/gpfs/|/lustre/|\bNFS\b|supercomputer|\bHPC\b|shared file ?system",
    "emulated-display": r"VMware|VirtualBox|SVGA II|vmwgfx|bochs-drm",
    "virtual": r"QEMU|Hyper-V|libvirt|\bVM\b|[Vv]irtual [Mm]achine",
    "torch": r"(?i:\btorch|pytorch|HIP kernel errors might be asynch)|RuntimeError: HIP error",
    "amd": r"gfx[0-9]{3}|amdgpu|ROC[mkr]|rocm|\bHIP\b|hip[A-Z]|MIOpen|Radeon|Instinct|\bRX \d|\bAMD\b",
}
#: Patterns for facts only, keyed by situation. In a log, these words can have another meaning.
_STATED = {
    "windows": r"(?i:windows)",
    "container": r"(?i:container)",
    "cluster": r"(?i:slurm|cluster)",
}
_IN_LOG = {
    "miopen": r"MIOpen|miopen",
    "training": r"\b[Ee]poch|\bloss\b|backward\(",
    "jit": r"/comgr-|comgr|hiprtc|HIPRTC|miopen-tmp|hip_build_utils|\[Build(Hip|Ocl|Asm)\]",
    "triton": r"[Tt]riton|_inductor\b|hip_utils",
    "apt": r"have unmet dependencies|^E: |dpkg: error|held broken packages",
    "system-include": r"-isystem[ =]?/usr/include(?![\w/])",
}
#: Names of libraries and folders that contain a ROCm version or the version of a library's interface.
_OF_A_ROCM = re.compile(
    r"lib(?:amdhip64|hsa-runtime64|rocblas|hipblas|MIOpen|rocm_smi64|roctx64)\.so\.(\d{1,2})\b"
    r"|amdhip64_(\d)\.dll|/rocm-(\d\.\d{1,2})|bitsandbytes_rocm(\d\d)\d?\.",
)
#: Targets in the lists of devices that programs print.
_LISTED = re.compile(
    r"(?:^ *Name: +|[Dd]evice +\d+ *[:=].{0,80}?|gfx\w+ *[,;] *)\b(gfx[0-9a-f]{3,4})\b", re.M
)
#: llama.cpp prints the number of each device, and the number of the device that failed.
_NUMBERED = re.compile(r"[Dd]evice +(\d+) *[:=].{0,80}?\b(gfx[0-9a-f]{3,4})\b")
_CURRENT = re.compile(r"current device: (\d+)")
#: Integrated GPUs share one generic name. Names of cards contain a series or model.
_NAMED_APU = re.compile(r"Radeon(?:\(TM\))? Graphics\b")
_NAMED_CARD = re.compile(r"Radeon (?:\(TM\) )?(?:RX|AI|Pro|PRO|VII) ?\w")
_STATED_APU = re.compile(r"(?i)\bi?GPU in|\biGPU\b|\bAPU\b|integrated|Ryzen \d")
_STATED_CARD = re.compile(r"\bRX ?\d{3,4}|Radeon (?:VII|Pro|PRO)|Instinct|\bVega \d\d\b|\bMI\d{2,3}")
#: Names of packages and indexes that say for which targets they were built.
_PACKAGE = re.compile(
    r"(?:rocm_sdk_libraries[_-]|device[_-]|/v2/|rocm[-_])(gfx[0-9]{2,4}[0-9a-fxX]{0,2})(?=[-_\]./ ]|$)"
    r"|rocm-sdk targets\s+(gfx[0-9a-f;]+)"
)

_LINUX = re.compile(r"(?i)linux|ubuntu|debian|fedora|arch|manjaro|gentoo|nixos|suse|rhel|centos|mint|pop!_os")
#: In these messages, a process names the ISA that it uses for its device. A working override changes
#: this ISA.
_NAMED = re.compile(
    r"(?:Raw device name: |generated when compiling for |for GPU arch : |gcnArchName\W+)(gfx[0-9a-f]+)"
)
_OFF = re.compile(r"0|off|no|false|disabled?", re.IGNORECASE)
_RESTRICTING = ("MIOPEN_DEBUG_FIND_ONLY_SOLVER", "MIOPEN_DEVICE_ARCH", "MIOPEN_DEVICE_CU")
_SWITCHES = re.compile(
    r"MIOPEN_DEBUG_(CONV_\w+|AMD_\w*WINOGRAD\w*|GCN_ASM_KERNELS|HIP_KERNELS|OPENCL_CONVOLUTIONS)$"
)

#: MIOpen logs the origin of a kernel at log level 6. MIOpen itself spells "Sucessfully".
_KERNEL_ORIGINS = {
    "kernel-read": re.compile(r"Suc+essfully loaded binary for:"),
    "kernel-built": re.compile(r"(?:Unable to load|Saving) binary for:"),
}
_KERNEL_REFUSED = re.compile(r"Failed (?:loading|creating) module:")

_ENDINGS = ("exception", "segv", "abort", "hang")

#: Patterns for lines of PyTorch's own frames or of MIOpen's log, keyed by situation. The first match counts,
#: so a transposed convolution comes before a convolution.
_LINES: Mapping[str, re.Pattern[str]] = {
    "transposed-convolution": re.compile(r"conv_transpose[123]d|ConvTranspose[123]d|slow_conv_transpose"),
    "batch-norm": re.compile(r"modules/batchnorm\.py|\bbatch_norm\b|BatchNorm[123]?d?\b|miopen_batch_norm"),
    "rnn": re.compile(r"modules/rnn\.py|_VF\.(?:lstm|gru|rnn_\w{4})\b|miopen_?[rR][nN][nN]|\b(?:LSTM|GRU)\("),
    "ctc-loss": re.compile(r"\bctc_loss\b|CTCLoss"),
    "convolution": re.compile(
        r"modules[/\\]conv\.py|\bF\.conv[123]d\b|_conv_forward|miopen_convolution|miopenConvolution|\bconvolution_backward\b"
        r"|\bConv[123]d\b|MIOpenDriver conv|naive_conv|\[(?:Find|Get)?Conv\w*(?:Fwd|Bwd)\w*\]|convolutionocl"
    ),
}  # fmt: skip
#: Names of situations in messages, each with its article.
WORDS: Mapping[str, str] = {
    "transposed-convolution": "a transposed convolution",
    "batch-norm": "a batch norm",
    "rnn": "a recurrent layer (RNN, LSTM, GRU)",
    "ctc-loss": "a CTC loss",
    "convolution": "a convolution",
}
KNOWN_WORDS = frozenset(
    {
        *_FAMILIES.values(), *_ABOUT, *_IN_LOG, *filter(None, sum(_BY_ANSWER.values(), ())),
        "torch-cpu", "torch-cuda", "apu", "no-override", "override", "override-ignored",
        "override-needless", "torch-1", "torch-2", "rocm-4", "rocm-5", "rocm-6", "rocm-lists",
        "two-rocms", "apu-beside-card", "failing-on-apu", "desktop-apu", "find-restricted",
        *_KERNEL_ORIGINS, *_ENDINGS, *WORDS,
    }
)  # fmt: skip


def situations(facts: Facts, log: Log) -> frozenset[str]:
    """Return the situations that apply to these facts and this log, e.g. "rdna1" or "two-rocms"."""
    return words_and_answers(facts, log)[0]


def words_and_answers(facts: Facts, log: Log) -> tuple[frozenset[str], tuple[Answer, ...]]:
    """Return (situations, results).

    Situations are words such as "rdna1". Results say whether chip and software meet the conditions in
    data/compatibility.toml.
    """
    text = "\n".join(line.text for line in log.lines)
    about = _about(facts, text)
    primitive = primitive_in(log)
    combination = _combination(facts, about, primitive, _package(text))
    answered = answers(combination)
    words = {
        *_chip(facts),
        *_override(facts, text),
        *about,
        *filter(None, [primitive]),
        *_versions(combination, "torch" in about),
        *(
            _BY_ANSWER[each.relation.name][each.holds is False]
            for each in answered
            if each.relation.name in _BY_ANSWER
        ),
        *(word for word, pattern in _IN_LOG.items() if _in(pattern, text)),
        *_several(text, facts.gpu or ""),
        *filter(None, [_kernel_origin(log)]),
        *(["find-restricted"] if _find_restricted(facts) else []),
        *([facts.exit] if facts.exit in _ENDINGS else []),
    }
    return frozenset(words - {""}), answered


def _combination(
    facts: Facts, about: Collection[str], primitive: Optional[str], package: Optional[str]
) -> Combination:
    of_torch = "torch" in about
    torch, wheel = (_torch_version(facts) if of_torch else None), _version_of_wheel(facts)
    other = next((suffix for suffix, pattern in _OTHER_BUILDS if pattern.search(facts.torch or "")), "")
    suffix = f"+rocm{_dotted(wheel)}" if wheel else other
    kernel = _KERNEL.search(facts.os or "")
    return Combination(
        amd="amd" in about,
        primitive=primitive,
        package=package,
        gfx=facts.true_gfx,
        effective=facts.effective_gfx,
        override=None if "windows" in about else facts.env.get(OVERRIDE),
        torch=f"{_dotted(torch) or ''}{suffix}" or None if of_torch or suffix else None,
        rocm=_dotted(wheel or _version(facts.rocm)),
        kernel=kernel[1] if kernel else None,
        system="windows" if "windows" in about else "wsl" if "wsl" in about else _linux(facts),
        torch_targets=_targets(facts.torch_targets),
        rocblas_targets=_targets(facts.rocblas_targets),
        first=facts.first_gpu,
    )


def _package(text: str) -> Optional[str]:
    """Return the targets in the name of an installed package or package index, e.g. "gfx110X".

    If ``text`` has a list "rocm-sdk targets" instead, return the targets in this list, separated by blanks.
    """
    match = _PACKAGE.search(text)
    return (match[1] or match[2].replace(";", " ")) if match else None


def _several(text: str, stated: str) -> Iterable[str]:
    """Yield the situations about several GPUs or several ROCm versions, e.g. "two-rocms".

    ``text`` is the text of the log. ``stated`` is the name of the GPU in the facts, or "".
    """
    numbers = {next(filter(None, groups)) for groups in _OF_A_ROCM.findall(text)}
    if len({number for number in numbers if "." not in number}) > 1 or len(numbers) > 2:
        yield "two-rocms"
    kinds = {row.apu is True for row in map(gpus.target, set(_LISTED.findall(text))) if row}
    named = _NAMED_APU.search(text) and _NAMED_CARD.search(text)
    if kinds == {True, False} or named or (_STATED_APU.search(stated) and _STATED_CARD.search(stated)):
        yield "apu-beside-card"
    if "gfx1036" in text:
        yield "desktop-apu"
    by_number = dict(_NUMBERED.findall(text))
    failing = [gpus.target(by_number.get(number)) for number in _CURRENT.findall(text)]
    if any(row is not None and row.apu is True for row in failing) and len(by_number) > 1:
        yield "failing-on-apu"


def _kernel_origin(log: Log) -> Optional[str]:
    refused = next((line.number for line in log.lines if _KERNEL_REFUSED.search(line.text)), 0)
    origins = [
        (line.last if line.last < refused else line.number, word)
        for line in log.lines
        if line.number < refused
        for word, pattern in _KERNEL_ORIGINS.items()
        if pattern.search(line.text)
    ]
    return max(origins)[1] if origins else None


def _linux(facts: Facts) -> Optional[str]:
    return system_of(facts.os) if facts.os else None


def _targets(text: Optional[str]) -> Optional[tuple[str, ...]]:
    return tuple(text.replace(",", " ").split()) if text else None


def _about(facts: Facts, text: str) -> set[str]:
    stated = " ".join(filter(None, (facts.gpu, facts.rocm, facts.torch and f"torch {facts.torch}", facts.os)))
    words = {word for word, pattern in _ABOUT.items() if _in(pattern, stated) or _in(pattern, text)}
    words |= {word for word, pattern in _STATED.items() if _in(pattern, stated)}
    if facts.true_gfx or facts.effective_gfx:
        words.add("amd")
    # Many logs of PyTorch contain lines of TensorBoard, which mention TensorFlow.
    if "torch" in words and not _in(_ABOUT["tensorflow"], stated):
        words.discard("tensorflow")
    if _LINUX.search(facts.os or "") and not _in(_STATED["windows"], stated):
        words.discard("windows")
    return words


def _in(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def _chip(facts: Facts) -> Iterable[str]:
    gfx = facts.true_gfx or facts.effective_gfx
    row = gpus.target(gfx)
    family = row.family if row else _family_of_pattern(gfx)
    if family in _FAMILIES:
        yield _FAMILIES[family]
    if row and row.apu is True:
        yield "apu"
    if row and row.rocm:
        yield "rocm-lists"


def _family_of_pattern(gfx: Optional[str]) -> Optional[str]:
    """Return the family of a name like "gfx103x", or None if its targets have several families."""
    if not gfx or "x" not in gfx[3:]:
        return None
    pattern = "gfx" + gfx[3:].replace("x", "?")
    families = {row.family for row in gpus.all_targets() if fnmatchcase(row.gfx, pattern)}
    return families.pop() if len(families) == 1 else None


def _overridden(facts: Facts) -> bool:
    if any(name.startswith(OVERRIDE) for name in facts.env):
        return True
    return bool(facts.true_gfx and facts.effective_gfx and facts.true_gfx != facts.effective_gfx)


def _override(facts: Facts, text: str) -> Iterable[str]:
    if not _overridden(facts):
        if facts.true_gfx:
            yield "no-override"
        return
    yield "override"
    named = set(_NAMED.findall(text))
    if named and facts.effective_gfx not in named and facts.true_gfx in named:
        yield "override-ignored"
    held = {"torch": _targets(facts.torch_targets), "rocblas": _targets(facts.rocblas_targets)}
    targets = {name: Fact(list(found)) for name, found in held.items() if found}
    if targets and facts.true_gfx != facts.effective_gfx and libraries_with_code(targets, facts.true_gfx):
        yield "override-needless"


def _version(text: Optional[str]) -> Optional[tuple[int, int]]:
    """Return the first version in a text as (major, minor). "5.x" is (5, 0)."""
    match = _VERSION.search(text or "")
    return (int(match[1]), 0 if match[2] == "x" else int(match[2])) if match else None


def _version_of_wheel(facts: Facts) -> Optional[tuple[int, int]]:
    """Return the ROCm for which torch was built, from the version of torch ("1.13.1+rocm5.2")."""
    match = _ROCM.search(facts.torch or "")
    return _version(match[1]) if match else None


def _torch_version(facts: Facts) -> Optional[tuple[int, int]]:
    return _version(_ROCM.sub("", facts.torch or ""))


def _versions(combination: Combination, of_torch: bool) -> Iterable[str]:
    if of_torch and combination.torch_number:
        yield "torch-2" if version_numbers(combination.torch_number) >= (2, 0) else "torch-1"
    if combination.rocm:
        yield f"rocm-{min(max(version_numbers(combination.rocm)[0], 4), 6)}"
    if combination.build:
        yield f"torch-{combination.build}"


def _dotted(number: Optional[tuple[int, int]]) -> Optional[str]:
    return f"{number[0]}.{number[1]}" if number else None


def _find_restricted(facts: Facts) -> bool:
    return any(
        name in _RESTRICTING or bool(_SWITCHES.match(name) and _OFF.fullmatch(value.strip()))
        for name, value in facts.env.items()
    )


def primitive_in(log: Log) -> Optional[str]:
    """Return the last operation of a vendor library in the log, e.g. "batch-norm", or None.

    The last operation is nearest to the failure, because a traceback prints the outermost frame first.
    """
    for line in reversed(log.lines):
        for word, pattern in _LINES.items():
            if pattern.search(line.text):
                return word
    return None
