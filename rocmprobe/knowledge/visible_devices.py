"""Device numbers (0, 1, ...) that GPUs get in a program under the environment variables that select devices.

ROCR_VISIBLE_DEVICES selects GPU nodes of KFD and changes their order. HIP_VISIBLE_DEVICES selects some of
these GPUs. If HIP_VISIBLE_DEVICES is unset or empty, CUDA_VISIBLE_DEVICES is used instead. torch's ``cuda:N``
is HIP's number N.

Sources, not tested on hardware: ROCR-Runtime core/runtime/amd_filter_device.cpp (RvdFilter) and
amd_topology.cpp (BuildTopology), CLR rocclr/device/rocm/rocdevice.cpp (Device::init).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from rocmprobe.model.results import Fact, Gpu, Machine

ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
#: Variables that can hide GPUs from a program.
MASKS = (ROCR, HIP, CUDA, "GPU_DEVICE_ORDINAL")
#: Lengths of tokens that ROCr compares to UUIDs. The longest token is "GPU-" and the 16 digits of the unique
#: id.
_SHORTEST_UUID, _LONGEST_UUID = 5, 20
_PLAIN = re.compile(r"0|[1-9]\d{0,8}")
_C_NUMBER = re.compile(r"[+-]?(?:0X[0-9A-F]{1,8}|\d{1,9})")


def uuid_of(unique_id: int) -> Optional[str]:
    """Return the UUID that ROCr makes from the unique id of a KFD node, or None for the id 0."""
    # ROCm shows the id 0 as "GPU-XX".
    return f"GPU-{unique_id:016x}" if unique_id else None


def chosen_by_rocr(value: Optional[str], uuids: Sequence[Optional[str]]) -> tuple[int, ...]:
    """Return the positions in ``uuids`` that a value of ROCR_VISIBLE_DEVICES selects.

    The positions are in the order in which the value lists the GPUs.

    The value lists numbers in C's notation and beginnings of UUIDs. The list ends at the first unknown or
    repeated GPU. An empty value hides all GPUs.
    """
    if value is None:
        return tuple(range(len(uuids)))
    numbers: list[int] = []
    for token in (part.strip().upper() for part in value.split(",")[: len(uuids)]):
        at = _by_uuid(token, uuids) if token.startswith("G") else _number_in_c(token)
        if at is None or not 0 <= at < len(uuids) or at in numbers:
            break
        numbers.append(at)
    return tuple(numbers)


def _by_uuid(token: str, uuids: Sequence[Optional[str]]) -> Optional[int]:
    if not _SHORTEST_UUID <= len(token) <= _LONGEST_UUID:
        return None
    alike = [at for at, uuid in enumerate(uuids) if uuid and uuid.upper().startswith(token)]
    return alike[0] if len(alike) == 1 else None


def _number_in_c(token: str) -> Optional[int]:
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
    """Return the positions in ``uuids`` that a value of HIP_VISIBLE_DEVICES selects.

    Each item of the value is a plain number, or a part of a UUID. The part must contain "GPU-". The list ends
    at the first unknown GPU. Repeated GPUs are skipped. Without a value, all GPUs are selected.
    """
    if not value:
        return tuple(range(len(uuids)))
    numbers: list[int] = []
    for token in value.split(","):
        at: Optional[int] = int(token) if _PLAIN.fullmatch(token) else None
        if "GPU-" in token:
            at = next((place for place, uuid in enumerate(uuids) if uuid and token in uuid), None)
        if at is None or at >= len(uuids):
            break
        if at not in numbers:
            numbers.append(at)
    return tuple(numbers)


def numbered(uuids: Sequence[Optional[str]], variables: Mapping[str, str]) -> tuple[int, ...]:
    """Return the indices into ``uuids`` of HIP's GPUs 0, 1, 2, ... under these environment variables."""
    shown = chosen_by_rocr(variables.get(ROCR), uuids)
    by_hip = chosen_by_hip(variables.get(HIP) or variables.get(CUDA), [uuids[at] for at in shown])
    return tuple(shown[at] for at in by_hip)


def with_numbers(gpus: Sequence[Gpu], variables: Mapping[str, str]) -> list[Gpu]:
    """Return ``gpus`` with the fields ``order`` and ``index`` set for these environment variables.

    ``gpus`` must be in ROCr's order.
    """
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


def visible(machine: Machine) -> list[Gpu]:
    """Return the AMD GPUs that torch can use, in torch's order. GPUs with an unknown ``order`` come last."""
    gpus = list(machine.amd_gpus)
    variables = {name: str(fact.value) for name, fact in machine.variables.items() if fact.value is not None}
    if machine.value("kfd.unlisted"):
        gpus = [gpu for gpu in gpus if gpu.cus.value is not None]
    gpus = sorted(gpus, key=lambda gpu: (gpu.order.value is None, gpu.order.value or 0))
    return [gpus[at] for at in numbered([gpu.uuid.value for gpu in gpus], variables)]


def in_processor(gpu: Gpu) -> bool:
    return bool(gpu.apu.value)


def mask_for(machine: Machine, wanted: Iterable[Gpu]) -> Optional[str]:
    """Return the variable, as NAME=VALUE, that shows a program only the GPUs ``wanted``, or None if unknown.

    If the variable is ROCR_VISIBLE_DEVICES, the user must unset HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES.
    """
    gpus = list(wanted)
    orders = [gpu.order.value for gpu in gpus]
    if gpus and all(order is not None for order in orders):
        return f"{ROCR if ROCR in machine.variables else HIP}={','.join(map(str, sorted(orders)))}"
    uuids = [gpu.uuid.value for gpu in gpus]
    return f"{ROCR}={','.join(map(str, uuids))}" if gpus and all(uuids) else None


def mask_of(machine: Machine, gpu: Gpu) -> dict[str, str]:
    """Return a value of HIP_VISIBLE_DEVICES that shows a program only ``gpu``, or {} if unknown.

    Other variables must stay unchanged.
    """
    if gpu.index.value is None:
        return {}
    values = (machine.variables.get(name, Fact()).value for name in (HIP, CUDA))
    value = next((str(value) for value in values if value), None)
    if value is None:
        return {HIP: str(gpu.index.value)}
    tokens = list(dict.fromkeys(value.split(",")))
    plain = all(_PLAIN.fullmatch(token) for token in tokens) and gpu.index.value < len(tokens)
    return {HIP: tokens[gpu.index.value]} if plain else {}


def is_mask(name: str, value: str) -> bool:
    """Return True if ``name`` is HIP_VISIBLE_DEVICES and ``value`` lists only numbers."""
    return name == HIP and all(_PLAIN.fullmatch(token) for token in value.split(","))
