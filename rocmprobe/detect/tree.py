"""Reader for the files of this machine or of a recorded copy."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Optional

from rocmprobe.model.results import Fact

#: Largest number of bytes that are read of a file. The largest file is /proc/cpuinfo of a big server.
LIMIT = 1 << 20
_MAX_LINKS = 40
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
#: Source of facts that a recorded tree cannot contain.
NOT_LOOKED_UP = "not looked up: --root"


class ReadError(Exception):
    """Raised if a file cannot be read or is damaged."""


class Tree:
    """The files of this machine, or of a recorded machine whose files are below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.own = root == Path("/")

    @contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """Open a regular file and yield its descriptor. Do not wait if ``name`` is a pipe or a device.

        Raises ReadError if the file is not regular or cannot be opened. An OSError in the block also becomes
        a ReadError.
        """
        try:
            handle = os.open(self.locate(name), os.O_RDONLY | _NONBLOCK)
        except OSError as error:
            raise ReadError((error.strerror or "unreadable").lower()) from error
        except ValueError as error:
            raise ReadError("not a file name") from error
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ReadError("not a file")
            yield handle
        except OSError as error:
            raise ReadError((error.strerror or "unreadable").lower()) from error
        finally:
            os.close(handle)

    def read(self, name: str, limit: int = LIMIT, tail: bool = False) -> str:
        """Return at most ``limit`` bytes of a file as text, without NUL bytes.

        If ``tail`` is True, return the end of the file. Raises ReadError if the file cannot be read.
        """
        data = b""
        with self.opened(name) as handle:
            if tail:
                os.lseek(handle, max(0, os.fstat(handle).st_size - limit), os.SEEK_SET)
            # Read in a loop, because sysfs and procfs return about a page at a time.
            while len(data) < limit and (piece := os.read(handle, limit - len(data))):
                data += piece
        return data.replace(b"\0", b"").decode("utf-8", "replace")

    def text(self, name: str) -> Optional[str]:
        """Return the stripped text of a file, or None if the file is unreadable or empty."""
        try:
            return self.read(name).strip() or None
        except ReadError:
            return None

    def fact(self, name: str) -> Fact:
        """Return the stripped text of a file as a fact."""
        try:
            text = self.read(name).strip()
        except ReadError as error:
            return Fact(None, f"{name}: {error}")
        return Fact(text, name) if text else Fact(None, f"{name}: empty")

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder, or [] if the folder cannot be listed."""
        try:
            return sorted(os.listdir(self.locate(folder)))
        except (OSError, ValueError):
            return []

    def why_not(self, folder: str) -> str:
        """Return why ``names`` is empty for a folder, e.g. "<folder>: no such file or directory"."""
        try:
            os.listdir(self.locate(folder))
        except (OSError, ValueError) as error:
            return f"{folder}: {(getattr(error, 'strerror', None) or 'unreadable').lower()}"
        return f"{folder}: empty"

    def exists(self, name: str) -> bool:
        try:
            return os.path.exists(self.locate(name))
        except (OSError, ValueError):
            return False

    def real(self, name: str) -> str:
        """Return the absolute path of ``name`` on the recorded machine, with symbolic links resolved.

        Raises OSError for a loop of links.
        """
        return str(self._follow(name))

    def locate(self, name: str) -> Path:
        """Return the path at which this process can open the file ``name``.

        Links in a recorded tree never lead to this machine's files. Raises OSError for a loop of links.
        """
        if self.own:
            return Path(name)
        return self.root / self._follow(name).relative_to("/")

    def _follow(self, name: str) -> PurePosixPath:
        todo = list(reversed(PurePosixPath("/", name).parts[1:]))
        here = PurePosixPath("/")
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                here = here.parent
                continue
            step = here / part
            try:
                target = PurePosixPath(os.readlink(self.root / step.relative_to("/")))
            except OSError:
                here = step
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(40, "too many levels of symbolic links")
            if target.is_absolute():
                here = PurePosixPath("/")
                todo.extend(reversed(target.parts[1:]))
            else:
                todo.extend(reversed(target.parts))
        return here


def shown_below_home(path: str, environ: Mapping[str, str]) -> str:
    """Return an absolute path with ``~`` in place of the user's home folder, whose name is private."""
    home = environ.get("HOME")
    path = os.path.normpath(path)
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def number(text: Optional[str]) -> Optional[int]:
    """Return the integer in ``text``, e.g. "12" or "0xc".

    Return None if ``text`` is not an integer from 0 to 2**64 - 1.
    """
    try:
        value = int((text or "").strip(), 0)
    except ValueError:
        return None
    return value if 0 <= value < 2**64 else None
