"""libamdhip64: devices, memory, copies, modules.

Numbers from hip/hip_runtime_api.h of ROCm 5.0, 5.2, 5.7, 6.0 and 6.2.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
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
from rocmprobe.runtimes.modules import Modules, Names

_NAMES = Names(
    load="hipModuleLoadData",
    unload="hipModuleUnload",
    function="hipModuleGetFunction",
    launch="hipModuleLaunchKernel",
    event_create="hipEventCreateWithFlags",
    event_record="hipEventRecord",
    event_synchronize="hipEventSynchronize",
    event_elapsed="hipEventElapsedTime",
    event_destroy="hipEventDestroy",
    stream_synchronize="hipStreamSynchronize",
)
_SIGNATURES = {
    "hipInit": (ctypes.c_uint,),
    "hipRuntimeGetVersion": (POINTER,),
    "hipGetDeviceCount": (POINTER,),
    "hipGetDevice": (POINTER,),
    "hipSetDevice": (INT,),
    "hipDeviceGetName": (POINTER, INT, INT),
    "hipDeviceGetPCIBusId": (POINTER, INT, INT),
    "hipGetDeviceProperties": (POINTER, INT),
    "hipGetDevicePropertiesR0600": (POINTER, INT),
    "hipMemGetInfo": (POINTER, POINTER),
    "hipMalloc": (POINTER, SIZE),
    "hipFree": (POINTER,),
    "hipMemcpy": (POINTER, POINTER, SIZE, INT),
    "hipMemset": (POINTER, INT, SIZE),
    "hipDeviceSynchronize": (),
    "hipGetLastError": (),
    **_NAMES.signatures(),
}
_HOST_TO_DEVICE = 1
_DEVICE_TO_HOST = 2
_DEVICE_TO_DEVICE = 3
_NO_DEVICE = 100
_MARGIN_BYTE = 0xA5
# ROCm 6 gave hipDeviceProp_t a new layout under a new symbol; the old symbol keeps the old layout.
_ARCH_NAME_AT = {"hipGetDevicePropertiesR0600": 1160, "hipGetDeviceProperties": 396}
_ARCH_NAME_BYTES = 256
_PROPERTIES_BYTES = 4096  # 1472 today; room for a library that writes more


def _error_name(library: SharedLibrary, number: int) -> str:
    try:
        name = library.symbol("hipGetErrorName")
    except NotAvailable:
        return f"hipError {number}"
    name.argtypes, name.restype = (INT,), ctypes.c_char_p
    return (name(number) or b"hipErrorUnknown").decode("ascii", "replace")


class Hip:
    """The HIP runtime; memory on the default stream. Calls raise CallFailed, NotAvailable; loading
    LoadFailed."""

    kind = "hip"

    def __init__(self, path: str, observe: Optional[Observer] = None) -> None:
        self.library = SharedLibrary(path, _SIGNATURES, _error_name, observe)
        self._modules: Optional[Modules] = None

    @property
    def modules(self) -> Modules:
        """Loading and launching kernels."""
        if self._modules is None:
            self._modules = Modules(self.library, _NAMES)
        return self._modules

    def device_count(self) -> int:
        """How many GPUs the runtime sees; that there is none is no failure."""
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
        """The runtime's own number, major * 10000000 + minor * 100000 + patch since ROCm 4.5."""
        version = INT()
        self.library.call("hipRuntimeGetVersion", ctypes.byref(version))
        return version.value

    def set_device(self, device: int) -> None:
        self.library.call("hipSetDevice", device)

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Within it calls of this thread are about ``device``."""
        current = INT()
        number = self.library.prepared("hipGetDevice")(ctypes.byref(current))
        if number:
            raise self.library.failed("hipGetDevice", number)
        if current.value == device:
            yield
            return
        self.set_device(device)
        try:
            yield
        finally:
            self.set_device(current.value)

    def forget_error(self) -> None:
        """Take back the error that the runtime keeps of this thread's last failed call."""
        self.library.prepared("hipGetLastError")()

    def pci_address(self, device: int) -> str:
        """Such as "0000:03:00.0"."""
        address = ctypes.create_string_buffer(64)
        self.library.call("hipDeviceGetPCIBusId", address, len(address), device)
        return address.value.decode("ascii", "replace")

    def device_name(self, device: int) -> str:
        """The marketing name; empty on many distributions."""
        name = ctypes.create_string_buffer(256)
        self.library.call("hipDeviceGetName", name, len(name), device)
        return name.value.decode("utf-8", "replace")

    def arch_name(self, device: int) -> str:
        """gcnArchName, the effective ISA: "gfx1030", on chips with such features "gfx90a:sramecc+:xnack-"."""
        function = "hipGetDevicePropertiesR0600"
        if not self.library.has(function):
            function = "hipGetDeviceProperties"
        properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        self.library.call(function, properties, device)
        start = _ARCH_NAME_AT[function]
        name = properties.raw[start : start + _ARCH_NAME_BYTES]
        return name.partition(b"\0")[0].decode("ascii", "replace")

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the device that is set."""
        free, total = SIZE(), SIZE()
        self.library.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size: int, margin: int = 0) -> Buffer:
        """Device memory of ``size`` bytes, uninitialized, and ``margin`` bytes before and after
        that are nobody's to write."""
        address = ctypes.c_void_p()
        self.library.call("hipMalloc", ctypes.byref(address), max(size + 2 * margin, 1))
        return Buffer(self, address.value or 0, size, margin)

    def upload(self, content: bytes) -> Buffer:
        """Device memory that holds ``content``."""
        buffer = self.allocate(len(content))
        buffer.write(content)
        return buffer

    def synchronize(self) -> None:
        """Wait for everything queued; errors of queued work surface here."""
        self.library.call("hipDeviceSynchronize")


