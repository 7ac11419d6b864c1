"""Functions that load and launch compiled kernels, with one interface for HIP and CUDA.

Signatures are from hip/hip_runtime_api.h of ROCm 5.2 and 6.4 and cuda.h of CUDA 11.8.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from rocmprobe.runtimes.calls import POINTER, SharedLibrary

_UNSIGNED = ctypes.c_uint
_ONE_POINTER = ctypes.c_void_p * 1


@dataclass(frozen=True)
class Names:
    """Names of a driver's functions for kernels, events and streams."""

    load: str
    unload: str
    function: str
    launch: str
    event_create: str
    event_record: str
    event_synchronize: str
    event_elapsed: str
    event_destroy: str
    stream_synchronize: str

    def signatures(self) -> dict[str, tuple[Any, ...]]:
        return {
            self.load: (POINTER, POINTER),
            self.unload: (POINTER,),
            self.function: (POINTER, POINTER, ctypes.c_char_p),
            self.launch: (POINTER, *(_UNSIGNED,) * 7, POINTER, POINTER, POINTER),
            self.event_create: (POINTER, _UNSIGNED),
            self.event_record: (POINTER, POINTER),
            self.event_synchronize: (POINTER,),
            self.event_elapsed: (POINTER, POINTER, POINTER),
            self.event_destroy: (POINTER,),
            self.stream_synchronize: (POINTER,),
        }


class Modules:
    """Modules, launches and events on the current device.

    Handles are integers. Stream 0 is the default stream. Methods raise CallFailed and NotAvailable.
    """

    def __init__(self, library: SharedLibrary, names: Names) -> None:
        self.library = library
        self.names = names
        self._launch = library.prepared(names.launch)

    def load(self, code: bytes) -> int:
        """Load a code object (HIP), cubin or PTX (CUDA), and return the module's handle."""
        module = ctypes.c_void_p()
        # ``create_string_buffer`` adds a zero byte, which the driver needs because it reads PTX as text.
        self.library.call(self.names.load, ctypes.byref(module), ctypes.create_string_buffer(code))
        return module.value or 0

    def unload(self, module: int) -> None:
        self.library.call(self.names.unload, module)

    def function(self, module: int, name: str) -> int:
        """Return the handle of a kernel. Raise CallFailed if the module has no kernel of this name."""
        function = ctypes.c_void_p()
        self.library.call(self.names.function, ctypes.byref(function), module, name.encode("ascii"))
        return function.value or 0

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        threads: int,
        arguments: ctypes.Structure,
        stream: int = 0,
    ) -> None:
        """Queue a kernel whose only parameter is the structure ``arguments``.

        The driver copies ``arguments`` before this method returns.
        """
        parameters = _ONE_POINTER(ctypes.addressof(arguments))
        number = self._launch(
            function, grid[0], grid[1], grid[2], threads, 1, 1, 0, stream or None, parameters, None
        )
        if number:
            raise self.library.error_for(self.names.launch, number)

    def wait(self, stream: int = 0) -> None:
        """Wait for the work queued on the stream. Raise CallFailed if the work failed."""
        self.library.call(self.names.stream_synchronize, stream or None)

    def event(self) -> Event:
        return Event(self)


class Event:
    """A point on a stream, with the time at which the device reaches this point.

    As a context manager, it destroys the event at the end of the block.
    """

    def __init__(self, modules: Modules) -> None:
        self._library = modules.library
        self._names = modules.names
        self._handle = ctypes.c_void_p()
        self._library.call(self._names.event_create, ctypes.byref(self._handle), 0)

    def __enter__(self) -> Event:
        return self

    def __exit__(self, *raised: object) -> None:
        self.destroy()

    def record(self, stream: int = 0) -> None:
        self._library.call(self._names.event_record, self._handle, stream or None)

    def seconds_since(self, start: Event) -> float:
        """Wait until the device reaches this event, and return the seconds since ``start``."""
        milliseconds = ctypes.c_float()
        self._library.call(self._names.event_synchronize, self._handle)
        self._library.call(self._names.event_elapsed, ctypes.byref(milliseconds), start._handle, self._handle)
        return milliseconds.value / 1000

    def destroy(self) -> None:
        if self._handle:
            handle, self._handle = self._handle, ctypes.c_void_p()
            self._library.call(self._names.event_destroy, handle)
