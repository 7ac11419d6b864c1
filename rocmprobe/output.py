"""Writer for output files: atomic, and never over a file of somebody else."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Optional

from rocmprobe.lifetime import is_running

#: Beginnings of the files that rocmprobe writes.
_KINDS = tuple(
    re.compile(beginning, re.DOTALL)
    for beginning in (
        rb'\s*\{\s*"schema_version"',
        rb"<!DOCTYPE html>.*rocmprobe</title>",
        rb'<\?xml[^>]*>\s*<testsuites name="rocmprobe"',
        rb"# rocmprobe: ",
        rb"# rocmprobe install: ",
        rb"Title: `|\*\*Do not file this|Nothing failed in this run",
    )
)
_BEGINNING = 4096
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
#: Without this flag, Windows changes line ends.
_BINARY = getattr(os, "O_BINARY", 0)
_TEMPORARY = re.compile(r"\.(\d+)\.tmp")
_DEVICES = ("/dev", "/dev/fd", "/proc/self/fd")


def write(path: Path, content: bytes, force: bool = False) -> None:
    """Write ``content`` to ``path`` atomically. Raise OSError with the path if this fails.

    Unless ``force``, also raise OSError if ``path`` is a link or a file that rocmprobe did not write. With
    ``force``, replace the link and not its target. If ``path`` is a device or a pipe, write to it directly.
    """
    try:
        if _is_device(path):
            path.write_bytes(content)
            return
        if not force and (why := foreign(path, content)):
            raise OSError(errno.EEXIST, f"{why}; --force replaces it")
        _replace(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def foreign(path: Path, content: bytes = b"") -> str:
    """Return why ``path`` must not be replaced: a link, or a file that rocmprobe did not write, or "".

    If ``content`` is given, the file must also be of the same kind, e.g. JSON. Raise OSError if the file
    cannot be read.
    """
    if path.is_symlink():
        return f"is a link to {os.readlink(path)}"
    if not path.exists():
        return ""
    with path.open("rb") as stream:
        beginning = stream.read(_BEGINNING)
    if beginning and (_kind(beginning) is None or (content and _kind(beginning) != _kind(content))):
        return "is not an earlier output of this command"
    return ""


def append(path: Path, content: bytes) -> None:
    """Append ``content`` to the file ``path``. Raise OSError if this fails, or if ``path`` is a link."""
    no_link = 0 if _is_device(path) else _NO_LINK
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _BINARY | no_link, 0o666)
    with os.fdopen(descriptor, "ab") as stream:
        stream.write(content)


def make_folder(path: Path) -> None:
    """Create a folder and its parents. Raise OSError if ``path`` is a link or belongs to another user."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.EPERM, "is a link", str(path))
    if not is_trusted(path.stat()):
        raise OSError(errno.EPERM, "belongs to another user", str(path))


def is_trusted(status: os.stat_result) -> bool:
    """Return True if a file or folder belongs to root, to this user, or to the owner of the user's home.

    In a container, the home of another user can be mounted. On Windows, always return True.
    """
    if not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid()):
        return True
    with suppress(OSError):
        return status.st_uid == os.stat(os.path.expanduser("~")).st_uid
    return False


def _is_device(path: Path) -> bool:
    # /dev/stdout is a link, possibly to a regular file.
    return str(path.parent) in _DEVICES or (path.exists() and not path.is_file())


def _kind(content: bytes) -> Optional[int]:
    beginning = content[:_BEGINNING]
    return next((number for number, kind in enumerate(_KINDS) if kind.match(beginning)), None)


def _replace(path: Path, content: bytes) -> None:
    _remove_temporaries(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY | _NO_LINK, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _remove_temporaries(path: Path) -> None:
    """Remove the temporary files that killed processes left in the folder of ``path``."""
    start = f".{path.name}"
    for name in os.listdir(path.parent):
        match = _TEMPORARY.fullmatch(name, len(start)) if name.startswith(start) else None
        if match and (int(match[1]) == os.getpid() or not is_running(int(match[1]))):
            with suppress(OSError):
                (path.parent / name).unlink()
