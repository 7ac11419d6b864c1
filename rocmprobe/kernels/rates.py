"""Rates of a device, measured by rocmprobe's own kernels: launches, multiply-adds and copies."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from rocmprobe.kernels.launches import Launch, Pointer

SOURCES = ("rates.hip",)
_THREADS = 256
_LAUNCHES = 50
_REPEATS = 3
#: A measurement is long enough if it takes this many seconds. Until then, the work grows by this factor.
_LONG_ENOUGH, _GROWTH = 2e-3, 4
_ADDS_A_ROUND = 64
_MOST_ROUNDS = 1 << 14
_FLOAT4_A_BLOCK = 1024


class RatesArguments(ctypes.Structure):
    """Arguments of the kernels. ``count`` is the number of 16-byte values to copy."""

    _fields_ = [
        ("target", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        ("count", ctypes.c_int32),
        ("rounds", ctypes.c_int32),
        ("factor", ctypes.c_float),
        ("summand", ctypes.c_float),
    ]


STRUCTURES = (RatesArguments,)
_POINTERS = (Pointer("target", "feature"), Pointer("source", "image"))


@dataclass(frozen=True)
class Rates:
    """Rates of a device.

    ``launch`` is the seconds per launch, one after the other. ``flops`` is the float32 operations per second,
    two for a multiply-add. ``bytes`` is the bytes read and written per second by a copy.
    """

    launch: float
    flops: float
    bytes: float


def multiply_adds(blocks: int, rounds: int) -> Launch:
    """Return a launch of ``blocks`` * 256 threads, each of which writes one float32 to ``feature``.

    The value is 8 * (thread modulo 8) + 64 * ``rounds``.
    """
    arguments = RatesArguments(rounds=rounds, factor=1.0, summand=1.0)
    return Launch("multiply_adds", (blocks, 1, 1), _THREADS, arguments, _POINTERS)


def copy(size: int) -> Launch:
    """Return the launch that copies ``size`` bytes, a multiple of 16, from ``image`` to ``feature``."""
    count = size // 16
    blocks = (count + _FLOAT4_A_BLOCK - 1) // _FLOAT4_A_BLOCK
    return Launch("copy_values", (blocks, 1, 1), _THREADS, RatesArguments(count=count), _POINTERS)


def measured(timed: Callable[[list[Launch]], float], largest_copy: int) -> Rates:
    """Return the rates of a device.

    ``timed`` runs launches and returns the seconds between their begin and end on the device. ``image`` and
    ``feature`` hold ``largest_copy`` bytes each, and at least 2 MiB.
    """
    empty = [copy(16)] * _LAUNCHES
    blocks, rounds = 1024, 4

    def adding() -> list[Launch]:
        return [multiply_adds(blocks, rounds)]

    while timed(adding()) < _LONG_ENOUGH and rounds < _MOST_ROUNDS:
        rounds *= _GROWTH
    size = min(largest_copy, 1 << 21)
    while size < largest_copy and timed([copy(size)]) < _LONG_ENOUGH:
        size = min(largest_copy, size * _GROWTH)
    flops = 2.0 * blocks * _THREADS * rounds * _ADDS_A_ROUND
    return Rates(
        launch=_least(timed, empty) / _LAUNCHES,
        flops=flops / _least(timed, adding()),
        bytes=2.0 * (size // 16 * 16) / _least(timed, [copy(size)]),
    )


def _least(timed: Callable[[list[Launch]], float], launches: list[Launch]) -> float:
    return max(1e-9, min(timed(launches) for _ in range(_REPEATS)))
