"""Interface to shared libraries whose functions return a status."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Optional

#: Argument type of any pointer. It accepts ``byref``, arrays, addresses and None.
POINTER = ctypes.c_void_p
INT = ctypes.c_int
SIZE = ctypes.c_size_t


@dataclass(frozen=True)
class Call:
    """A call of a library function.

    Attributes:
        number: status that the function returned, or None while the function runs.
        name: name of the status.
    """

    function: str
    number: Optional[int] = None
    name: str = ""


class CallFailed(Exception):
    """A library function returned an error status."""

    def __init__(self, call: Call) -> None:
        super().__init__(f"{call.function}: {call.name} ({call.number})")
        self.call = call


class NotAvailable(Exception):
    """The library has no function of this name, because of its version or a build option."""

    def __init__(self, function: str, path: str) -> None:
        super().__init__(f"{path} has no {function}")
        self.function = function
        self.path = path


class LoadFailed(Exception):
    """The dynamic loader cannot load a library."""


@contextmanager
def releasing(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` at the end of the ``with`` block, even after an exception.

    An exception from the block takes precedence over a CallFailed from ``release``.
    """
    try:
        yield
    except BaseException:
        with suppress(CallFailed):
            release()
        raise
    release()


def load(path: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Load a library into the process. ``mode`` is as in dlopen(3).

    Raises LoadFailed if the dynamic loader cannot load the library.
    """
    try:
        return ctypes.CDLL(path, mode)
    except OSError as error:
        raise LoadFailed(str(error)) from None


Observer = Callable[[Call], None]


class SharedLibrary:
    """A loaded library whose functions return a status, zero for success.

    ``signatures`` are the argument types of each function. ``observe`` is called before and after each call.
    Load HIP before libraries that depend on HIP.
    """

    def __init__(
        self,
        path: str,
        signatures: Mapping[str, tuple[Any, ...]],
        status_name: Callable[[SharedLibrary, int], str],
        observe: Optional[Observer] = None,
    ) -> None:
        self.path = path
        self._signatures = signatures
        self._status_name = status_name
        self._observe = observe
        self._library = load(path)

    def has(self, function: str) -> bool:
        return hasattr(self._library, function)

    def symbol(self, function: str) -> Any:
        """Return the ctypes function. Raises NotAvailable if the function is missing."""
        try:
            return getattr(self._library, function)
        except AttributeError:
            raise NotAvailable(function, self.path) from None

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function in ``signatures``.

        Raises CallFailed if the function returns an error status, NotAvailable if the function is missing.
        """
        entry = self.prepared(function)
        if self._observe:
            self._observe(Call(function))
        number = entry(*arguments)
        done = Call(function, number, self._status_name(self, number))
        if self._observe:
            self._observe(done)
        if number:
            raise CallFailed(done)

    def prepared(self, function: str) -> Any:
        """Return the ctypes function with its argument types set, for frequent calls without an observer.

        The ctypes function returns the status. Raises NotAvailable if the function is missing.
        """
        entry = self.symbol(function)
        entry.argtypes = self._signatures[function]
        entry.restype = INT
        return entry

    def error_for(self, function: str, number: int) -> CallFailed:
        """Return the exception for an error status of a function from ``prepared``."""
        return CallFailed(Call(function, number, self._status_name(self, number)))
