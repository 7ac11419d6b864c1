"""Identity of questions, chips, software stacks and machines, and their names in a repository.

A GPU is a mapping from fact names to facts. A CPU is an empty mapping.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Optional

from rocmprobe.checks import CHECKS
from rocmprobe.model.problems import DTYPES
from rocmprobe.model.results import DIRECTIONS, GPU_IDENTITY, Fact
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.redact import redacted_text

Facts = Mapping[str, Fact]

_ISA = re.compile(r"gfx[0-9a-f]{3,8}")
_UNSAFE = re.compile(r"[^a-z0-9.]+")
_LONGEST_NAME = 80
_LONGEST_TEXT = 120
_MOST_GPUS = 64


class Question(NamedTuple):
    """A question to test, e.g. whether float32 convolution works under the setting ``default``.

    ``caller`` is the driver, "torch" or "capi".
    """

    setting: str
    caller: str
    check: str
    dtype: str
    direction: str


class Chip(NamedTuple):
    """Identity of a GPU or CPU."""

    isa: str
    pci_id: str
    revision: str
    name: str


class SoftwareStack(NamedTuple):
    """A software stack. ``override`` is the value of HSA_OVERRIDE_GFX_VERSION, or empty."""

    torch: str
    rocm: str
    miopen: str
    override: str
    simulated: str


class System(NamedTuple):
    """The machine as one run detected it."""

    os: str
    kernel: str
    driver: str
    gpus: tuple[tuple[str, ...], ...]


class MachineIdentity(NamedTuple):
    """Properties that distinguish machines.

    If the machine has a label, the kernel, the driver and some facts of the GPUs are left out.
    """

    label: str
    gpus: tuple[tuple[str, ...], ...]
    kernel: str
    driver: str
    simulated: str


def machine_of(system: System, label: str, simulated: str) -> MachineIdentity:
    """Return the identity of the machine that ``system`` describes."""
    if label:
        return MachineIdentity(label, tuple(gpu[:3] for gpu in system.gpus), "", "", simulated)
    return MachineIdentity("", system.gpus, system.kernel, system.driver, simulated)


def system_of(gpus: Sequence[Facts], facts: Facts) -> System:
    """Return the system of a run. If there is no GPU, describe the CPU instead."""
    found = tuple(sorted(tuple(word(gpu, name) for name in GPU_IDENTITY) for gpu in gpus[:_MOST_GPUS]))
    driver = word(facts, "amdgpu.version") or word(facts, "amdgpu.origin")
    if not found:
        found = (("", word(facts, "cpu.name"), "", word(facts, "cpu.cores"), ""),)
    return System(word(facts, "os.name"), _clean(word(facts, "kernel.release")), driver, found)


@lru_cache(maxsize=1024)
def _clean(release: str) -> str:
    # Users can put e.g. a host name into the release of an OS kernel.
    return redacted_text(release)


def gpu_of(
    gpus: Sequence[Facts], device: str, native_isa: Optional[str], target: Optional[Mapping[str, Any]]
) -> Facts:
    """Return the facts of the GPU that ``device`` (e.g. "cuda:1") names, or {} for the CPU.

    ``target`` is the device's entry in the results, or None.
    """
    backend = target.get("backend") if target else None
    if device == "cpu" or backend == "onednn":
        return {}
    if backend:
        vendor = "amd" if backend == "miopen" else "nvidia"
        gpus = [gpu for gpu in gpus if _value(gpu, "vendor") in (None, vendor)]
    if native_isa:
        gpus = [gpu for gpu in gpus if _value(gpu, "native_isa") in (None, native_isa)]
    name = target.get("gpu") if target else None
    named = [gpu for gpu in gpus if name and _value(gpu, "name") == name] or gpus
    digits = device.rpartition(":")[2]
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 4 else 0
    indexed = [gpu for gpu in named if _value(gpu, "index") == number]
    placed = [gpu for gpu in gpus[number : number + 1] if gpu in named]
    return next(iter([*indexed, *placed, *named]), {})


def chip_of(gpu: Facts, device: str, native_isa: Optional[str], facts: Facts) -> Chip:
    if not gpu and not native_isa:
        return Chip("cpu" if device == "cpu" else "", "", "", word(facts, "cpu.name"))
    isa = text(native_isa or word(gpu, "native_isa"), 40)
    return Chip(isa, word(gpu, "pci_id"), word(gpu, "revision"), word(gpu, "name"))


#: Values that sort first, keyed by the field of ``Question``. Other values follow alphabetically.
_FIRST: Mapping[str, tuple[str, ...]] = {
    "setting": ("default", "as-found"),
    "caller": ("torch", "capi"),
    "check": tuple(CHECKS),
    "dtype": tuple(DTYPES.values()),
    "direction": DIRECTIONS,
}
_PLACES = {part: {name: place for place, name in enumerate(names)} for part, names in _FIRST.items()}


def word_order(part: str, name: str) -> tuple[int, str]:
    """Return a sort key for ``name`` (e.g. "float16") among the values of ``part`` (e.g. "dtype")."""
    places = _PLACES[part]
    return places.get(name, len(places)), name


def in_order(question: Question) -> tuple[tuple[int, str], ...]:
    """Return a sort key for a question."""
    return tuple(word_order(part, name) for part, name in zip(Question._fields, question))


def chip_name(native_isa: Any, device: str) -> str:
    """Return the folder name of a chip: a native ISA, "cpu", "nvidia" or "unknown"."""
    if isinstance(native_isa, str) and _ISA.fullmatch(native_isa):
        return native_isa
    return "cpu" if device.partition(":")[0] == "cpu" else "nvidia" if not native_isa else "unknown"


def stack_name(facts: Facts, gpu: Facts) -> str:
    """Return a stack's folder name, e.g. "torch-2.12.0-rocm10.1.0-as-gfx1030".

    The ending "-as-ISA" means that an override changes the chip's ISA.
    """
    torch, miopen = _text_or_none(facts, "torch.version"), _text_or_none(facts, "capi.miopen")
    hip = _text_or_none(facts, "capi.hip") or _text_or_none(facts, "hip.version")
    if torch:
        name = safe_name(f"torch-{torch}")
    elif miopen:
        name = safe_name(f"miopen-{miopen}" + (f"-hip-{hip}" if hip else ""))
    else:
        name = "unknown"
    native, effective = _isa(gpu, "native_isa"), _isa(gpu, "effective_isa")
    return f"{name}-as-{effective}" if effective and native and effective != native else name


def safe_name(name: str) -> str:
    """Return ``name`` in a form that is safe in paths and URLs."""
    safe = _UNSAFE.sub("-", name.lower())[:_LONGEST_NAME].strip("-.")
    return re.sub(r"\.{2,}", ".", safe) or "unknown"


def stack_facts(facts: Facts, gpu: Facts) -> dict[str, Optional[str]]:
    """Return the versions, the driver and the effective ISA of a stack."""

    def first(*names: str) -> Optional[str]:
        values = [_text_or_none(facts, name) for name in names]
        return next(filter(None, values), values[-1])

    amd = _value(gpu, "vendor") == "amd"
    return {
        "torch": first("torch.version"),
        "rocm": first("rocm.version") if amd else None,
        "hip": first("torch.hip", "hip.version", "capi.hip") if amd else None,
        "miopen": first("miopen.version", "capi.miopen") if amd else None,
        "os": first("os.name"),
        "kernel": first("kernel.release"),
        "driver": _text_or_none(gpu, "driver"),
        "effective_isa": _isa(gpu, "effective_isa"),
    }


def gpu_facts(gpu: Facts) -> dict[str, Any]:
    """Return the facts of a GPU that are equal for all cards of a product."""
    names = ("native_isa", "effective_isa", "name", "pci_id", "revision", "cus", "vram_bytes")
    return {name: _scalar(_value(gpu, name)) for name in names}


def _value(facts: Facts, name: str) -> Any:
    return facts.get(name, Fact()).value


def _scalar(value: Any) -> Any:
    """Return ``value``, or its JSON text if ``value`` is a list or a mapping."""
    return value if value is None or isinstance(value, (str, int, float)) else one_line(json.dumps(value))


def _text_or_none(facts: Facts, name: str) -> Optional[str]:
    value = _value(facts, name)
    return None if value is None else str(_scalar(value))


def _isa(gpu: Facts, name: str) -> Optional[str]:
    value = _value(gpu, name)
    return value if isinstance(value, str) and _ISA.fullmatch(value) else None


def word(facts: Facts, name: str) -> str:
    """Return the value of a fact as one short line, or "" if the value is unknown."""
    return short(_value(facts, name))


def short(value: Any) -> str:
    """Return the value of a fact as one short line, or "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        # The order of targets or groups has no meaning. The digest keeps truncated lists comparable.
        words = " ".join(sorted(short(each) for each in value[:200]))
        if len(words) > _LONGEST_TEXT:
            digest = hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:8]
            return f"{text(words)} ({len(value)} items, digest {digest})"
        return text(words)
    return text(str(value) if not isinstance(value, dict) else f"{len(value)} entries")


def text(value: str, limit: int = _LONGEST_TEXT) -> str:
    """Return ``value`` as one line of at most ``limit`` characters."""
    if len(value) <= limit and value.isascii() and value.isprintable() and "  " not in value:
        return value.strip()
    return one_line(value, limit)
