"""Conditions: words that describe a machine and a log, and on which signatures and remedies depend.

Each condition has the sentence that proves it. The sentence is "" if the condition needs no proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Optional

from rocmprobe.explain.facts import Facts, gfx_of_card
from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.compatibility import Combination, answers, libraries_with_code
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.stacks import system_of
from rocmprobe.model.results import Fact

_FAMILIES = {
    "RDNA1": "rdna1", "RDNA2": "rdna2", "RDNA3": "rdna3", "RDNA3.5": "rdna3.5", "RDNA4": "rdna4",
    "Vega": "vega", "GCN": "gcn", "CDNA": "cdna", "CDNA2": "cdna", "CDNA3": "cdna", "CDNA4": "cdna",
}  # fmt: skip
#: (condition if the relation holds, condition if it does not hold), keyed by relation.
_RELATIONS = {
    "override-is-accepted": ("", "override-invalid"),
    "silicon-fits-override": ("override-covers", "override-lacks"),
    "torch-is-for-amd": ("", "wrong-torch"),
    "torch-has-code": ("torch-holds", "torch-lacks"),
    "wheel-has-code": ("wheel-holds", "wheel-lacks"),
    "amd-wheel-has-code": ("", "wheel-lacks"),
    "package-has-code": ("wheel-holds", "wheel-lacks"),
    "runtime-knows-chip": ("", "rocm-before-gpu"),
    "kernel-knows-chip": ("", "kernel-before-gpu"),
    "rocblas-has-kernels": ("rocblas-holds", "rocblas-lacks"),
    "first-device-is-a-card": ("", "apu-first"),
    "miopen-compiles-primitive": ("", "kernel-does-not-compile"),
}
#: Patterns for the log and the facts, keyed by condition.
_ABOUT = {
    "tensorflow": r"tensorflow|stream_executor",
    "llama": r"\bggml|llama\.cpp|llama[-_](?:cli|server|bench)|[Oo]llama|llama runner",
    "other-program": r"\bjulia\b|AMDGPU\.jl|OpenCL|\bcl[A-Z]\w+\(|darktable|hashcat|[Bb]lender"
    r"|onnxruntime|[Mm]igraphx|jaxlib|[Cc][Tt]ranslate2|LAMMPS|GROMACS|OpenVX",
    "zluda": r"(?i:zluda)",
    "windows": r"\b[Ww]indows (?:1[01]|[Ss]erver)|\b[A-Z]:[\\/]|(?i:0xc000[0-9a-f]{4})|\.dll\b"
    r"|\b322122[56][0-9]{3}\b|WinError",
    "wsl": r"\bWSL|microsoft-standard|/dev/dxg|librocdxg",
    "container": r"docker|Docker|podman|singularity|apptainer|kubernetes|\bLXC\b|rocm/py?t|distrobox",
    "cluster": r"[Ss]lurm|\bsrun\b|/gpfs/|/lustre/|\bHPC\b",
    "torch": r"(?i:\btorch|pytorch|kernel errors might be asynch)|RuntimeError: HIP error|miopenStatus",
    "amd": r"gfx[0-9]{3}|amdgpu|ROC[mkr]|rocm|\bHIP\b|\bhip[A-Z]|MIOpen|miopen|Radeon|Instinct|\bRX \d"
    r"|\bAMD\b",
    "nvidia": r"GeForce|\b[RG]TX ?\d|NVIDIA (?:[AHLB]\d{2,3}\b|Tesla|TITAN|Quadro)|NVIDIA-SMI \d|\bsm_\d\d"
    r"|CUDNN_STATUS|libcudnn|Nvidia driver version: \d",
    "rocm-torch": r"torch\S{0,20}(?: version)?[:= ]{0,3}\S{0,16}\+rocm\d|ROCM used to build PyTorch: \d",
    "miopen": r"MIOpen|miopen",
    "training": r"\b[Ee]poch|\bloss\b|backward\(",
    "jit": r"/comgr-|comgr|hiprtc|HIPRTC|miopen-tmp|hip_build_utils|\[Build(?:Hip|Ocl|Asm)\]",
    "triton": r"[Tt]riton|_inductor\b|hip_utils",
    "building": r"^\[ *[0-9]+%\] (?:Building|Linking)|^\[[0-9]+/[0-9]+\] |CMakeFiles|ninja:|make\[\d\]"
    r"|setup\.py|Building wheel",
    "own-build": r"\+git[0-9a-f]{6}|PYTORCH_ROCM_ARCH|(?i:self-built|built from source)|external-builds"
    r"|TheRock[/\\]",
    "nightly": r"\.dev20[0-9]{6}|a0\+rocm|rocm[0-9.]+(?:a|rc)20[0-9]{6}|[0-9]a20[0-9]{6}",
    "apt": r"have unmet dependencies|^E: |dpkg: error|held broken packages",
    "system-include": r"-isystem[ =]?/usr/include(?![\w/])",
}
#: PyTorch's collect_env prints these lines if it was built without ROCm.
_NO_AMD = re.compile(
    r"(?:ROCM used to build PyTorch|HIP runtime version|MIOpen runtime version): N/A|hip: None"
)
#: Patterns for the facts only. In a log, these words can have another meaning.
_STATED = {
    "windows": r"(?i:windows)",
    "container": r"(?i:container|docker)",
    "cluster": r"(?i:slurm|cluster|HPC)",
}
_LINUX = re.compile(r"(?i)linux|ubuntu|debian|fedora|arch|manjaro|gentoo|nix|suse|rhel|centos|mint|pop!_os")
#: In these messages, a process names the ISA that it uses for its device. A working override changes it.
_NAMED = re.compile(
    r"(?:Raw device name: |generated when compiling for |for GPU arch : |gcnArchName\W+)(gfx[0-9a-f]+)"
)
#: llama.cpp prints the number of each device, and the number of the device that failed.
_NUMBERED = re.compile(r"[Dd]evice +(\d+) *[:=].{0,80}?\b(gfx[0-9a-f]{3,4})\b")
_CURRENT = re.compile(r"current device: (\d+)")
#: Integrated GPUs share one generic name. Names of cards contain a series or model.
_APU = re.compile(r"(?i)\biGPU\b|\bAPU\b|integrated|Ryzen \d")
_CARD = re.compile(r"\bRX ?\d{3,4}|Radeon (?:VII|Pro|PRO)|Instinct|\bVega \d\d\b|\bMI\d{2,3}|\bRX 9000")
#: The name of the device that a program uses.
_DEVICE_NAME = re.compile(r"(?i)device name\W+(?:is )?(.{4,60})|get_device_name\([^)]*\)\W+(.{4,60})")
#: Names of packages and indexes that say for which targets they were built.
_PACKAGE = re.compile(
    r"(?:rocm_sdk_libraries[_-]|device[_-]|/v2/|rocm[-_])(gfx[0-9]{2,4}[0-9a-fxX]{0,2})(?=[-_\]./ ]|$)"
    r"|rocm-sdk targets\s+(gfx[0-9a-f;]+)"
)
_OFF = re.compile(r"0|off|no|false|disabled?", re.IGNORECASE)
_RESTRICTING = ("MIOPEN_DEBUG_FIND_ONLY_SOLVER", "MIOPEN_DEVICE_ARCH", "MIOPEN_DEVICE_CU")
_SWITCHES = re.compile(
    r"MIOPEN_DEBUG_(?:CONV_\w+|AMD_\w*WINOGRAD\w*|GCN_ASM_KERNELS|HIP_KERNELS|OPENCL_CONVOLUTIONS)$"
)
_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
#: Switches for experiments: (variable, pattern of the value, condition).
_EXPERIMENTS = (
    ("TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "1", "aotriton-experimental"),
    ("PYTORCH_TUNABLEOP_ENABLED", "1", "tunableop"),
    ("PYTORCH_HIP_ALLOC_CONF", ".*expandable_segments:True.*", "expandable-segments"),
    ("PYTORCH_CUDA_ALLOC_CONF", ".*expandable_segments:True.*", "expandable-segments"),
    ("PYTORCH_ALLOC_CONF", ".*expandable_segments:True.*", "expandable-segments"),
)
_VERSION = re.compile(r"(?<![0-9.])([0-9]{1,2})\.([0-9]{1,2}|x)(?![0-9])")
_ROCM = re.compile(r"rocm[ _-]?v?([0-9]{1,2}(?:\.(?:[0-9]{1,2}|x))*)", re.IGNORECASE)
_KERNEL = re.compile(r"(?i)(?:linux|kernel|\()[ v-]*(\d\.\d{1,2}(?:\.\d{1,3})?)(?![\d.])")
_OTHER_BUILDS = (
    ("+cu", re.compile(r"\+cu[0-9]{2}|cuda", re.I)),
    ("+cpu", re.compile(r"\+cpu|\bcpu\b", re.I)),
)
#: Operations of the vendor library in PyTorch's frames or MIOpen's log. The first match counts.
_PRIMITIVES: Mapping[str, re.Pattern[str]] = {
    "transposed-convolution": re.compile(r"conv_transpose[123]d|ConvTranspose[123]d|slow_conv_transpose"),
    "batch-norm": re.compile(r"modules/batchnorm\.py|\bbatch_norm\b|BatchNorm[123]?d?\b|miopen_batch_norm"),
    "rnn": re.compile(r"modules/rnn\.py|_VF\.(?:lstm|gru|rnn_\w{4})\b|miopen_?[rR][nN][nN]|\b(?:LSTM|GRU)\("),
    "ctc-loss": re.compile(r"\bctc_loss\b|CTCLoss"),
    "convolution": re.compile(
        r"modules[/\\]conv\.py|\bF\.conv[123]d\b|_conv_forward|naive_conv|convolutionocl"
    ),
}

#: All conditions.
CONDITIONS = frozenset({
    *_FAMILIES.values(), *_ABOUT, *_PRIMITIVES, *(word for words in _RELATIONS.values() for word in words),
    *(word for *_, word in _EXPERIMENTS), "apu", "official-lacks", "override", "no-override",
    "override-ignored", "override-needless", "find-restricted", "visible-devices", "apu-beside-card",
    "other-device", "own-checks",
}) - {""}  # fmt: skip


def conditions(facts: Facts, text: str) -> Mapping[str, str]:
    """Return the sentence that proves each condition that holds for these facts and this log."""
    found = dict.fromkeys((*_about(facts, text), *_chip(facts), *_several(facts, text)), "")
    if primitive := _primitive(text):
        found[primitive] = ""
    found.update(_variables(facts, text))
    combination = _combination(facts, found, text)
    for each in answers(combination):
        words = _RELATIONS.get(each.relation.name)
        if (
            words
            and (word := words[not each.holds])
            and not (word.startswith("wheel") and "own-build" in found)
        ):
            found[word] = each.says
    return found


def _about(facts: Facts, text: str) -> set[str]:
    stated = " ".join(filter(None, (facts.gpu, facts.rocm, facts.torch and f"torch {facts.torch}", facts.os)))
    text = _NO_AMD.sub("", text)
    words = {word for word, pattern in _ABOUT.items() if _in(pattern, stated) or _in(pattern, text)}
    words |= {word for word, pattern in _STATED.items() if _in(pattern, stated)}
    if facts.true_gfx or facts.effective_gfx:
        words.add("amd")
    # Many logs of PyTorch contain lines of TensorBoard, which mention TensorFlow.
    if "torch" in words and not _in(_ABOUT["tensorflow"], stated):
        words.discard("tensorflow")
    if _LINUX.search(facts.os or "") and not _in(_STATED["windows"], stated):
        words.discard("windows")
    if "wsl" in words:
        words.discard("windows")
    return words


def _in(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.MULTILINE) is not None


def _chip(facts: Facts) -> Iterator[str]:
    gfx = facts.true_gfx or facts.effective_gfx
    row = gpus.target(gfx)
    family = row.family if row else _family_of_pattern(gfx)
    if family in _FAMILIES:
        yield _FAMILIES[family]
    if row:
        yield row.gfx
    if row and row.apu is True:
        yield "apu"
    if row and not row.wheels:
        yield "official-lacks"


def _family_of_pattern(gfx: Optional[str]) -> Optional[str]:
    """Return the family of a name like "gfx103x", or None if its targets have several families."""
    if not gfx or "x" not in gfx[3:]:
        return None
    pattern = "gfx" + gfx[3:].replace("x", "?")
    families = {row.family for row in gpus.all_targets() if fnmatchcase(row.gfx, pattern)}
    return families.pop() if len(families) == 1 else None


def _variables(facts: Facts, text: str) -> Iterator[tuple[str, str]]:
    env = facts.env
    posing = facts.true_gfx and facts.effective_gfx and facts.true_gfx != facts.effective_gfx
    if posing or any(name.startswith(OVERRIDE) for name in env):
        named = set(_NAMED.findall(text))
        value = env.get(OVERRIDE, "another chip")
        yield "override", f"{OVERRIDE} selects {value}"
        if named and facts.effective_gfx not in named and facts.true_gfx in named:
            yield "override-ignored", f"an override is set, but the program names {facts.true_gfx}"
        held = {"torch": _targets(facts.torch_targets), "rocblas": _targets(facts.rocblas_targets)}
        targets = {name: Fact(list(found)) for name, found in held.items() if found}
        if targets and posing and libraries_with_code(targets, facts.true_gfx):
            yield "override-needless", f"the installed libraries have code for {facts.true_gfx} itself"
    elif facts.true_gfx:
        yield "no-override", ""
    for name, value in env.items():
        if name in _RESTRICTING or (_SWITCHES.match(name) and _OFF.fullmatch(value.strip())):
            yield "find-restricted", f"{name}={value} switches solvers off"
        if name in _VISIBLE:
            yield "visible-devices", f"{name}={value} selects the visible GPUs"
    for name, pattern, word in _EXPERIMENTS:
        if re.fullmatch(pattern, env.get(name, "")):
            yield word, f"{name}={env[name]} is set"


def _several(facts: Facts, text: str) -> Iterator[str]:
    for match in _DEVICE_NAME.finditer(text):
        used = gfx_of_card(match[1] or match[2])
        if used and facts.true_gfx and used != facts.true_gfx:
            yield "other-device"
    by_number = dict(_NUMBERED.findall(text))
    rows = {number: gpus.target(gfx) for number, gfx in by_number.items()}
    kinds = {row.apu is True for row in rows.values() if row}
    if kinds == {True, False} or (_APU.search(facts.gpu or "") and _CARD.search(facts.gpu or "")):
        yield "apu-beside-card"
    failing = [rows.get(number) for number in _CURRENT.findall(text)]
    if len(rows) > 1 and any(row is not None and row.apu is True for row in failing):
        yield "apu-first"


def _primitive(text: str) -> Optional[str]:
    """Return the operation that is named last, because a traceback prints the outermost frame first."""
    last = {
        word: max((match.start() for match in pattern.finditer(text)), default=-1)
        for word, pattern in _PRIMITIVES.items()
    }
    best = max(last, key=lambda word: last[word])
    return best if last[best] >= 0 else None


def _combination(facts: Facts, found: Mapping[str, str], text: str) -> Combination:
    of_torch = "torch" in found
    wheel = _version(match[1]) if (match := _ROCM.search(facts.torch or "")) else None
    torch = _version(_ROCM.sub("", facts.torch or "")) if of_torch else None
    other = next((suffix for suffix, pattern in _OTHER_BUILDS if pattern.search(facts.torch or "")), "")
    suffix = f"+rocm{wheel}" if wheel else other
    package = _PACKAGE.search(text)
    kernel = _KERNEL.search(facts.os or "")
    system = "windows" if "windows" in found else "wsl" if "wsl" in found else None
    return Combination(
        amd="amd" in found,
        primitive=_primitive(text),
        package=(package[1] or package[2].replace(";", " ")) if package else None,
        gfx=facts.true_gfx,
        effective=facts.effective_gfx,
        override=None if "windows" in found else facts.env.get(OVERRIDE),
        torch=f"{torch or ''}{suffix}" or None if of_torch or suffix else None,
        rocm=wheel or _version(facts.rocm),
        kernel=kernel[1] if kernel else None,
        system=system or (system_of(facts.os) if facts.os else None),
        torch_targets=_targets(facts.torch_targets),
        rocblas_targets=_targets(facts.rocblas_targets),
        first=facts.first_gpu,
    )


def _targets(text: Optional[str]) -> Optional[tuple[str, ...]]:
    return tuple(text.replace(",", " ").split()) if text else None


def _version(text: Optional[str]) -> Optional[str]:
    """Return the first version in a text as "MAJOR.MINOR". "5.x" is "5.0"."""
    match = _VERSION.search(text or "")
    return f"{match[1]}.{0 if match[2] == 'x' else int(match[2])}" if match else None
