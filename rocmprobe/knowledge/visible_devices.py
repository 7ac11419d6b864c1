"""Which number a program gives each GPU: the runtime's order, and the lists of devices in the environment.

ROCr takes the GPU nodes of KFD in their order, and ROCR_VISIBLE_DEVICES chooses among them and reorders them.
HIP takes what ROCr shows, and HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES where that is unset or empty,
chooses among those. torch's ``cuda:N`` is HIP's number N.

Sources: ROCR-Runtime core/runtime/amd_filter_device.cpp (RvdFilter) and amd_topology.cpp (BuildTopology), CLR
rocclr/device/rocm/rocdevice.cpp (Device::init); read, not run on hardware.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from rocmprobe.model.results import Fact, Gpu, Machine

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
#: What ROCr compares a token that begins with "G" to: "GPU-" and the 16 digits of the node's unique id.
_SHORTEST_UUID, _LONGEST_UUID = 5, 20
_PLAIN = re.compile(r"0|[1-9]\d{0,8}")
_C_NUMBER = re.compile(r"[+-]?(?:0X[0-9A-F]{1,8}|\d{1,9})")


def uuid_of(unique_id: int) -> Optional[str]:
    """The UUID that ROCr makes of the unique id of a KFD node; None of 0, which ROCm shows as "GPU-XX"."""
    return f"GPU-{unique_id:016x}" if unique_id else None


def chosen_by_rocr(value: Optional[str], uuids: Sequence[Optional[str]]) -> tuple[int, ...]:
    """The positions among ``uuids`` (one for each GPU node) that ROCR_VISIBLE_DEVICES leaves, in its order.

    None: it is not set. Empty: it hides all. A token is a number, as C reads it, or the beginning of a UUID
    that only one GPU has. The first token that names no GPU, or one that was named, ends the list.
    """
    if value is None:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for token in (part.strip().upper() for part in value.split(",")[: len(uuids)]):
        at = _by_uuid(token, uuids) if token.startswith("G") else _number_in_c(token)
        if at is None or not 0 <= at < len(uuids) or at in found:
            break
        found.append(at)
    return tuple(found)


def _by_uuid(token: str, uuids: Sequence[Optional[str]]) -> Optional[int]:
    if not _SHORTEST_UUID <= len(token) <= _LONGEST_UUID:
        return None
    alike = [at for at, uuid in enumerate(uuids) if uuid and uuid.upper().startswith(token)]
    return alike[0] if len(alike) == 1 else None


def _number_in_c(token: str) -> Optional[int]:
    """As strtol with base 0 reads it: 0x10 is sixteen, 010 is eight."""
    if not _C_NUMBER.fullmatch(token):
        return None
    digits = token.lstrip("+-")
    octal = len(digits) > 1 and digits.startswith("0") and not digits.startswith("0X")
    try:
        value = int(digits, 8 if octal else 0)
    except ValueError:
        return None
    return -value if token.startswith("-") else value


def chosen_by_hip(value: Optional[str], uuids: Sequence[Optional[str]]) -> tuple[int, ...]:
    """The positions among ``uuids`` (of the GPUs that ROCr shows) that HIP_VISIBLE_DEVICES leaves.

    Not set or empty: all. A token is a plain number without spaces, or a part of a UUID from "GPU-" on, in
    small letters. The first that names no GPU ends the list; one that was named is passed over.
    """
    if not value:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for token in value.split(","):
        at: Optional[int] = int(token) if _PLAIN.fullmatch(token) else None
        if "GPU-" in token:
            at = next((place for place, uuid in enumerate(uuids) if uuid and token in uuid), None)
        if at is None or at >= len(uuids):
            break
        if at not in found:
            found.append(at)
    return tuple(found)


def numbered(uuids: Sequence[Optional[str]], variables: Mapping[str, str]) -> tuple[int, ...]:
    """The positions among ``uuids``, one for each GPU in ROCr's own order, that HIP numbers 0, 1, 2, ...

    under these environment variables.
    """
    shown = chosen_by_rocr(variables.get(ROCR), uuids)
    by_hip = chosen_by_hip(variables.get(HIP) or variables.get(CUDA), [uuids[at] for at in shown])
    return tuple(shown[at] for at in by_hip)


def with_numbers(gpus: Sequence[Gpu], variables: Mapping[str, str]) -> list[Gpu]:
    """``gpus``, given in ROCr's order, with their ``order`` and ``index`` under ``variables``."""
    numbers = {at: number for number, at in enumerate(numbered([gpu.uuid.value for gpu in gpus], variables))}
    set_ = [f"{name}={variables[name]}" for name in (ROCR, HIP, CUDA) if name in variables]
    under = f"under {' '.join(set_)}" if set_ else "no list of devices is set"
    return [
        replace(
            gpu,
            order=Fact(at, "its place among the GPU nodes of KFD"),
            index=Fact(numbers[at], f"the order of ROCr, {under}")
            if at in numbers
            else Fact(None, f"hidden {under}"),
        )
        for at, gpu in enumerate(gpus)
    ]


