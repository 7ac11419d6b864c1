"""Compilation of kernel source for a GPU, with a cache of the compiled code.

The cache folder is ``$XDG_CACHE_HOME/rocmprobe/kernels``, or ``~/.cache/rocmprobe/kernels``. The environment
variable ``ROCMPROBE_BYPASS_KERNEL_CACHE`` sets another folder. The value ``0`` disables the cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from rocmprobe import output, user_cache
from rocmprobe.kernels.unavailable import KernelsUnavailable
from rocmprobe.runtimes.calls import CallFailed, NotAvailable
from rocmprobe.runtimes.rtc import CompileFailed, Rtc

VARIABLE = "ROCMPROBE_BYPASS_KERNEL_CACHE"
_MAGIC = b"rocmprobe kernels 1\n"
_CHECKSUM_BYTES = 32
#: Maximum size of a file in bytes. A module has about 100 thousand bytes.
_LARGEST = 64 * 2**20


@dataclass(frozen=True)
class Compiled:
    """Compiled code for a GPU.

    Attributes:
        log: log of the compiler, empty for cached code.
        kept: True if the code was read from the cache.
        seconds: seconds of compilation, 0 for cached code.
    """

    code: bytes
    log: str
    kept: bool
    seconds: float


def cache_folder(environ: Mapping[str, str]) -> Optional[Path]:
    """Return the cache folder, or None if the cache is disabled or the user has no home folder."""
    return user_cache.folder(environ, VARIABLE, "kernels")


def options(target: str) -> tuple[str, ...]:
    """Return the compiler options."""
    # The default mode (CU: a block uses one compute unit, WGP: two) differs between versions of hiprtc. Chips
    # before RDNA have only CU mode.
    compute_unit_mode = () if target.startswith("gfx9") else ("-mcumode",)
    return (f"--gpu-architecture={target}", "-std=c++17", "-O3", *compute_unit_mode)


def compile_cached(rtc: Rtc, compiler: str, target: str, source: str, folder: Optional[Path]) -> Compiled:
    """Compile ``source`` for ``target`` (e.g. "gfx1030"), or read the code from the cache ``folder``.

    ``compiler`` is the compiler's name and version. An unreadable or unwritable cache is ignored.

    Raises:
        KernelsUnavailable: if the compiler fails, with its log.
    """
    given = options(target)
    path = None if folder is None else folder / _name(source, target, compiler, given)
    code = None if path is None else _read(path)
    if code is not None:
        return Compiled(code, "", True, 0.0)
    started = time.perf_counter()
    try:
        code, log = rtc.compile(source, given)
    except CompileFailed as failure:
        raise KernelsUnavailable(
            f"{compiler} does not compile the kernels for {target}", failure.log
        ) from None
    except (CallFailed, NotAvailable) as failure:
        raise KernelsUnavailable(f"{compiler} fails: {failure}") from None
    seconds = time.perf_counter() - started
    if path is not None:
        with suppress(OSError):
            output.make_folder(path.parent)
            output.write(path, _MAGIC + _checksum(code) + code, force=True)
    return Compiled(code, log, False, seconds)


def _name(source: str, target: str, compiler: str, given: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join((source, target, compiler, *given)).encode()).hexdigest()
    return f"{re.sub('[^a-z0-9_]+', '-', target).strip('-')}-{digest[:32]}.code"


def _read(path: Path) -> Optional[bytes]:
    try:
        with path.open("rb") as stream:
            # Another user's code would run with the rights of this user.
            if not output.is_trusted(os.fstat(stream.fileno())):
                return None
            content = stream.read(_LARGEST)
    except OSError:
        return None
    start = len(_MAGIC) + _CHECKSUM_BYTES
    if not content.startswith(_MAGIC) or content[len(_MAGIC) : start] != _checksum(content[start:]):
        return None
    return content[start:]


def _checksum(code: bytes) -> bytes:
    return hashlib.sha256(code).digest()
