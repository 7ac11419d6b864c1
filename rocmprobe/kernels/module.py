"""Kernels on one device: compiled or read from the cache, then loaded and launched.

This module does not check whether the kernels may be used (see ``gate.py``).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Optional, Union

from rocmprobe.kernels import code_object, isa
from rocmprobe.kernels.compilation import cache_folder, compile_cached
from rocmprobe.kernels.launches import Launch
from rocmprobe.kernels.sources import source_hash, source_text
from rocmprobe.kernels.unavailable import KernelsUnavailable
from rocmprobe.runtimes import loaded
from rocmprobe.runtimes.calls import CallFailed, LoadFailed, NotAvailable
from rocmprobe.runtimes.hip import Hip
from rocmprobe.runtimes.rtc import Rtc


class KernelDevice:
    """A device of the HIP runtime that this process has loaded.

    ``index`` is N in torch's ``cuda:N``.

    Raises:
        KernelsUnavailable: if no runtime is loaded or its functions are missing, if the native ISA is
            unknown, or if the effective ISA is not supported (see ``isa.hip_target``).
    """

    def __init__(self, index: int) -> None:
        self.index = index
        with _unavailable("the GPU runtime"):
            path = loaded.hip()
            loaded.require_resident(path)
            self.runtime = Hip(path)
            self.modules = self.runtime.modules
        try:
            version = self.runtime.runtime_version()
            shown = self.runtime.arch_name(index)
        except (CallFailed, NotAvailable) as failure:
            raise self.failed(failure) from None
        #: Version such as "HIP 60443484".
        self.version = f"HIP {version}"
        chip = isa.native_chip(self._pci_address())
        self.target = isa.hip_target(shown, chip.isa)
        self.compute_units = chip.compute_units
        self._rtc: Optional[Rtc] = None

    def rtc(self) -> Rtc:
        """Return the runtime compiler. Raise KernelsUnavailable if the library cannot be loaded."""
        if self._rtc is None:
            with _unavailable("the compiler"):
                self._rtc = Rtc(loaded.hiprtc())
        return self._rtc

    def compiler(self) -> str:
        """Return the compiler's name and version, and the runtime's version.

        Raise KernelsUnavailable if the compiler cannot be loaded or does not report its version.
        """
        rtc = self.rtc()
        with _unavailable("the compiler"):
            return f"hiprtc {rtc.version()} of {self.version}"

    def identity(self) -> dict[str, str]:
        """Return the facts on which a self-test verdict depends: chip, effective ISA, runtime and source."""
        return {
            "native": self.target.native,
            "effective": self.target.effective,
            "runtime": self.version,
            "source": source_hash(),
        }

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this device the thread's current device inside the ``with`` block.

        Raise KernelsUnavailable if a call of the runtime in the block fails.
        """
        try:
            with self.runtime.on(self.index):
                yield
        except (CallFailed, NotAvailable) as failure:
            raise self.failed(failure) from None

    def failed(self, failure: Exception, what: str = "the device") -> KernelsUnavailable:
        """Clear HIP's last error, and return the exception to raise for a failed call."""
        # Otherwise, torch would report the error after a later call.
        self.runtime.forget_error()
        return KernelsUnavailable(f"{what}: {failure}")

    def _pci_address(self) -> Optional[str]:
        try:
            return self.runtime.pci_address(self.index)
        except (CallFailed, NotAvailable):
            self.runtime.forget_error()
            return None


class Module:
    """Kernels of one dtype, loaded on a device.

    Attributes:
        kernels: resources of all compiled kernels by name, from the metadata of the code object.
        usable: names of the kernels that can be launched: those in ``passed`` that need no memory in place of
            registers. Without ``passed``, all kernels count as passed.

    ``folder`` is the cache folder, "" for the default folder, or None for no cache.

    Raises:
        KernelsUnavailable: if the code cannot be compiled or loaded. ``log`` has the errors of the compiler.
    """

    def __init__(
        self,
        device: KernelDevice,
        dtype: str,
        folder: Union[Path, str, None] = "",
        source: Optional[str] = None,
        passed: Optional[Collection[str]] = None,
    ) -> None:
        target = device.target
        self.device = device
        self.dtype = dtype
        self.compiled = compile_cached(
            device.rtc(),
            device.compiler(),
            target.compiled,
            source_text(dtype) if source is None else source,
            cache_folder(os.environ) if folder == "" else None if folder is None else Path(folder),
        )
        code = self.compiled.code
        try:
            self.kernels = code_object.kernels(code)
            if target.patched:
                code = code_object.with_isa(code, target.effective)
        except ValueError as error:
            raise KernelsUnavailable(f"{device.compiler()} made no code object: {error}") from None
        with device.current():
            try:
                self._module = device.modules.load(code)
            except CallFailed as failure:
                refusal = (
                    f"the kernels for {target.compiled} do not load on {target.native}, reported as "
                    f"{target.effective}"
                )
                raise device.failed(failure, refusal) from None
            # Look up the functions now, because a lookup is not possible while a graph is captured.
            self._functions = {
                name: device.modules.function(self._module, name)
                for name, kernel in self.kernels.items()
                if not kernel.refusal and (passed is None or name in passed)
            }
        self.usable = frozenset(self._functions)

    def launch(self, launches: Iterable[Launch], addresses: Mapping[str, int], stream: int = 0) -> None:
        """Queue launches on a stream (its handle, 0 for the default stream).

        Raises:
            KernelsUnavailable: if a kernel is not usable, or if a launch fails.
        """
        runtime, index = self.device.runtime, self.device.index
        # Switch the device only if necessary. This code runs for every convolution, and usually torch has
        # already made the device current.
        try:
            if runtime.is_current(index):
                self._queue(launches, addresses, stream)
            else:
                with runtime.on(index):
                    self._queue(launches, addresses, stream)
        except CallFailed as failure:
            raise self.device.failed(failure) from None

    def unload(self) -> None:
        """Unload the module. The caller must first wait for all queued launches."""
        with self.device.current():
            self.device.modules.unload(self._module)

    def _queue(self, launches: Iterable[Launch], addresses: Mapping[str, int], stream: int) -> None:
        queue = self.device.modules.launch
        for launch in launches:
            function = self._functions.get(launch.kernel)
            if function is None:
                known = self.kernels.get(launch.kernel)
                why = (known and known.refusal) or f"{launch.kernel} did not pass the self-test"
                raise KernelsUnavailable(why)
            queue(function, launch.grid, launch.threads, launch.filled(addresses), stream)


@contextmanager
def _unavailable(what: str) -> Iterator[None]:
    try:
        yield
    except (loaded.NotLoaded, LoadFailed, NotAvailable, CallFailed) as failure:
        raise KernelsUnavailable(f"{what}: {failure}") from None
