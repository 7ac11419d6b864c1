"""libamdhip64, the HIP runtime: devices, memory, copies, modules.

Constants are from hip/hip_runtime_api.h of ROCm 5.0, 5.2, 5.7, 6.0 and 6.2.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Optional

from rocmprobe.runtimes.calls import (
    INT,
    POINTER,
    SIZE,
    CallFailed,
    NotAvailable,
    Observer,
    SharedLibrary,
)
from rocmprobe.runtimes.memory import Buffer
from rocmprobe.runtimes.modules import SIGNATURES, Modules

_SIGNATURES = {
    "hipInit": (ctypes.c_uint,),
    "hipRuntimeGetVersion": (POINTER,),
    "hipGetDeviceCount": (POINTER,),
    "hipGetDevice": (POINTER,),
    "hipSetDevice": (INT,),
    "hipDeviceGetPCIBusId": (POINTER, INT, INT),
    "hipGetDeviceProperties": (POINTER, INT),
    "hipGetDevicePropertiesR0600": (POINTER, INT),
    "hipMalloc": (POINTER, SIZE),
    "hipFree": (POINTER,),
    "hipMemcpy": (POINTER, POINTER, SIZE, INT),
    "hipMemset": (POINTER, INT, SIZE),
    "hipDeviceSynchronize": (),
    "hipGetLastError": (),
    **SIGNATURES,
}
_HOST_TO_DEVICE = 1
_DEVICE_TO_HOST = 2
_NO_DEVICE = 100
# ROCm 6 gave hipDeviceProp_t a new layout under a new symbol. The old symbol keeps the old layout.
_ARCH_NAME_AT = {"hipGetDevicePropertiesR0600": 1160, "hipGetDeviceProperties": 396}
_ARCH_NAME_BYTES = 256
_PROPERTIES_BYTES = 4096  # The struct has 1472 bytes today. A future library can write more.


def _error_name(library: SharedLibrary, number: int) -> str:
    try:
        name = library.symbol("hipGetErrorName")
    except NotAvailable:
        return f"hipError {number}"
    name.argtypes, name.restype = (INT,), ctypes.c_char_p
    return (name(number) or b"hipErrorUnknown").decode("ascii", "replace")


class Hip:
    """The HIP runtime. Copies and fills of memory run on the default stream.

    Methods raise CallFailed and NotAvailable. The constructor raises LoadFailed.
    """

    def __init__(self, path: str, observe: Optional[Observer] = None) -> None:
        self.library = SharedLibrary(path, _SIGNATURES, _error_name, observe)

    @cached_property
    def modules(self) -> Modules:
        return Modules(self.library)

    def device_count(self) -> int:
        """Return the number of GPUs that the runtime sees, which can be 0."""
        count = INT()
        try:
            self.library.call("hipInit", 0)
            self.library.call("hipGetDeviceCount", ctypes.byref(count))
        except CallFailed as failure:
            if failure.call.number != _NO_DEVICE:
                raise
            return 0
        return count.value

    def runtime_version(self) -> int:
        """Return the runtime's version.

        Since ROCm 4.5, the version is major * 10000000 + minor * 100000 + patch.
        """
        version = INT()
        self.library.call("hipRuntimeGetVersion", ctypes.byref(version))
        return version.value

    def set_device(self, device: int) -> None:
        self.library.call("hipSetDevice", device)

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make ``device`` the thread's current device inside the ``with`` block."""
        current = self.current_device()
        if current == device:
            yield
            return
        self.set_device(device)
        try:
            yield
        finally:
            self.set_device(current)

    @cached_property
    def _get_device(self) -> Callable[..., int]:
        function: Callable[..., int] = self.library.prepared("hipGetDevice")
        return function

    def is_current(self, device: int) -> bool:
        """Return True if ``device`` is the current device of this thread."""
        return self.current_device() == device

    def current_device(self) -> int:
        """Return the index of the current device of this thread."""
        device = INT()
        number = self._get_device(ctypes.byref(device))
        if number:
            raise self.library.error_for("hipGetDevice", number)
        return device.value

    def forget_error(self) -> None:
        """Clear the last error of this thread."""
        self.library.prepared("hipGetLastError")()

    def pci_address(self, device: int) -> str:
        """Return the PCI address, e.g. "0000:03:00.0"."""
        address = ctypes.create_string_buffer(64)
        self.library.call("hipDeviceGetPCIBusId", address, len(address), device)
        return address.value.decode("ascii", "replace")

    def arch_name(self, device: int) -> str:
        """Return gcnArchName, the effective ISA, e.g. "gfx1030" or "gfx90a:sramecc+:xnack-"."""
        function = "hipGetDevicePropertiesR0600"
        if not self.library.has(function):
            function = "hipGetDeviceProperties"
        properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        self.library.call(function, properties, device)
        start = _ARCH_NAME_AT[function]
        name = properties.raw[start : start + _ARCH_NAME_BYTES]
        return name.partition(b"\0")[0].decode("ascii", "replace")

    def allocate(self, size: int, margin: int = 0) -> Buffer:
        """Return uninitialized device memory of ``size`` bytes.

        Margins of ``margin`` bytes before and after the memory reveal stray writes.
        """
        address = ctypes.c_void_p()
        self.library.call("hipMalloc", ctypes.byref(address), max(size + 2 * margin, 1))
        return Buffer(self, address.value or 0, size, margin)

    def upload(self, content: bytes) -> Buffer:
        """Return new device memory that contains ``content``."""
        buffer = self.allocate(len(content))
        buffer.write(content)
        return buffer

    def synchronize(self) -> None:
        """Wait for all queued work. Raise CallFailed if the work failed."""
        self.library.call("hipDeviceSynchronize")

    def release(self, address: int) -> None:
        self.library.call("hipFree", address)

    def set_bytes(self, address: int, byte: int, size: int) -> None:
        self.library.call("hipMemset", address, byte, size)

    def copy_in(self, address: int, content: bytes) -> None:
        self.library.call("hipMemcpy", address, content, len(content), _HOST_TO_DEVICE)

    def copy_out(self, address: int, size: int) -> bytes:
        content = ctypes.create_string_buffer(max(size, 1))
        self.library.call("hipMemcpy", content, address, size, _DEVICE_TO_HOST)
        return content.raw[:size]
