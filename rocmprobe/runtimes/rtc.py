"""hiprtc and NVRTC: libraries that compile a kernel's source to code for a GPU.

Signatures are from hip/hiprtc.h of ROCm 5.2 and 6.4 and nvrtc.h of CUDA 11.8.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Optional

from rocmprobe.runtimes.calls import INT, POINTER, CallFailed, NotAvailable, Observer, SharedLibrary

HIPRTC, NVRTC = "hiprtc", "nvrtc"
_CODE = {HIPRTC: "Code", NVRTC: "CUBIN"}
#: Maximum number of bytes of the log, because a compiler can report the same error many times.
_LONGEST_LOG = 1 << 20


def _signatures(prefix: str) -> dict[str, tuple[object, ...]]:
    return {
        f"{prefix}Version": (POINTER, POINTER),
        f"{prefix}CreateProgram": (
            POINTER, ctypes.c_char_p, ctypes.c_char_p, INT, POINTER, POINTER,
        ),
        f"{prefix}CompileProgram": (POINTER, INT, POINTER),
        f"{prefix}GetProgramLogSize": (POINTER, POINTER),
        f"{prefix}GetProgramLog": (POINTER, POINTER),
        f"{prefix}Get{_CODE[prefix]}Size": (POINTER, POINTER),
        f"{prefix}Get{_CODE[prefix]}": (POINTER, POINTER),
        f"{prefix}DestroyProgram": (POINTER,),
    }  # fmt: skip


class CompileFailed(Exception):
    """The compiler rejected a source. ``log`` is the compiler's output, which can be empty."""

    def __init__(self, failure: CallFailed, log: str) -> None:
        super().__init__(f"{failure}\n{log}".rstrip())
        self.log = log


class Rtc:
    """A runtime compiler. Methods raise CallFailed and NotAvailable. The constructor also raises LoadFailed.

    ``kind`` is HIPRTC or NVRTC. ``path`` is the library with the compiler's functions, which can be the HIP
    runtime.
    """

    def __init__(self, path: str, kind: str, observe: Optional[Observer] = None) -> None:
        self.kind = kind
        self.library = SharedLibrary(path, _signatures(kind), self._error_name, observe)
        self.library.symbol(f"{kind}CompileProgram")

    def _error_name(self, library: SharedLibrary, number: int) -> str:
        try:
            name = library.symbol(f"{self.kind}GetErrorString")
        except NotAvailable:
            return f"{self.kind}Result {number}"
        name.argtypes, name.restype = (INT,), ctypes.c_char_p
        return (name(number) or b"unknown").decode("ascii", "replace")

    def version(self) -> str:
        """Return the version, e.g. "12.4". hiprtc has reported 9.0 for years."""
        major, minor = INT(), INT()
        self.library.call(f"{self.kind}Version", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, source: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Compile ``source``, and return the code (a code object or cubin) and the log.

        Raises CompileFailed if the compiler rejects the source.
        """
        program = ctypes.c_void_p()
        self.library.call(
            f"{self.kind}CreateProgram",
            ctypes.byref(program), source.encode(), b"rocmprobe.hip", 0, None, None,
        )  # fmt: skip
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            try:
                self.library.call(f"{self.kind}CompileProgram", program, len(options), given)
            except CallFailed as failure:
                raise CompileFailed(failure, self._log(program)) from None
            return self._bytes(program, _CODE[self.kind]), self._log(program)
        finally:
            self.library.call(f"{self.kind}DestroyProgram", ctypes.byref(program))

    def _log(self, program: ctypes.c_void_p) -> str:
        try:
            content = self._bytes(program, "ProgramLog")
        except CallFailed:
            return ""
        return content[:_LONGEST_LOG].rstrip(b"\0").decode("utf-8", "replace").strip()

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.library.call(f"{self.kind}Get{what}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            self.library.call(f"{self.kind}Get{what}", program, content)
        return content.raw[: size.value]
