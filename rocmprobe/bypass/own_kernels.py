"""The kernels of :mod:`rocmprobe.kernels` on PyTorch's tensors: whether they may be used on a device, and how
a problem is given to them. They run on torch's current stream, with a workspace of torch's allocator.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Optional

import torch

from rocmprobe.bypass.operators import capturing, lock_across_forks
from rocmprobe.geometry import Geometry
from rocmprobe.kernels import gate, self_test
from rocmprobe.kernels import rates as kernel_rates
from rocmprobe.kernels.compilation import cache_folder
from rocmprobe.kernels.families.extents import Strides
from rocmprobe.kernels.launches import Launch
from rocmprobe.kernels.module import CUDA, HIP, Device, Module
from rocmprobe.kernels.sources import DTYPES, FAMILIES
from rocmprobe.kernels.unavailable import KernelsUnavailable
from rocmprobe.runtimes import loaded

_MOST_PREPARED = 4096
#: Bytes of the copy that is measured, and the share of a GPU's memory that it takes at most at each end.
_COPIED, _SHARE_OF_GPU = 256 << 20, 1 / 48
_lock = lock_across_forks()


@dataclass
class _Kernels:
    """Those of one dtype on one device, or why there are none."""

    refusal: str
    module: Optional[Module] = None


@dataclass
class _Known:
    """What this process knows: devices by index, and kernels by device and dtype."""

    devices: dict[torch.device, Device] = field(default_factory=dict)
    kernels: dict[tuple[torch.device, str], _Kernels] = field(default_factory=dict)


_known = _Known()


def refusal(device: torch.device, dtype: str) -> str:
    """Why no kernel of ours computes ``dtype`` ("float32") on ``device``; "" where they may.

    The first question compiles and loads what the self-test has passed on this machine, and with the variable
    ``ROCMPROBE_BYPASS_KERNELS=1`` runs the self-test, in a child, where it has not been run.
    """
    return _kernels(device, dtype).refusal


def _kernels(device: torch.device, dtype: str) -> _Kernels:
    if device.type not in KINDS:
        return _Kernels("no GPU computes here")
    if dtype not in DTYPES:
        return _Kernels(f"there are none for {dtype}")
    known = _known.kernels.get((device, dtype))
    if known is None:
        if capturing(device):
            return _Kernels("a graph is being captured, in which nothing is compiled or loaded")
        with _lock:
            known = _known.kernels.get((device, dtype)) or _found_out(device, dtype)
            _known.kernels[device, dtype] = known
    return known


def state() -> dict[str, str]:
    """Of each device and dtype that was asked about, such as "cuda:0 float32": "used", or why not."""
    return {
        f"{device} {dtype}": known.refusal or "used"
        for (device, dtype), known in list(_known.kernels.items())
    }


def forget() -> None:
    """Ask anew, of the machine and the variable, when a problem comes next."""
    with _lock:
        _known.kernels.clear()


def tried(device: torch.device, dtype: str) -> self_test.Trial:
    """The self-test in this process, its verdict kept for this one and others. Raises KernelsUnavailable."""
    try:
        return self_test.tried(_device(device), dtype, cache_folder(os.environ))
    finally:
        forget()


def rates(device: torch.device) -> kernel_rates.Rates:
    """What the device reaches in kernels of our own. Raises KernelsUnavailable."""
    module = Module(_device(device), "float32")
    memory = torch.cuda.get_device_properties(device).total_memory
    size = int(min(_COPIED, memory * _SHARE_OF_GPU)) // 16 * 16
    with torch.cuda.device(device):
        ends = {name: torch.empty(size, dtype=torch.uint8, device=device) for name in ("image", "feature")}
        addresses = {"weight": 0, "bias": 0, "workspace": 0, **{k: v.data_ptr() for k, v in ends.items()}}
        stream = _stream(device)

        def timed(launches: list[Launch]) -> float:
            with module.device.modules.event() as begin, module.device.modules.event() as end:
                begin.record(stream)
                module.launch(launches, addresses, stream)
                end.record(stream)
                return end.seconds_since(begin)

        return kernel_rates.measured(timed, size)


def compute(
    family: str,
    direction: str,
    plain: Geometry,
    variant: str,
    workspace_bytes: int,
    image: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    feature: torch.Tensor,
) -> None:
    """Launch a direction of a problem by a variant of a family, with the workspace of its plan.

    Raises:
        RuntimeError: where a launch fails, and where the kernels may not be used.
    """
    dtype = str(image.dtype).rpartition(".")[2]
    known = _kernels(image.device, dtype)
    if known.module is None:
        raise RuntimeError(f"no kernels of rocmprobe for {dtype} on {image.device}: {known.refusal}")
    # A kernel takes neighbours.
    bias = None if bias is None else bias.contiguous()
    strides = image.stride(), weight.stride(), feature.stride()
    prepared = _prepared(family, direction, plain, dtype, variant, strides, bias is not None, workspace_bytes)
    if prepared is None:
        raise RuntimeError(f"{family}: the tensors lie too far apart for its kernels")
    workspace = torch.empty(max(workspace_bytes, 1), dtype=torch.uint8, device=image.device)
    addresses = {
        "image": image.data_ptr(), "weight": weight.data_ptr(), "feature": feature.data_ptr(),
        "bias": 0 if bias is None else bias.data_ptr(), "workspace": workspace.data_ptr(),
    }  # fmt: skip
    try:
        known.module.launch(prepared, addresses, _stream(image.device))
    except KernelsUnavailable as unavailable:
        raise RuntimeError(unavailable.reason) from unavailable


@lru_cache(maxsize=_MOST_PREPARED)
def _prepared(
    family: str,
    direction: str,
    plain: Geometry,
    dtype: str,
    variant: str,
    strides: tuple[tuple[int, ...], ...],
    has_bias: bool,
    workspace_bytes: int,
) -> Optional[tuple[Launch, ...]]:
    image, weight, feature = map(Strides.of, strides)
    return FAMILIES[family].prepare(
        direction, plain, dtype, variant,
        image=image, weight=weight, feature=feature, has_bias=has_bias, cap=workspace_bytes,
    )  # fmt: skip


def _found_out(device: torch.device, dtype: str) -> _Kernels:
    try:
        wish = gate.chosen(os.environ)
    except ValueError as error:
        return _Kernels(str(error))
    if wish == "off":
        return _Kernels(f"{gate.VARIABLE}=0")
    try:
        place = _device(device)
        folder = cache_folder(os.environ)
        identity = self_test.identity(place, dtype)
        verdict = gate.read(folder, identity)
        if verdict.state == "untried" and wish == "try":
            verdict = _tried_in_child(place, dtype, folder)
            gate.write(folder, identity, verdict)
        if verdict.state != "passed":
            return _Kernels(verdict.refusal())
        return _Kernels("", Module(place, dtype))
    except KernelsUnavailable as unavailable:
        return _Kernels(unavailable.reason)


def _tried_in_child(place: Device, dtype: str, folder: Optional[Path]) -> gate.Verdict:
    libraries = [loaded.hip(), loaded.hiprtc()] if place.kind == HIP else [loaded.cuda(), loaded.nvrtc()]
    limits = [str(os.getpid()), str(gate.CHILD_LIMIT)]
    about = [place.kind, str(place.index), dtype, str(folder or ""), *libraries]
    _announce(
        f"testing its {dtype} convolution kernels on GPU {place.index}, once. This takes up to "
        f"{gate.TIME_LIMIT // 60} minutes. {gate.VARIABLE}=0 switches the kernels and the test off."
    )
    return gate.tried_in_child(["-m", self_test.__name__, *limits, *about])


def _announce(text: str) -> None:
    """Print one line on stderr. A program without a working stderr goes on without the line."""
    if sys.stderr:
        with suppress(OSError, ValueError):
            print(f"rocmprobe: {text}", file=sys.stderr, flush=True)


def _device(device: torch.device) -> Device:
    if device not in _known.devices:
        _known.devices[device] = Device(KINDS[device.type](), device.index or 0)
    return _known.devices[device]


#: The runtime behind a device type of torch.
KINDS = {"cuda": lambda: HIP if torch.version.hip else CUDA}


def _stream(device: torch.device) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0
