"""Convolution kernels of rocmprobe for GPUs, compiled on the user's machine.

This module does not use torch. Tensors are described by address and strides. A device is described by its
index, N in torch's ``cuda:N``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Optional

from rocmprobe.geometry import Geometry
from rocmprobe.kernels import gate, self_test
from rocmprobe.kernels.compilation import cache_folder
from rocmprobe.kernels.families.extents import Strides
from rocmprobe.kernels.families.family import Option
from rocmprobe.kernels.gate import KernelVerdict
from rocmprobe.kernels.launches import Launch
from rocmprobe.kernels.module import KernelDevice, Module
from rocmprobe.kernels.self_test import SelfTest
from rocmprobe.kernels.sources import DTYPES, FAMILIES, source_hash
from rocmprobe.kernels.unavailable import KernelsUnavailable
from rocmprobe.runtimes import loaded

__all__ = [
    "DTYPES", "NAMES", "KernelsUnavailable", "Module", "Option", "SelfTest",
    "available", "convolution", "options", "verdict",
]  # fmt: skip

#: Names of the kernel families. The bypass has an algorithm of the same name for each family.
NAMES = tuple(FAMILIES)
_MOST_PREPARED = 4096


def available(index: int, dtype: str) -> Module:
    """Compile and load the convolution kernels for ``dtype`` (e.g. "float32") on a device.

    Only the kernels that passed the self-test on this machine are loaded. With
    ``ROCMPROBE_BYPASS_KERNELS=1``, a missing self-test runs first, in a child process.

    Raises:
        KernelsUnavailable: if the kernels cannot or must not be used, with the reason.
    """
    try:
        wish = gate.chosen(os.environ)
    except ValueError as error:
        raise KernelsUnavailable(str(error)) from None
    if wish == "off":
        raise KernelsUnavailable(f"{gate.VARIABLE}=0")
    device = _device(index)
    folder = cache_folder(os.environ)
    identity = self_test.identity(device, dtype)
    found = gate.read(folder, identity)
    if found.state == "untried" and wish == "try":
        found = _tried_in_child(device, dtype, folder)
        gate.write(folder, identity, found)
    if found.state != "passed":
        raise KernelsUnavailable(found.refusal())
    return Module(device, dtype, passed=found.kernels)


def options(module: Module, name: str, direction: str, plain: Geometry, cap: int) -> list[Option]:
    """Return the loaded kernels of the family ``name`` for a convolution.

    Each kernel needs at most ``cap`` bytes of workspace.
    """
    found = FAMILIES[name].options(direction, plain, module.dtype, cap, module.device.compute_units)
    return [
        replace(each, variant=f"{each.variant} {source_hash()}")
        for each in found
        if each.kernels <= module.usable
    ]


def convolution(
    module: Module,
    name: str,
    direction: str,
    plain: Geometry,
    variant: str,
    workspace_bytes: int,
    addresses: Mapping[str, int],
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    stream: int,
) -> None:
    """Queue the kernels that compute one direction of a convolution on a stream.

    ``variant`` and ``workspace_bytes`` are fields of an :class:`Option`. ``addresses`` has the keys "image"
    (input of the convolution), "weight", "feature" (output), "workspace" and "bias" (0 without a bias).
    ``strides`` are the strides of image, weight and feature, in elements. The bias is contiguous.

    Raises:
        KernelsUnavailable: if the kernels do not support the convolution or its strides, or a launch fails.
    """
    has_bias = addresses["bias"] != 0
    prepared = _prepared(name, direction, plain, module.dtype, variant, strides, has_bias, workspace_bytes)
    if prepared is None:
        raise KernelsUnavailable(f"{name}: its kernels cannot address tensors of these sizes and strides")
    module.launch(prepared, addresses, stream)


def verdict(index: int, dtype: str) -> SelfTest:
    """Run the self-test of the kernels in this process, and store the result for :func:`available`.

    Raises:
        KernelsUnavailable: if the kernels cannot be compiled or loaded.
    """
    return self_test.run_and_record(_device(index), dtype, cache_folder(os.environ))


@cache
def _device(index: int) -> KernelDevice:
    return KernelDevice(index)


@lru_cache(maxsize=_MOST_PREPARED)
def _prepared(
    name: str,
    direction: str,
    plain: Geometry,
    dtype: str,
    variant: str,
    strides: tuple[tuple[int, ...], ...],
    has_bias: bool,
    workspace_bytes: int,
) -> Optional[tuple[Launch, ...]]:
    image, weight, feature = map(Strides.of, strides)
    kernel = variant.partition(" ")[0]
    return FAMILIES[name].prepare(
        direction, plain, dtype, kernel,
        image=image, weight=weight, feature=feature, has_bias=has_bias, cap=workspace_bytes,
    )  # fmt: skip


def _tried_in_child(device: KernelDevice, dtype: str, folder: Optional[Path]) -> KernelVerdict:
    limits = [str(os.getpid()), str(gate.CHILD_LIMIT)]
    about = [str(device.index), dtype, str(folder or ""), loaded.hip(), loaded.hiprtc()]
    _announce(
        f"testing its {dtype} convolution kernels on GPU {device.index}, once. This takes up to "
        f"{gate.TIME_LIMIT // 60} minutes. {gate.VARIABLE}=0 switches the kernels and the test off."
    )
    return gate.tried_in_child(["-m", __name__, *limits, *about])


def _announce(text: str) -> None:
    if sys.stderr:
        with suppress(OSError, ValueError):
            print(f"rocmprobe: {text}", file=sys.stderr, flush=True)
