"""The zip file of a bundle: written the same from the same files, and read as something that anybody may have
made.

Reading follows the format's own description (PKWARE, APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12, 4.3.16): a
bundle is its entries one after the other, the directory of them, and the record that ends it, without a gap.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping

from rocmprobe.text.plain_text import message, quoted

MANIFEST, RESULTS, JOURNAL, SAMPLES = "manifest.json", "results.json", "journal.jsonl", "samples.jsonl"
#: The files of a bundle, in their order, and the most bytes that each may have once it is unpacked.
LARGEST_FILES: Mapping[str, int] = {
    MANIFEST: 64 * 2**10, RESULTS: 64 * 2**20, JOURNAL: 128 * 2**20, SAMPLES: 32 * 2**20,
}  # fmt: skip
#: What may be missing: only a run that watched sensors has samples.
OPTIONAL = frozenset({SAMPLES})
#: Bytes of a bundle; GitHub takes attachments of at most 25 MB.
LARGEST = 25_000_000
#: The date of every file in a bundle, the first that the format knows.
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = stat.S_IFREG | 0o644
_LOCAL_BYTES, _DIRECTORY_BYTES, _END_BYTES = 30, 46, 22
_END_MARK = b"PK\x05\x06"
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Refused(Exception):
    """Why something is no bundle to take, in one line."""

    def __init__(self, text: str) -> None:
        super().__init__(message(text))


def packed(files: Mapping[str, bytes]) -> bytes:
    """A zip file of ``files`` in the order of ``LARGEST_FILES``, with one date for all of them."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in LARGEST_FILES:
            if name in files:
                entry = zipfile.ZipInfo(name, _DATE)
                entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
                entry.external_attr = _MODE << 16
                archive.writestr(entry, files[name])
    return target.getvalue()


def unpacked(content: bytes) -> dict[str, bytes]:
    """The files of a bundle. Raises Refused for what is none, before it unpacks more than it may."""
    if len(content) > LARGEST:
        raise Refused(f"larger than {LARGEST:,} bytes")
    _refuse_many_entries(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            _refuse_entries(entries, len(content))
            return {entry.filename: _read(archive, entry) for entry in entries}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, struct.error) as error:
        raise Refused(f"a damaged zip file ({error})") from error


def _refuse_many_entries(content: bytes) -> None:
    """Look at the record that ends the file, before anything is made of a directory of a million entries."""
    end = content[-_END_BYTES:]
    if len(end) < _END_BYTES or not end.startswith(_END_MARK):
        raise Refused("no zip file, or one with data or a comment after its end")
    count, length = struct.unpack_from("<HL", end, 10)
    if count > len(LARGEST_FILES) or length > 1024:
        raise Refused(f"holds {count} files; a bundle has {', '.join(LARGEST_FILES)}")


def _refuse_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    names = [entry.filename for entry in entries]
    for entry in entries:
        name = entry.orig_filename
        if name not in LARGEST_FILES:
            raise Refused(f"holds a file called {quoted(name)}; a bundle has {', '.join(LARGEST_FILES)}")
        if names.count(name) > 1:
            raise Refused(f"holds {name} more than once")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise Refused(f"{name} is a link, or another kind of file that is no plain one")
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
            raise Refused(f"{name} is encrypted, or packed in a way that bundles do not use")
        if entry.file_size > LARGEST_FILES[name]:
            raise Refused(f"{name} is larger than {LARGEST_FILES[name]:,} bytes once it is unpacked")
    missing = [name for name in LARGEST_FILES if name not in names and name not in OPTIONAL]
    if missing:
        raise Refused(f"lacks {', '.join(missing)}")
    headers = sum(2 * len(name) + _LOCAL_BYTES + _DIRECTORY_BYTES for name in names)
    if headers + sum(entry.compress_size for entry in entries) + _END_BYTES != size:
        raise Refused("holds data beside its files; make it with `rocmprobe submit`")


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    with archive.open(entry) as stream:
        # The sizes that a zip file names are claims.
        content = stream.read(entry.file_size + 1)
    if len(content) != entry.file_size:
        raise Refused(f"{entry.filename} has another size than the zip file says")
    return content
