"""Calling into a shared library: every call has its status number and name, or a symbol that is missing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Optional

#: For argument types: any pointer, in or out; takes ``byref``, arrays, addresses and None.
POINTER = ctypes.c_void_p
INT = ctypes.c_int
SIZE = ctypes.c_size_t


@dataclass(frozen=True)
class Call:
    """One call; ``number`` is None while it runs: after a crash, the last call without one is to blame."""

    function: str
    number: Optional[int] = None
    name: str = ""


class CallFailed(Exception):
    """A call that returned another status than success."""

    def __init__(self, call: Call) -> None:
        super().__init__(f"{call.function}: {call.name} ({call.number})")
        self.call = call


class NotAvailable(Exception):
    """The library has no such function: it is older or newer than the call, or built without it."""

    def __init__(self, function: str, path: str) -> None:
        super().__init__(f"{path} has no {function}")
        self.function = function
        self.path = path


class LoadFailed(Exception):
    """The dynamic loader refuses the library; the message is the loader's own."""


@contextmanager
def released(release: Callable[[], None]) -> Iterator[None]:
    """``release`` at the end. After a failure it may fail too, as everything does on a device that is lost,
    and then does not hide the first one."""
    try:
        yield
    except BaseException:
        with suppress(CallFailed):
            release()
        raise
    release()


def load(path: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Have a library in the process, for those that ask for its SONAME later; ``mode`` as in dlopen(3).
    Raises LoadFailed."""
    try:
        return ctypes.CDLL(path, mode)
    except OSError as error:
        raise LoadFailed(str(error)) from None


Observer = Callable[[Call], None]


class SharedLibrary:
    """A loaded library whose functions return a status, zero for success.

    ``signatures`` gives the argument types of each function, without which ctypes would cut sizes and
    pointers to 32 bits. HIP is loaded first: what is loaded after it and needs its SONAME gets the same
    copy. ``observe`` gets each Call twice: when it starts, and when it has returned.
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
        """The function itself. Raises NotAvailable."""
        try:
            return getattr(self._library, function)
        except AttributeError:
            raise NotAvailable(function, self.path) from None

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of ``signatures``. Raises CallFailed and NotAvailable."""
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
        """Call a function of ``signatures`` that returns nothing. Raises NotAvailable."""
        entry = self.symbol(function)
        entry.argtypes = self._signatures[function]
        entry.restype = None
        if self._observe:
            self._observe(Call(function))
        entry(*arguments)
        if self._observe:
            self._observe(Call(function, 0, "returned"))

    def prepared(self, function: str) -> Any:
        """A function of ``signatures``, to be called often: it returns its status, ``failed`` says what that
        is. Raises NotAvailable."""
        entry = self.symbol(function)
        entry.argtypes = self._signatures[function]
        entry.restype = INT
        return entry

    def failed(self, function: str, number: int) -> CallFailed:
        """What to raise for a status other than success of a ``prepared`` function."""
        return CallFailed(Call(function, number, self._status_name(self, number)))
