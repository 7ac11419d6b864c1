"""Search for results in files, folders, archives and patterns."""

from __future__ import annotations

import glob
import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Optional

from rocmprobe.text.plain_text import message, one_line
from rocmprobe.text.reading import BadInput, json_of

#: Size limit of a results.json in bytes. A file with 6,000 outcomes has 7 million bytes.
LARGEST_FILE = 64 * 2**20
#: Limits of one archive: unpacked size in bytes, and number of members.
LARGEST_ARCHIVE = 4 * 2**30
MOST_MEMBERS = 200_000
#: Largest nesting depth: an archive can contain bundles, which are archives, and bundles contain no archives.
_DEEPEST_ARCHIVE = 2
_TAR_ENDS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
_ARCHIVE_ENDS = (".zip", *_TAR_ENDS)
RESULTS, JOURNAL, SAMPLES = "results.json", "journal.jsonl", "samples.jsonl"
#: Name of the manifest in a bundle of `rocmprobe submit`.
MANIFEST = "manifest.json"
_DAMAGED = (
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile, tarfile.TarError,
    zlib.error,
)  # fmt: skip


class Refused(Exception):
    """Raised if a file is not accepted. The message does not name the file."""

    def __init__(self, reason: str) -> None:
        super().__init__(message(reason))


@dataclass(frozen=True)
class Source:
    """The content of one file, or the reason why the file is refused.

    ``name`` is a path, or ARCHIVE:MEMBER.
    """

    name: str
    content: bytes = b""
    label: str = ""
    refused: Optional[Refused] = None


def _refused(name: str, reason: str) -> Source:
    return Source(name, refused=Refused(reason))


def found(names: Sequence[str], by_folder: bool = False) -> Iterator[Source]:
    """Yield the files behind ``names``, which are files, folders, archives or patterns.

    If ``by_folder``, each file has a label for its machine:

    - file in ``names``: name of the folder that contains the file
    - file below a folder in ``names``: first subfolder on the path to the file, or the file's own name
      (without endings) if there is no subfolder
    - file in an archive in ``names``: first folder on the path inside the archive, or the label of the
      archive if there is no folder
    - file in any other archive: label of the archive

    An archive has the label that any other file in its place would have.
    """
    for name in names:
        if os.path.exists(name):
            yield from _named(Path(name), by_folder)
        elif glob.has_magic(name):
            matches = glob.glob(name, recursive=True)
            if not matches:
                yield _refused(name, "no file matches; quote the pattern, or name a folder")
            for match in matches:
                yield from _named(Path(match), by_folder)
        else:
            yield _refused(name, "no such file or folder")


def listed(stream: BinaryIO) -> list[str]:
    """Read a list of names, separated by newlines or by NUL (``find -print0``)."""
    content = stream.read(LARGEST_FILE)
    names = content.split(b"\0") if b"\0" in content else content.splitlines()
    return [os.fsdecode(name) for name in names if name.strip()]


def _named(path: Path, by_folder: bool) -> Iterator[Source]:
    if path.is_dir():
        yield from _folder(path, by_folder)
    else:
        folder = path.resolve().parent.name if by_folder else ""
        yield from _file(path, str(path), folder, by_folder)


def _folder(root: Path, by_folder: bool) -> Iterator[Source]:
    unread: list[OSError] = []
    # Do not follow links: `reports/latest` would count twice, and links can form a loop.
    for folder, below, names in os.walk(root, onerror=unread.append):
        below.sort()
        if JOURNAL in names and RESULTS not in names:
            mend = f"`rocmprobe report {folder}` writes it from the journal"
            yield _refused(folder, f"a run that died before it wrote {RESULTS}; {mend}")
        for name in sorted(names):
            if not _wanted(name):
                continue
            path = Path(folder) / name
            steps = path.relative_to(root).parts
            label = (steps[0] if len(steps) > 1 else _stem(name)) if by_folder else ""
            yield from _file(path, str(path), label, False)
    for error in unread:
        yield _refused(str(error.filename), f"cannot be read ({error.strerror})")


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _file(path: Path, name: str, label: str, by_folder: bool) -> Iterator[Source]:
    try:
        if not path.is_file():
            yield _refused(name, "not a file")
            return
        if name.lower().endswith(_ARCHIVE_ENDS):
            yield from _archive(path, name, label, by_folder)
            return
        with path.open("rb") as stream:
            # Do not always request LARGEST_FILE bytes, because freeing such a buffer takes longer than
            # reading an ordinary file.
            size = os.fstat(stream.fileno()).st_size
            content = stream.read(min(size, LARGEST_FILE) + 1)
    except OSError as error:
        yield _refused(name, f"cannot be read ({error.strerror})")
        return
    yield _whole(name, content, label)


