"""hiprtc: the library that compiles a kernel's source to code for a GPU.

Signatures are from hip/hiprtc.h of ROCm 5.2 and 6.4.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from rocmprobe.runtimes.calls import INT, POINTER, CallFailed, NotAvailable, SharedLibrary

#: Maximum number of bytes of the log, because a compiler can report the same error many times.
_LONGEST_LOG = 1 << 20


_SIGNATURES = {
    "hiprtcVersion": (POINTER, POINTER),
    "hiprtcCreateProgram": (POINTER, ctypes.c_char_p, ctypes.c_char_p, INT, POINTER, POINTER),
    "hiprtcCompileProgram": (POINTER, INT, POINTER),
    "hiprtcGetProgramLogSize": (POINTER, POINTER),
    "hiprtcGetProgramLog": (POINTER, POINTER),
    "hiprtcGetCodeSize": (POINTER, POINTER),
    "hiprtcGetCode": (POINTER, POINTER),
    "hiprtcDestroyProgram": (POINTER,),
}


class CompileFailed(Exception):
    """The compiler rejected a source. ``log`` is the compiler's output, which can be empty."""

    def __init__(self, failure: CallFailed, log: str) -> None:
        super().__init__(f"{failure}\n{log}".rstrip())
        self.log = log


def _error_name(library: SharedLibrary, number: int) -> str:
    try:
        name = library.symbol("hiprtcGetErrorString")
    except NotAvailable:
        return f"hiprtcResult {number}"
    name.argtypes, name.restype = (INT,), ctypes.c_char_p
    return (name(number) or b"unknown").decode("ascii", "replace")


class Rtc:
    """The runtime compiler. Methods raise CallFailed and NotAvailable, the constructor also LoadFailed.

    ``path`` is the library with the compiler's functions, which can be the HIP runtime.
    """

    def __init__(self, path: str) -> None:
        self.library = SharedLibrary(path, _SIGNATURES, _error_name)
        self.library.symbol("hiprtcCompileProgram")

    def version(self) -> str:
        """Return the version, which has been "9.0" for years."""
        major, minor = INT(), INT()
        self.library.call("hiprtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Compile ``source``, and return the code (a code object) and the log.

        Raises CompileFailed if the compiler rejects the source.
        """
        program = ctypes.c_void_p()
        self.library.call(
            "hiprtcCreateProgram",
            ctypes.byref(program),
            source.encode(),
            b"rocmprobe.hip",
            0,
            None,
            None,
        )
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            try:
                self.library.call("hiprtcCompileProgram", program, len(options), given)
            except CallFailed as failure:
                raise CompileFailed(failure, self._log(program)) from None
            return self._bytes(program, "Code"), self._log(program)
        finally:
            self.library.call("hiprtcDestroyProgram", ctypes.byref(program))

    def _log(self, program: ctypes.c_void_p) -> str:
        try:
            content = self._bytes(program, "ProgramLog")
        except CallFailed:
            return ""
        return content[:_LONGEST_LOG].rstrip(b"\0").decode("utf-8", "replace").strip()

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.library.call(f"hiprtcGet{what}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            self.library.call(f"hiprtcGet{what}", program, content)
        return content.raw[: size.value]