def visible(machine: Machine, vendor: str) -> list[Gpu]:
    """The GPUs of a vendor that torch numbers, in that order.

    Where the kernel's order is known it counts, else the order of the facts.
    """
    gpus = [gpu for gpu in machine.gpus if gpu.vendor.value == vendor]
    variables = {name: str(fact.value) for name, fact in machine.variables.items() if fact.value is not None}
    if vendor != "amd":
        return _by_cuda(gpus, variables.get(CUDA))
    if machine.value("kfd.unlisted"):
        gpus = [gpu for gpu in gpus if gpu.cus.value is not None]
    gpus = sorted(gpus, key=lambda gpu: (gpu.order.value is None, gpu.order.value or 0))
    return [gpus[at] for at in numbered([gpu.uuid.value for gpu in gpus], variables)]


def _by_cuda(gpus: list[Gpu], value: Optional[str]) -> list[Gpu]:
    """What CUDA_VISIBLE_DEVICES names by number; a UUID is not in the facts of such a GPU, and leaves all."""
    if value is None or not re.fullmatch(r"\d{1,9}(,\d{1,9})*", value):
        return gpus
    return [gpus[int(index)] for index in value.split(",") if int(index) < len(gpus)]


def in_processor(gpu: Gpu) -> bool:
    return bool(gpu.apu.value)


def mask_for(machine: Machine, wanted: Iterable[Gpu]) -> Optional[str]:
    """The variable, as NAME=VALUE, that leaves a program only the GPUs ``wanted``; None where it is unknown.

    HIP's list, by number, where nothing else is set; else that of ROCr, which is read first and needs HIP's
    unset. By UUID where the order is not known.
    """
    gpus = list(wanted)
    orders = [gpu.order.value for gpu in gpus]
    if gpus and all(order is not None for order in orders):
        return f"{ROCR if ROCR in machine.variables else HIP}={','.join(map(str, sorted(orders)))}"
    uuids = [gpu.uuid.value for gpu in gpus]
    return f"{ROCR}={','.join(map(str, uuids))}" if gpus and all(uuids) else None


def mask_of(machine: Machine, gpu: Gpu) -> dict[str, str]:
    """HIP's variable, with what else is set left as it is, that leaves a program this GPU alone, which it now
    has under the number ``index``; empty where that is unknown, or HIP's list names GPUs by UUID."""
    if gpu.index.value is None:
        return {}
    values = (machine.variables.get(name, Fact()).value for name in (HIP, CUDA))
    value = next((str(each) for each in values if each), None)
    if value is None:
        return {HIP: str(gpu.index.value)}
    tokens = list(dict.fromkeys(value.split(",")))
    plain = all(_PLAIN.fullmatch(token) for token in tokens) and gpu.index.value < len(tokens)
    return {HIP: tokens[gpu.index.value]} if plain else {}


def is_mask(name: str, value: str) -> bool:
    """Whether a variable is a list of GPUs by number, as ``mask_of`` has it."""
    return name == HIP and all(_PLAIN.fullmatch(token) for token in value.split(","))