class Buffer:
    """Device memory; leaving it as a context frees it. ``allocated`` is the address of its first margin."""

    def __init__(self, hip: Hip, allocated: int, size: int, margin: int = 0) -> None:
        self.hip = hip
        self.allocated = allocated
        self.address = allocated + margin
        self.size = size
        self.margin = margin
        for start in self._margins():
            hip.library.call("hipMemset", start, _MARGIN_BYTE, margin)

    def _margins(self) -> tuple[int, ...]:
        return (self.allocated, self.address + self.size) if self.margin else ()

    def stray_writes(self) -> int:
        """How many bytes of its margins were written since it was made."""
        content = ctypes.create_string_buffer(max(self.margin, 1))
        changed = 0
        for start in self._margins():
            self.hip.library.call("hipMemcpy", content, start, self.margin, _DEVICE_TO_HOST)
            changed += self.margin - content.raw[: self.margin].count(_MARGIN_BYTE)
        return changed

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self.free()
        except CallFailed:
            # On a lost device freeing fails too; what failed first is what matters.
            if error is None:
                raise

    def free(self) -> None:
        if self.allocated:
            allocated, self.allocated = self.allocated, 0
            self.hip.library.call("hipFree", allocated)

    def write(self, content: bytes) -> None:
        """Copy ``content`` to its beginning; it must fit."""
        if len(content) > self.size:
            raise ValueError(f"{len(content)} bytes do not fit into {self.size}")
        self.hip.library.call("hipMemcpy", self.address, content, len(content), _HOST_TO_DEVICE)

    def read(self) -> bytes:
        """Its content, after all work queued before on the default stream."""
        content = ctypes.create_string_buffer(max(self.size, 1))
        self.hip.library.call("hipMemcpy", content, self.address, self.size, _DEVICE_TO_HOST)
        return content.raw[: self.size]

    def copy_from(self, source: Buffer) -> None:
        """Copy another buffer of this size on the device; ``Hip.synchronize`` waits for it."""
        self.hip.library.call("hipMemcpy", self.address, source.address, self.size, _DEVICE_TO_DEVICE)

    def fill(self, byte: int) -> None:
        self.hip.library.call("hipMemset", self.address, byte, self.size)
