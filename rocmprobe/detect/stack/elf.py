"""Reader for the sections and the library dependencies of a shared library.

Format: the ELF-64 object file format, and the dynamic tags of the System V ABI. pyelftools is not used,
because importing it takes a third of the time of ``rocmprobe detect``.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from rocmprobe.detect.tree import ReadError

_MAGIC_64_LITTLE = b"\x7fELF\x02\x01"
_FILE_HEADER = struct.Struct("<16s2HI3QI6H")
_SECTION_HEADER = struct.Struct("<2I4Q2I2Q")
_DYNAMIC = struct.Struct("<qQ")
_NEEDED, _RPATH, _RUNPATH = 1, 15, 29
#: Limits that no real library exceeds. A file that exceeds them is damaged.
_MOST_SECTIONS = 1024
_MOST_DYNAMIC = 4096
_NAMES_BYTES = 1 << 16
_LONGEST_STRING = 4096


@dataclass(frozen=True)
class Section:
    offset: int
    size: int


@dataclass(frozen=True)
class Links:
    """The libraries and search folders that a shared library lists for the dynamic loader."""

    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def read_sections(handle: int) -> dict[str, Section]:
    """Return the sections by name.

    Raises ReadError if the file is not a 64-bit ELF file with a section table.
    """
    head = _read(handle, _FILE_HEADER.size, 0)
    if not head.startswith(_MAGIC_64_LITTLE):
        raise ReadError("not a 64-bit ELF file")
    fields = _FILE_HEADER.unpack(head)
    table, entry_size, count, names_index = fields[6], fields[11], fields[12], fields[13]
    if entry_size != _SECTION_HEADER.size or not names_index < count <= _MOST_SECTIONS:
        raise ReadError("an ELF file without a section table")
    headers = list(_SECTION_HEADER.iter_unpack(_read(handle, entry_size * count, table)))
    names = _read(handle, min(headers[names_index][5], _NAMES_BYTES), headers[names_index][4])
    return {_string(names, header[0]): Section(header[4], header[5]) for header in headers}


def read_links(handle: int) -> Links:
    """Return the needed libraries, DT_RPATH and DT_RUNPATH of a shared library.

    Raises ReadError if the file cannot be read or is not a shared library.
    """
    sections = read_sections(handle)
    dynamic, strings = sections.get(".dynamic"), sections.get(".dynstr")
    if dynamic is None or strings is None:
        raise ReadError("not a shared library: no dynamic section")
    count = min(dynamic.size // _DYNAMIC.size, _MOST_DYNAMIC)
    entries: dict[int, list[str]] = {_NEEDED: [], _RPATH: [], _RUNPATH: []}
    for tag, value in _DYNAMIC.iter_unpack(_read(handle, count * _DYNAMIC.size, dynamic.offset)):
        if tag in entries and value < strings.size:
            # The string table of libtorch_hip.so has tens of megabytes, so read only the needed string.
            entries[tag].append(_string(read_at(handle, _LONGEST_STRING, strings.offset + value), 0))
    folders = {
        tag: tuple(":".join(entries[tag]).split(":")) if entries[tag] else () for tag in (_RPATH, _RUNPATH)
    }
    return Links(tuple(entries[_NEEDED]), folders[_RPATH], folders[_RUNPATH])


def read_at(handle: int, size: int, offset: int) -> bytes:
    """Return up to ``size`` bytes from ``offset``.

    Raises ReadError if ``offset`` is too large for a file.
    """
    try:
        return os.pread(handle, size, offset)
    except OverflowError as error:
        raise ReadError("a damaged ELF file") from error


def _read(handle: int, size: int, offset: int) -> bytes:
    data = read_at(handle, size, offset)
    if len(data) < size:
        raise ReadError("a truncated ELF file")
    return data


def _string(table: bytes, start: int) -> str:
    return table[start:].partition(b"\0")[0].decode("utf-8", "replace")
