"""Wrappers for calls into a shared library: a call has a status, or its symbol is missing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Optional

#: For argument types: any pointer, in or out. Accepts ``byref``, arrays, addresses and None.
POINTER = ctypes.c_void_p
INT = ctypes.c_int
SIZE = ctypes.c_size_t


@dataclass(frozen=True)
class Call:
    """A call of a library function.

    ``number`` is the status that the function returned, and ``name`` the name of this status. ``number`` is
    None while the call runs. After a crash, the last call without a number is the cause.
    """

    function: str
    number: Optional[int] = None
    name: str = ""


class CallFailed(Exception):
    """A call that returned a status other than success."""

    def __init__(self, call: Call) -> None:
        super().__init__(f"{call.function}: {call.name} ({call.number})")
        self.call = call


class NotAvailable(Exception):
    """The library lacks a function, because of an older or newer version or a build option."""

    def __init__(self, function: str, path: str) -> None:
        super().__init__(f"{path} has no {function}")
        self.function = function
        self.path = path


class LoadFailed(Exception):
    """A library that the dynamic loader refuses. The message is the loader's own."""


@contextmanager
def released(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` when the block ends, also after an exception.

    After an exception, ``release`` often fails, too, as every call does on a lost device. Then raise the
    first exception, and ignore the error of ``release``.
    """
    try:
        yield
    except BaseException:
        with suppress(CallFailed):
            release()
        raise
    release()


def load(path: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Load a library into the process, for libraries that request its SONAME later.

    ``mode`` is as in dlopen(3). Raises LoadFailed if the dynamic loader refuses the library.
    """
    try:
        return ctypes.CDLL(path, mode)
    except OSError as error:
        raise LoadFailed(str(error)) from None


Observer = Callable[[Call], None]


class SharedLibrary:
    """A loaded library whose functions return a status, zero for success.

    ``signatures`` gives the argument types of each function. Without argument types, ctypes would cut sizes
    and pointers to 32 bits. HIP is loaded first, so that libraries that are loaded later and need its SONAME
    get the same copy. ``observe`` is called when a call starts, and again when the call has returned.
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
        """Return the function as ctypes gives it. Raises NotAvailable if the library lacks the function."""
        try:
            return getattr(self._library, function)
        except AttributeError:
            raise NotAvailable(function, self.path) from None

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of ``signatures``.

        Raises CallFailed if the status is not success, and NotAvailable if the library lacks the function.
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
        """Call a function of ``signatures`` that returns nothing.

        Raises NotAvailable if the library lacks the function.
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
        """Return a function of ``signatures`` for frequent calls, with its argument types set.

        Calls of the returned function are not observed and raise no exception. They return the status, which
        ``failed`` turns into an exception. Raises NotAvailable if the library lacks the function.
        """
        entry = self.symbol(function)
        entry.argtypes = self._signatures[function]
        entry.restype = INT
        return entry

    def failed(self, function: str, number: int) -> CallFailed:
        """Return the exception for a status other than success of a ``prepared`` function."""
        return CallFailed(Call(function, number, self._status_name(self, number)))
