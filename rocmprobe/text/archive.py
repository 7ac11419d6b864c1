"""Zip files of a fixed form: only regular files with known names and limited sizes."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from collections.abc import Callable, Sequence
from typing import BinaryIO, Optional

from rocmprobe.text.plain_text import quoted

#: Errors that the standard library raises for a damaged zip file, in addition to ``zlib.error``.
DAMAGED = (zipfile.BadZipFile, EOFError, RuntimeError, ValueError)
#: Date of every file in an archive: the earliest that the format supports.
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = stat.S_IFREG | 0o644
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: Sizes in bytes of a file's header, of its entry in the zip directory, and of the end record (PKWARE,
#: APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16).
_HEADER_BYTES, _DIRECTORY_BYTES, _END_BYTES = 30, 46, 22
_PIECE = 1 << 20


class Unacceptable(Exception):
    """Raised if a zip file does not have the required form."""


def entry_for(name: str, size: int) -> zipfile.ZipInfo:
    """Return the zip entry for a regular file, with a fixed date and fixed permissions."""
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
    entry.external_attr = _MODE << 16
    entry.file_size = size
    return entry


def check_entries(
    entries: Sequence[zipfile.ZipInfo], largest: Callable[[str], Optional[int]], expected: str
) -> None:
    """Raise Unacceptable for the first entry with a forbidden name, type, compression or size.

    ``largest`` returns the size limit in bytes for a file's name, or None if the name is forbidden.
    """
    # An untrusted zip file can give wrong sizes, or contain a link or a path outside its folder. Such a file
    # can also unpack to far more bytes than its own size.
    seen = set()
    for entry in entries:
        name = entry.orig_filename
        limit = largest(name)
        if limit is None:
            raise Unacceptable(f"contains a file called {quoted(name)}; {expected}")
        if name in seen:
            raise Unacceptable(f"contains {name} more than once")
        seen.add(name)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise Unacceptable(f"{name} is a link or another special file")
        if entry.flag_bits & 1 or entry.compress_type not in _METHODS:
            raise Unacceptable(f"{name} is encrypted, or has an unsupported compression")
        if entry.file_size > limit:
            raise Unacceptable(f"{name} is larger than {limit:,} bytes once it is unpacked")


def is_dense(entries: Sequence[zipfile.ZipInfo], size: int) -> bool:
    """Return True if the entries fill a zip file of ``size`` bytes completely."""
    headers = sum(2 * len(entry.filename) + _HEADER_BYTES + _DIRECTORY_BYTES for entry in entries)
    return headers + sum(entry.compress_size for entry in entries) + _END_BYTES == size


def copy_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: BinaryIO) -> str:
    """Write the content of an entry to ``target``, and return the SHA-256.

    Raise Unacceptable if the real size differs from the declared size.
    """
    digest, left = hashlib.sha256(), entry.file_size
    with archive.open(entry) as stream:
        while piece := stream.read(min(_PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                break
            digest.update(piece)
            target.write(piece)
    if left:
        raise Unacceptable(f"{entry.filename} has a different size than the zip file states")
    return digest.hexdigest()
