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

    ``number`` is the status that the function returned, or None while the call runs. ``name`` is the name of
    the status.
    """

    function: str
    number: Optional[int] = None
    name: str = ""


class CallFailed(Exception):
    """A call returned a status other than success."""

    def __init__(self, call: Call) -> None:
        super().__init__(f"{call.function}: {call.name} ({call.number})")
        self.call = call


class NotAvailable(Exception):
    """The library does not have a function, because of its version or a build option."""

    def __init__(self, function: str, path: str) -> None:
        super().__init__(f"{path} has no {function}")
        self.function = function
        self.path = path


class LoadFailed(Exception):
    """The dynamic loader cannot load a library. The message is the loader's."""


@contextmanager
def releasing(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` at the end of the ``with`` block, even after an exception.

    If the block raised an exception, a CallFailed from ``release`` is suppressed, so that the first exception
    is raised.
    """
    try:
        yield
    except BaseException:
        with suppress(CallFailed):
            release()
        raise
    release()


def load(path: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Load a library into the process. Libraries that are loaded later find this library by its SONAME.

    ``mode`` is as in dlopen(3). Raises LoadFailed if the dynamic loader cannot load the library.
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
        """Return the ctypes function. Raises NotAvailable if the library does not have the function."""
        try:
            return getattr(self._library, function)
        except AttributeError:
            raise NotAvailable(function, self.path) from None

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function in ``signatures``.

        Raises CallFailed if the status is not success. Raises NotAvailable if the library does not have the
        function.
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

    def call_procedure(self, function: str, *arguments: Any) -> None:
        """Call a function in ``signatures`` that returns nothing.

        Raises NotAvailable if the library does not have the function.
        """
        entry = self.symbol(function)
        entry.argtypes = self._signatures[function]
        entry.restype = None
        if self._observe:
            self._observe(Call(function))
        entry(*arguments)
        if self._observe:
            self._observe(Call(function, 0, "returned"))

    def prepared(self, function: str) -> Any:
        """Return the ctypes function for frequent calls, with its argument types set.

        Calls of the ctypes function return the status and are not observed. ``error_for`` returns the
        exception for an error status. Raises NotAvailable if the library does not have the function.
        """
        entry = self.symbol(function)
        entry.argtypes = self._signatures[function]
        entry.restype = INT
        return entry

    def error_for(self, function: str, number: int) -> CallFailed:
        """Return the exception for the error ``number``, which a function from ``prepared`` returned."""
        return CallFailed(Call(function, number, self._status_name(self, number)))
