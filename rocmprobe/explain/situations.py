"""What is known about a machine and a failure, in the words that rules and advice are written with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Optional

from rocmprobe.explain.log_facts import Facts
from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.override import holding, serves
from rocmprobe.model.results import Fact
from rocmprobe.text.log import Log

#: (silicon, what it pretends to be, first ROCm): pairs of which the tables of instructions say nothing, and
#: which fail all the same. https://github.com/ROCm/ROCm/issues/3054, https://github.com/ROCm/ROCm/issues/4051
_KNOWN_TO_FAIL = (("gfx1102", "gfx1100", 6), ("gfx1103", "gfx1100", 6), ("gfx115?", "gfx1100", 6))
_FAMILIES = {
    "RDNA1": "rdna1", "RDNA2": "rdna2", "RDNA3": "rdna3", "RDNA3.5": "rdna3.5", "RDNA4": "rdna4",
    "Vega": "vega", "GCN": "gcn", "CDNA": "cdna", "CDNA2": "cdna", "CDNA3": "cdna", "CDNA4": "cdna",
}  # fmt: skip
_VERSION = re.compile(r"(?<![0-9.])([0-9]{1,2})\.([0-9]{1,2}|x)(?![0-9])")
_ROCM = re.compile(r"rocm[ _-]?v?([0-9]{1,2}(?:\.(?:[0-9]{1,2}|x))*)", re.IGNORECASE)
_OTHER_BUILDS = (
    ("torch-cuda", re.compile(r"\+cu[0-9]{2}|cuda", re.IGNORECASE)),
    ("torch-cpu", re.compile(r"\+cpu|\bcpu\b", re.IGNORECASE)),
)
#: What shows in a log and in facts alike.
_ABOUT = {
    "tensorflow": r"tensorflow|stream_executor",
    "llama": r"\bggml|llama\.cpp|llama[-_](cli|server|bench)|ollama|llama runner",
    "windows": r"\b[Ww]indows (1[01]|[Ss]erver)|\b[A-Z]:[\\/]|0xc000[0-9a-f]{4}|\.dll\b",
    "wsl": r"\bWSL|microsoft-standard|/dev/dxg",
    "container": r"docker|Docker|podman|singularity|apptainer|kubernetes|\bLXC\b|rocm/(py)?t",
    "cluster": r"slurm|\bsrun\b|/gpfs/|/lustre/|\bNFS\b|supercomputer|\bHPC\b|shared file ?system",
    "emulated-display": r"VMware|VirtualBox|SVGA II|vmwgfx|bochs-drm",
    "virtual": r"QEMU|Hyper-V|libvirt|\bVM\b|[Vv]irtual [Mm]achine",
    "torch": r"(?i:\btorch|pytorch|HIP kernel errors might be asynch)|RuntimeError: HIP error",
    "amd": r"gfx[0-9]{3}|amdgpu|ROC[mkr]|rocm|\bHIP\b|hip[A-Z]|MIOpen|Radeon|Instinct|\bRX \d|\bAMD\b",
}
#: Words that in a log may mean anything, and in a fact do not.
_STATED = {
    "windows": r"(?i:windows)",
    "container": r"(?i:container)",
    "cluster": r"(?i:slurm|cluster)",
}
_IN_LOG = {
    "miopen": r"MIOpen|miopen",
    "training": r"\b[Ee]poch|\bloss\b|backward\(",
    "jit": r"/comgr-|comgr|hiprtc|HIPRTC|miopen-tmp|hip_build_utils|\[Build(Hip|Ocl|Asm)\]",
    "system-include": r"-isystem[ =]?/usr/include(?![\w/])",
}
_OTHER_VENDOR = (
    r"NVIDIA (GeForce|RTX|Graphics|A|H|L|Tesla)|NVIDIA-SMI \d|GeForce|\b[RG]TX \d|\bTesla\b|\b[AH]100\b"
    r"|\bsm_\d\d|\bmacOS\b|Darwin|Apple M\d"
)

_LINUX = re.compile(r"(?i)linux|ubuntu|debian|fedora|arch|manjaro|gentoo|nixos|suse|rhel|centos|mint|pop!_os")
#: Where a process names the ISA that it believes in, of the device it runs on.
_NAMED = re.compile(
    r"(?:Raw device name: |generated when compiling for |for GPU arch : |gcnArchName\W+)(gfx[0-9a-f]+)"
)
_OFF = re.compile(r"0|off|no|false|disabled?", re.IGNORECASE)
_RESTRICTING = ("MIOPEN_DEBUG_FIND_ONLY_SOLVER", "MIOPEN_DEVICE_ARCH", "MIOPEN_DEVICE_CU")
_SWITCHES = re.compile(
    r"MIOPEN_DEBUG_(CONV_\w+|AMD_\w*WINOGRAD\w*|GCN_ASM_KERNELS|HIP_KERNELS|OPENCL_CONVOLUTIONS)$"
)

#: Every word that ``situations`` may give.
KNOWN_WORDS = frozenset(
    {
        *_FAMILIES.values(), *_ABOUT, *_IN_LOG, *(word for word, _ in _OTHER_BUILDS), "foreign", "apu",
        "no-override", "override", "override-invalid", "override-lacks", "override-covers",
        "override-ignored",
        "override-needless", "torch-holds", "torch-lacks", "torch-1", "torch-2",
        "rocm-4", "rocm-5", "rocm-6", "wheel-holds", "wheel-lacks",
        "rocm-lists", "rocm-before-gpu", "find-restricted", "segv", "abort", "hang",
    }
)  # fmt: skip


def situations(facts: Facts, log: Log) -> frozenset[str]:
    """Every word of data/signatures.toml and data/causes.toml that holds, apart from signatures and kinds."""
    text = "\n".join(line.text for line in log.lines)
    about = _about(facts, text)
    return frozenset(
        {
            *_chip(facts),
            *_override(facts, text),
            *_installed(facts),
            *about,
            *_versions(facts, "torch" in about),
            *(word for word, pattern in _IN_LOG.items() if _in(pattern, text)),
            *(["find-restricted"] if _find_restricted(facts) else []),
            *([facts.exit] if facts.exit in ("segv", "abort", "hang") else []),
        }
    )


def _about(facts: Facts, text: str) -> set[str]:
    stated = " ".join(filter(None, (facts.gpu, facts.rocm, facts.torch and f"torch {facts.torch}", facts.os)))
    words = {word for word, pattern in _ABOUT.items() if _in(pattern, stated) or _in(pattern, text)}
    words |= {word for word, pattern in _STATED.items() if _in(pattern, stated)}
    if facts.true_gfx or facts.effective_gfx:
        words.add("amd")
    if "amd" not in words and (_in(_OTHER_VENDOR, stated) or _in(_OTHER_VENDOR, text)):
        words.add("foreign")
    # TensorBoard's lines are in many logs of PyTorch.
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
    """The family of a name like "gfx103x", where all targets that it matches have the same."""
    if not gfx or "x" not in gfx[3:]:
        return None
    pattern = "gfx" + gfx[3:].replace("x", "?")
    families = {row.family for row in gpus.all_targets() if fnmatchcase(row.gfx, pattern)}
    return families.pop() if len(families) == 1 else None


def _effective(facts: Facts) -> Optional[str]:
    """What the runtime believes: after an override, else the silicon."""
    return facts.effective_gfx or facts.true_gfx


def _overridden(facts: Facts) -> bool:
    """Whether an override of the ISA is known."""
    if any(name.startswith(OVERRIDE) for name in facts.env):
        return True
    return bool(facts.true_gfx and facts.effective_gfx and facts.true_gfx != facts.effective_gfx)


def _lacking(facts: Facts) -> bool:
    """Whether the silicon cannot be expected to run what was built for the effective ISA."""
    native, pretended = facts.true_gfx, facts.effective_gfx
    if not native or not pretended or native == pretended:
        return False
    rocm = _version(facts.rocm) or _version_of_wheel(facts)
    return bool(gpus.missing_features(native, pretended)) or any(
        fnmatchcase(native, chip) and pretended == other and (rocm is None or rocm[0] >= first)
        for chip, other, first in _KNOWN_TO_FAIL
    )


def _override(facts: Facts, text: str) -> Iterable[str]:
    known = gpus.target(facts.true_gfx) and gpus.target(facts.effective_gfx)
    if not _overridden(facts):
        if facts.true_gfx:
            yield "no-override"
        return
    yield "override"
    value = facts.env.get(OVERRIDE)
    if value and gpus.isa_of_override(value) is None:
        yield "override-invalid"
    if _lacking(facts):
        yield "override-lacks"
    elif known and facts.true_gfx != facts.effective_gfx:
        yield "override-covers"
    named = set(_NAMED.findall(text))
    if named and facts.effective_gfx not in named and facts.true_gfx in named:
        yield "override-ignored"


def _installed(facts: Facts) -> Iterable[str]:
    """What the code objects of the installed libraries say of the chip, whatever official builds hold."""
    named = {"torch": facts.torch_targets, "rocblas": facts.rocblas_targets}
    targets = {name: Fact(text.replace(",", " ").split()) for name, text in named.items() if text}
    if "torch" in targets and (isa := _effective(facts)):
        yield "torch-holds" if serves(targets["torch"], isa) else "torch-lacks"
    if _overridden(facts) and facts.true_gfx != facts.effective_gfx and holding(targets, facts.true_gfx):
        yield "override-needless"


def _version(text: Optional[str]) -> Optional[tuple[int, int]]:
    """The first version that a text names, as (major, minor); None if it names none. "5.x" is (5, 0)."""
    match = _VERSION.search(text or "")
    return (int(match[1]), 0 if match[2] == "x" else int(match[2])) if match else None


def _version_of_wheel(facts: Facts) -> Optional[tuple[int, int]]:
    """The ROCm that torch was built for, from its version ("1.13.1+rocm5.2")."""
    match = _ROCM.search(facts.torch or "")
    return _version(match[1]) if match else None


def _torch_version(facts: Facts) -> Optional[tuple[int, int]]:
    return _version(_ROCM.sub("", facts.torch or ""))


def _versions(facts: Facts, of_torch: bool) -> Iterable[str]:
    torch = _torch_version(facts) if of_torch else None
    rocm = _version_of_wheel(facts) or _version(facts.rocm)
    if torch:
        yield "torch-2" if torch >= (2, 0) else "torch-1"
    if rocm:
        yield f"rocm-{min(max(rocm[0], 4), 6)}"
    for word, pattern in _OTHER_BUILDS:
        if pattern.search(facts.torch or ""):
            yield word
    held = gpus.in_wheel(_effective(facts), _dotted(torch), _dotted(rocm)) if of_torch else None
    if held is not None:
        yield "wheel-holds" if held else "wheel-lacks"
    row = gpus.target(facts.true_gfx)
    listed = _version(row.rocm) if row and row.rocm.endswith("newer") else None
    if rocm and listed and rocm < listed:
        yield "rocm-before-gpu"


def _dotted(number: Optional[tuple[int, int]]) -> Optional[str]:
    return f"{number[0]}.{number[1]}" if number else None


def _find_restricted(facts: Facts) -> bool:
    return any(
        name in _RESTRICTING or bool(_SWITCHES.match(name) and _OFF.fullmatch(value.strip()))
        for name, value in facts.env.items()
    )
