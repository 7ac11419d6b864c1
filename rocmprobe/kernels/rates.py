"""Measurement of a device's throughput: launches, multiply-adds and copies."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from rocmprobe.kernels.launches import Launch, Pointer

SOURCES = ("rates.hip",)
_THREADS = 256
_LAUNCHES = 50
_REPEATS = 3
#: The work of a measurement is multiplied by the factor _GROWTH until the measurement takes _LONG_ENOUGH
#: seconds.
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
    """Throughput of a device.

    Attributes:
        launch: seconds per launch in a queue of many launches.
        flops: float32 operations per second. A multiply-add is two operations.
        bytes: bytes per second that a copy reads and writes.
    """

    launch: float
    flops: float
    bytes: float


def multiply_adds(blocks: int, rounds: int) -> Launch:
    """Return a launch of ``blocks`` * 256 threads that compute multiply-adds.

    Each thread writes one float32 to ``feature``: 8 * (thread modulo 8) + 64 * ``rounds``.
    """
    arguments = RatesArguments(rounds=rounds, factor=1.0, summand=1.0)
    return Launch("multiply_adds", (blocks, 1, 1), _THREADS, arguments, _POINTERS)


def copy(size: int) -> Launch:
    """Return the launch that copies ``size`` bytes, a multiple of 16, from ``image`` to ``feature``."""
    count = size // 16
    blocks = (count + _FLOAT4_A_BLOCK - 1) // _FLOAT4_A_BLOCK
    return Launch("copy_values", (blocks, 1, 1), _THREADS, RatesArguments(count=count), _POINTERS)


def measure_rates(time_launches: Callable[[list[Launch]], float], largest_copy: int) -> Rates:
    """Measure the throughput of a device.

    ``time_launches`` runs launches and returns the seconds that the device took. The launches read the
    operand ``image`` and write the operand ``feature``. Each operand must have at least ``largest_copy``
    bytes, and ``feature`` must not be smaller than 1 MiB.
    """
    empty = [copy(16)] * _LAUNCHES
    blocks, rounds = 1024, 4

    def adding() -> list[Launch]:
        return [multiply_adds(blocks, rounds)]

    while time_launches(adding()) < _LONG_ENOUGH and rounds < _MOST_ROUNDS:
        rounds *= _GROWTH
    size = min(largest_copy, 1 << 21)
    while size < largest_copy and time_launches([copy(size)]) < _LONG_ENOUGH:
        size = min(largest_copy, size * _GROWTH)
    flops = 2.0 * blocks * _THREADS * rounds * _ADDS_A_ROUND
    return Rates(
        launch=_least(time_launches, empty) / _LAUNCHES,
        flops=flops / _least(time_launches, adding()),
        bytes=2.0 * (size // 16 * 16) / _least(time_launches, [copy(size)]),
    )


def _least(timed: Callable[[list[Launch]], float], launches: list[Launch]) -> float:
    return max(1e-9, min(timed(launches) for _ in range(_REPEATS)))
