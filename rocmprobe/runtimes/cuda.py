"""libcuda, the driver of NVIDIA GPUs, with the interface of ``hip.Hip``.

Names and constants are from cuda.h of CUDA 11.8. Calls use the primary context of the process, as in torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional

from rocmprobe.runtimes.calls import INT, POINTER, SIZE, NotAvailable, Observer, SharedLibrary
from rocmprobe.runtimes.memory import Buffer
from rocmprobe.runtimes.modules import Modules, Names

_NAMES = Names(
    load="cuModuleLoadData",
    unload="cuModuleUnload",
    function="cuModuleGetFunction",
    launch="cuLaunchKernel",
    event_create="cuEventCreate",
    event_record="cuEventRecord",
    event_synchronize="cuEventSynchronize",
    event_elapsed="cuEventElapsedTime",
    event_destroy="cuEventDestroy_v2",
    stream_synchronize="cuStreamSynchronize",
)
_SIGNATURES = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (POINTER,),
    "cuDeviceGet": (POINTER, INT),
    "cuDeviceGetAttribute": (POINTER, INT, INT),
    "cuDevicePrimaryCtxRetain": (POINTER, INT),
    "cuCtxGetCurrent": (POINTER,),
    "cuCtxPushCurrent_v2": (POINTER,),
    "cuCtxPopCurrent_v2": (POINTER,),
    "cuGetErrorName": (INT, POINTER),
    "cuMemAlloc_v2": (POINTER, SIZE),
    "cuMemFree_v2": (POINTER,),
    "cuMemsetD8_v2": (POINTER, ctypes.c_ubyte, SIZE),
    "cuMemcpyHtoD_v2": (POINTER, POINTER, SIZE),
    "cuMemcpyDtoH_v2": (POINTER, POINTER, SIZE),
    "cuMemcpyDtoD_v2": (POINTER, POINTER, SIZE),
    "cuCtxSynchronize": (),
    **_NAMES.signatures(),
}
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76


def _error_name(library: SharedLibrary, number: int) -> str:
    name = ctypes.c_char_p()
    try:
        entry = library.prepared("cuGetErrorName")
    except NotAvailable:
        return f"CUresult {number}"
    entry(number, ctypes.byref(name))
    return (name.value or b"unknown").decode("ascii", "replace")


class Cuda:
    """The CUDA driver. Methods raise CallFailed and NotAvailable. The constructor also raises LoadFailed."""

    kind = "cuda"

    def __init__(self, path: str, observe: Optional[Observer] = None) -> None:
        self.library = SharedLibrary(path, _SIGNATURES, _error_name, observe)
        self.library.call("cuInit", 0)
        self.modules = Modules(self.library, _NAMES)
        self._contexts: dict[int, int] = {}
        self._current = self.library.prepared("cuCtxGetCurrent")

    def runtime_version(self) -> int:
        """Return the newest CUDA version that the driver supports, as major * 1000 + minor * 10."""
        version = INT()
        self.library.call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    def arch_name(self, device: int) -> str:
        """Return the compute capability in NVRTC's form, e.g. "sm_90"."""
        numbers = []
        for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
            value = INT()
            self.library.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device(device))
            numbers.append(value.value)
        return f"sm_{numbers[0]}{numbers[1]}"

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make ``device`` the thread's current device inside the ``with`` block."""
        if self.is_current(device):
            yield
            return
        self.library.call("cuCtxPushCurrent_v2", self._contexts[device])
        try:
            yield
        finally:
            self.library.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def is_current(self, device: int) -> bool:
        """Return True if ``device`` is the current device of this thread."""
        context = self._contexts.get(device)
        if context is None:
            retained = ctypes.c_void_p()
            # Never release the context, because torch keeps the same context until the process ends.
            self.library.call("cuDevicePrimaryCtxRetain", ctypes.byref(retained), self._device(device))
            context = self._contexts[device] = retained.value or 0
        current = ctypes.c_void_p()
        number = self._current(ctypes.byref(current))
        if number:
            raise self.library.error_for("cuCtxGetCurrent", number)
        return current.value == context

    def allocate(self, size: int, margin: int = 0) -> Buffer:
        """Return device memory with margins, see ``hip.Hip.allocate``."""
        address = ctypes.c_void_p()
        self.library.call("cuMemAlloc_v2", ctypes.byref(address), max(size + 2 * margin, 1))
        return Buffer(self, address.value or 0, size, margin)

    def synchronize(self) -> None:
        """Wait for all queued work. Raise CallFailed if the work failed."""
        self.library.call("cuCtxSynchronize")

    def release(self, address: int) -> None:
        self.library.call("cuMemFree_v2", address)

    def set_bytes(self, address: int, byte: int, size: int) -> None:
        self.library.call("cuMemsetD8_v2", address, byte, size)

    def copy_in(self, address: int, content: bytes) -> None:
        self.library.call("cuMemcpyHtoD_v2", address, content, len(content))

    def copy_out(self, address: int, size: int) -> bytes:
        content = ctypes.create_string_buffer(max(size, 1))
        self.library.call("cuMemcpyDtoH_v2", content, address, size)
        return content.raw[:size]

    def copy_within(self, target: int, source: int, size: int) -> None:
        self.library.call("cuMemcpyDtoD_v2", target, source, size)

    def forget_error(self) -> None:
        """Do nothing. This driver does not store errors, unlike HIP."""

    def _device(self, device: int) -> int:
        handle = INT()
        self.library.call("cuDeviceGet", ctypes.byref(handle), device)
        return handle.value
