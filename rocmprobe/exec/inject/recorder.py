"""Recorder that writes the distinct convolutions of each process to separate files.

A file has one JSON object per line: a problem, written before its first call. The counts are in other files,
which are mapped into memory, so that none is lost, however the process ends. Each row of counts has the
number of calls per direction, and the number of calls that failed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import time
from typing import Any, Callable, TypeVar, Union

import torch

from rocmprobe.bypass import dispatch, registration
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.exec.inject.ending import append

#: Number of problems per file of counts, and number of counts per problem.
_BLOCK, _COLUMNS = 1024, 4
#: Column with the number of calls that failed, after the columns of the directions.
_FAILED = 3
_BYTES = 8 * _BLOCK * _COLUMNS

Call = Union[ConvolutionCall, BackwardCall]
Result = TypeVar("Result")


def install(folder: str) -> None:
    """Record the convolutions of this process and of its forked processes into files in ``folder``.

    Raises OSError if the folder cannot be written.
    """
    recorder = Recorder(folder)
    recorder.start()
    for device_type in ("cpu", "cuda"):
        registration.add_interceptor(recorder, device_type)
    os.register_at_fork(after_in_child=recorder.forget)


class Recorder(dispatch.Interceptor):
    """Interceptor that records every convolution and changes nothing."""

    name = "recorder"
    rank = 3

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.forget()

    def forget(self) -> None:
        """Start with empty files, e.g. in a forked process."""
        self._lock = threading.Lock()
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._blocks: list[Any] = []
        self._path = ""

    def start(self) -> None:
        """Create this process's file. Raises OSError if the file cannot be written."""
        self._path = os.path.join(self._folder, f"{os.getpid()}-{time.time_ns()}.jsonl")
        append(self._path, {"torch": str(torch.__version__)})

    def convolution(
        self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], torch.Tensor]
    ) -> torch.Tensor:
        return self._recorded(call, call.bias is not None, (0,), proceed)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        places = tuple(place for place, wanted in enumerate(call.output_mask[:2], 1) if wanted)
        return self._recorded(call, call.bias_sizes is not None, places, proceed)

    def _recorded(
        self, call: Any, bias: bool, places: tuple[int, ...], proceed: Callable[[Any], Result]
    ) -> Result:
        counts = self._counts_of(call, bias)
        try:
            result = proceed(call)
        except BaseException:
            places = (_FAILED,)
            raise
        finally:
            with self._lock:
                for place in places if counts else ():
                    counts[place] += 1
        return result

    def _counts_of(self, call: Call, bias: bool) -> Any:
        """Return the row of counts for the problem of ``call``. Return None if there is no room on disk."""
        key = (
            call.input.shape, call.weight.shape, call.stride, call.padding, call.dilation, call.transposed,
            call.output_padding, call.groups, bias, call.input.dtype, call.input.device.type,
            _channels_last(call),
        )  # fmt: skip
        with self._lock:
            if key not in self._numbers and not self._add(key, call, bias):
                return None
            block, row = divmod(self._numbers[key], _BLOCK)
            return self._blocks[block][row]

    def _add(self, key: tuple[Any, ...], call: Call, bias: bool) -> bool:
        """Write a new problem. Return False if there is no room on disk."""
        if self._path == os.devnull:
            return False
        number = len(self._numbers)
        try:
            if not self._path:
                self.start()
            if number % _BLOCK == 0:
                self._blocks.append(_mapped(f"{self._path}.{number // _BLOCK}"))
            # Do not keep the file open, because a program can close all descriptors and reuse their numbers.
            append(self._path, {"at": time.time(), "problem": _described(call, bias)})
        except OSError as error:
            # Recording must not make the program fail.
            print(f"rocmprobe: process {os.getpid()} stopped recording ({error.strerror})", file=sys.stderr)
            self._path = os.devnull
            return False
        self._numbers[key] = number
        return True


def _mapped(path: str) -> Any:
    """Create a file of counts. Return its rows, which are mapped into memory until the process ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * (ctypes.c_int,), ctypes.c_int64)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # On a full disk, a write to a page that is not allocated would end the process.
        os.posix_fallocate(descriptor, 0, _BYTES)
        # The class mmap.mmap would keep a descriptor open.
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        address = libc.mmap(None, _BYTES, protection, mmap.MAP_SHARED, descriptor, 0)
    finally:
        os.close(descriptor)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return (ctypes.c_int64 * _COLUMNS * _BLOCK).from_address(address)


def _described(call: Call, bias: bool) -> dict[str, Any]:
    spatial = call.weight.dim() - 2
    return {
        "kind": f"conv_transpose{spatial}d" if call.transposed else f"conv{spatial}d",
        "dtype": str(call.input.dtype).rpartition(".")[2], "input": list(call.input.shape),
        "weight": list(call.weight.shape), "stride": list(call.stride), "padding": list(call.padding),
        "dilation": list(call.dilation), "output_padding": list(call.output_padding), "groups": call.groups,
        "bias": bias, "channels_last": _channels_last(call), "device": call.input.device.type,
    }  # fmt: skip


def _channels_last(call: Call) -> bool:
    if call.weight.dim() != 4:
        return False
    return any(
        each.is_contiguous(memory_format=torch.channels_last) and not each.is_contiguous()
        for each in (call.input, call.weight)
    )
