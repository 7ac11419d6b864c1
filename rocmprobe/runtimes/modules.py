"""Functions of HIP that load and launch compiled kernels.

Signatures are from hip/hip_runtime_api.h of ROCm 5.2 and 6.4.
"""

from __future__ import annotations

import ctypes

from rocmprobe.runtimes.calls import POINTER, SharedLibrary

_UNSIGNED = ctypes.c_uint
_ONE_POINTER = ctypes.c_void_p * 1

SIGNATURES = {
    "hipModuleLoadData": (POINTER, POINTER),
    "hipModuleUnload": (POINTER,),
    "hipModuleGetFunction": (POINTER, POINTER, ctypes.c_char_p),
    "hipModuleLaunchKernel": (POINTER, *(_UNSIGNED,) * 7, POINTER, POINTER, POINTER),
    "hipStreamSynchronize": (POINTER,),
}


class Modules:
    """Modules and launches on the current device.

    Handles are integers. Stream 0 is the default stream. Methods raise CallFailed and NotAvailable.
    """

    def __init__(self, library: SharedLibrary) -> None:
        self.library = library
        self._launch = library.prepared("hipModuleLaunchKernel")

    def load(self, code: bytes) -> int:
        """Load a code object, and return the module's handle."""
        module = ctypes.c_void_p()
        self.library.call("hipModuleLoadData", ctypes.byref(module), code)
        return module.value or 0

    def unload(self, module: int) -> None:
        self.library.call("hipModuleUnload", module)

    def function(self, module: int, name: str) -> int:
        """Return the handle of a kernel. Raise CallFailed if the module has no kernel of this name."""
        function = ctypes.c_void_p()
        self.library.call("hipModuleGetFunction", ctypes.byref(function), module, name.encode("ascii"))
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
            raise self.library.error_for("hipModuleLaunchKernel", number)

    def wait(self, stream: int = 0) -> None:
        """Wait for the work queued on the stream. Raise CallFailed if the work failed."""
        self.library.call("hipStreamSynchronize", stream or None)