def _whole(name: str, content: bytes, label: str) -> Source:
    if len(content) > LARGEST_FILE:
        return _refused(name, f"larger than {LARGEST_FILE:,} bytes")
    return Source(name, content, label)


def _archive(path: Path, name: str, label: str, by_folder: bool) -> Iterator[Source]:
    try:
        with path.open("rb") as stream:
            yield from _Archive(name, label, by_folder).read(stream)
    except _DAMAGED as error:
        yield _refused(name, f"the archive is damaged ({one_line(str(error))})")


class _Archive:
    def __init__(self, name: str, label: str, by_folder: bool, depth: int = 1) -> None:
        self.name = name
        self.label = label
        self.by_folder = by_folder
        self.depth = depth
        self._left = LARGEST_ARCHIVE

    def read(self, stream: BinaryIO) -> Iterator[Source]:
        if self.name.lower().endswith(".zip"):
            yield from self._zip(stream)
        else:
            yield from self._tar(stream)

    def _zip(self, stream: BinaryIO) -> Iterator[Source]:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            manifests = [each for each in members if each.filename == MANIFEST]
            if manifests and not self.label:
                with archive.open(manifests[0]) as member:
                    self.label = _label(member.read(2**20))
            for number, info in enumerate(members):
                if number >= MOST_MEMBERS or self._left <= 0:
                    yield self._too_large()
                    return
                if info.is_dir() or not _wanted(info.filename):
                    continue
                try:
                    with archive.open(info) as opened:
                        content = opened.read(LARGEST_FILE + 1)
                except _DAMAGED as error:
                    yield _refused(f"{self.name}:{info.filename}", f"damaged ({one_line(str(error))})")
                    continue
                yield from self._member(info.filename, content)

    def _tar(self, stream: BinaryIO) -> Iterator[Source]:
        with tarfile.open(fileobj=stream, mode="r|*") as archive:
            for number, info in enumerate(archive):
                # tarfile also unpacks members that are skipped here, so subtract their sizes. The sizes of
                # the members that are read are subtracted in ``_member``.
                self._left -= 0 if _wanted(info.name) else info.size
                if number >= MOST_MEMBERS or self._left <= 0:
                    yield self._too_large()
                    return
                opened = archive.extractfile(info) if info.isfile() and _wanted(info.name) else None
                if opened is not None:
                    yield from self._member(info.name, opened.read(LARGEST_FILE + 1))
                # Drop the list of members, which would otherwise grow in memory.
                archive.members = []  # type: ignore[attr-defined]

    def _too_large(self) -> Source:
        return _refused(
            self.name,
            f"has more than {MOST_MEMBERS:,} members or unpacks to more than {LARGEST_ARCHIVE:,} bytes; the "
            "rest is left out",
        )

    def _member(self, member: str, content: bytes) -> Iterator[Source]:
        self._left -= len(content)
        name = f"{self.name}:{member}"
        label = self.label
        if self.by_folder:
            steps = PurePosixPath(member).parts
            label = steps[0] if len(steps) > 1 else label or _stem(Path(self.name).name)
        if not member.lower().endswith(_ARCHIVE_ENDS):
            yield _whole(name, content, label)
        elif self.depth >= _DEEPEST_ARCHIVE:
            yield _refused(name, "an archive in an archive in an archive; unpack it")
        elif len(content) > LARGEST_FILE:
            yield _refused(name, f"larger than {LARGEST_FILE:,} bytes; unpack it")
        else:
            try:
                inner = _Archive(name, label, False, self.depth + 1)
                yield from inner.read(io.BytesIO(content))
            except _DAMAGED as error:
                yield _refused(name, f"the archive is damaged ({one_line(str(error))})")


def _wanted(member: str) -> bool:
    name = member.lower()
    return name.endswith((".json", *_ARCHIVE_ENDS)) and PurePosixPath(name).name != MANIFEST


def _label(manifest: bytes) -> str:
    try:
        data = json_of(manifest, MANIFEST, "")
    except BadInput:
        return ""
    label: Optional[Any] = data.get("label") if isinstance(data, dict) else None
    return one_line(label, 80) if isinstance(label, str) else ""
