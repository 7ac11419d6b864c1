"""Recorder that writes the distinct convolutions of each process to a separate file.

Each line of the file is a JSON object. A problem is written before its first call, and a direction after its
first computation. From time to time and at the end, the recorder writes all counts.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Callable, Union

import torch

from rocmprobe.bypass import dispatch, registration
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.exec.inject.ending import append, at_end

DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
#: First and longest interval between two writes of all counts, in seconds. The interval doubles after each
#: write.
_SOON, _LATE = 1.0, 60.0

Call = Union[ConvolutionCall, BackwardCall]


def install(folder: str) -> None:
    """Record the convolutions of this process and of its forked processes into files in ``folder``.

    Raises OSError if the folder cannot be written.
    """
    recorder = Recorder(folder)
    recorder.start()
    for device_type in ("cpu", "cuda"):
        registration.add_interceptor(recorder, device_type)
    os.register_at_fork(after_in_child=recorder.forget)
    at_end(recorder.end)


class Recorder(dispatch.Interceptor):
    """Interceptor that records every convolution and changes nothing."""

    name = "recorder"
    rank = dispatch.RANK_RECORDER

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.forget()

    def forget(self) -> None:
        """Clear all recorded calls, e.g. in a forked process."""
        self._lock = threading.Lock()
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._counts: list[list[int]] = []
        self._path = ""
        self._wait = _SOON
        self._next = time.monotonic() + _SOON

    def start(self) -> None:
        """Create this process's file. Raises OSError if the file cannot be written."""
        self._path = os.path.join(self._folder, f"{os.getpid()}-{time.time_ns()}.jsonl")
        append(self._path, {"torch": str(torch.__version__)})

    def end(self) -> None:
        """Write the final counts."""
        with self._lock:
            if self._path:
                self._write({"counts": self._counts, "ended": True})

    def convolution(
        self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], torch.Tensor]
    ) -> torch.Tensor:
        number = self._number_of(call, call.bias is not None)
        output = proceed(call)
        self._done(number, (0,))
        return output

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        number = self._number_of(call, call.bias_sizes is not None)
        gradients = proceed(call)
        places = tuple(place for place, wanted in enumerate(call.output_mask[:2], 1) if wanted)
        self._done(number, places)
        return gradients

    def _number_of(self, call: Call, bias: bool) -> int:
        key = (
            call.input.shape, call.weight.shape, call.stride, call.padding, call.dilation, call.transposed,
            call.output_padding, call.groups, bias, call.input.dtype, call.input.device.type,
            _channels_last(call),
        )  # fmt: skip
        with self._lock:
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._counts)
                self._counts.append([0, 0, 0])
                self._write({"at": time.time(), "problem": _described(call, bias)})
        return number

    def _done(self, number: int, places: tuple[int, ...]) -> None:
        with self._lock:
            # In a forked process, ignore a call that began before the fork. It belongs to the parent.
            if number >= len(self._counts):
                return
            counts = self._counts[number]
            first = False
            for place in places:
                counts[place] += 1
                first = first or counts[place] == 1
            if first:
                self._write({"done": number, "counts_of_it": counts})
            elif time.monotonic() > self._next:
                self._write({"counts": self._counts})
                self._wait = min(2 * self._wait, _LATE)
                self._next = time.monotonic() + self._wait

    def _write(self, line: dict[str, Any]) -> None:
        try:
            if not self._path:
                self.start()
            # Do not keep the file open, because a program can close all descriptors and reuse their numbers.
            append(self._path, line)
        except OSError as error:
            # Recording must not make the program fail.
            print(f"rocmprobe: process {os.getpid()} stopped recording ({error.strerror})", file=sys.stderr)
            self._path = os.devnull


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
