"""Packs of MIOpen's databases and compiled kernels, to share with owners of the same GPU.

A pack replaces the caches of ``rocmprobe exec`` only after every problem in the pack gave correct results.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sqlite3
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Optional

from rocmprobe import __version__
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine.journal import NAME, CannotWrite, NullJournal
from rocmprobe.engine.run import now
from rocmprobe.exec.caches import DATABASES, KERNELS, miopen_files
from rocmprobe.exec.warming import ConfiguredDevice
from rocmprobe.knowledge.miopen_files import database_name, user_file
from rocmprobe.model.problems import parse_problem
from rocmprobe.model.results import DIRECTIONS, BadInput, Outcome
from rocmprobe.model.results_file import from_json, replace_atomically, to_json
from rocmprobe.model.schema import Rule
from rocmprobe.process.guardian import guardian
from rocmprobe.text import archive, reading
from rocmprobe.text.plain_text import quoted

FORMAT = 1
MANIFEST = "pack.json"
#: Names of the folders in a pack, keyed by the environment variable with the path of the replaced folder.
_FOLDERS = {DATABASES: "db", KERNELS: "cache"}
_KINDS = {"db": ("ufdb", "udb", "updb"), "cache": ("ukdb",)}
#: Maximum sizes in bytes: of the manifest, of any other file, and of all files together after unpacking.
_LARGEST_MANIFEST, _LARGEST_FILE, _LARGEST = 4 << 20, 1 << 30, 2 << 30
#: Maximum number of problems. Testing a pack with more problems would take days.
_MOST_SHAPES = 5000
_SQLITE = b"SQLite format 3\0"
_EXPECTED = f"a pack has {MANIFEST}, and files of MIOpen for one GPU in db/ and cache/"
_REMEDY = "make it with `rocmprobe warm --pack`"


@dataclass(frozen=True)
class Origin:
    """The MIOpen version and the GPU for which a pack was made."""

    miopen: str
    native_isa: str
    effective_isa: str
    compute_units: Annotated[int, Rule("minimum", 1)]

    @property
    def words(self) -> str:
        isa = self.native_isa if self.native_isa == self.effective_isa else "{1} that runs as {0}"
        isa = isa.format(self.effective_isa, self.native_isa)
        return f"MIOpen {self.miopen} on {isa} with {self.compute_units} compute units"


@dataclass(frozen=True)
class PackedFile:
    """Checksum and size of a file in a pack."""

    sha256: str
    size: Annotated[int, Rule("minimum", 0)]


@dataclass(frozen=True)
class PackedShape:
    """A problem and direction whose first call is fast with the pack."""

    problem: str
    direction: str


@dataclass(frozen=True)
class Manifest:
    """Description of a pack, stored in ``pack.json``.

    ``variables`` are the environment variables of ``setting``.
    """

    pack: int
    rocmprobe: str
    made: str
    origin: Origin
    setting: str
    shapes: tuple[PackedShape, ...]
    files: Mapping[str, PackedFile]
    variables: Mapping[str, str] = field(default_factory=dict)


def origin_of(on: ConfiguredDevice) -> Origin:
    """Return the MIOpen version and the GPU of this device.

    Raise BadInput if the version, an ISA or the number of compute units is unknown.
    """
    version, gpu = on.machine.value("miopen.version"), on.target.gpu
    native, effective, units = on.target.native_isa, on.target.effective_isa, gpu.cus.value if gpu else None
    if not version or not native or not effective or not units:
        raise BadInput(
            "the version of MIOpen, the ISA or the number of compute units is unknown here, so caches cannot "
            "be shared; see `rocmprobe detect`"
        )
    return Origin(str(version), native, effective, units)


def write_pack(path: Path, on: ConfiguredDevice, cases: Sequence[Case]) -> str:
    """Write the databases and kernels in ``on.caches`` to ``path``, and return a description for the user.

    ``cases`` are the cases whose first call is fast with the caches. Raise BadInput if there is nothing to
    pack, and CannotWrite if the file cannot be written.
    """
    origin = origin_of(on)
    shapes = tuple(PackedShape(case.problem or "", case.direction or "") for case in cases)
    found = {
        f"{folder}/{relative}": source
        for variable, folder in _FOLDERS.items()
        for relative, named, source in miopen_files(Path(on.caches.variables[variable]))
        if named.kind in _KINDS[folder]
    }
    if not shapes or not found:
        what = "no shape is warm" if not shapes else "MIOpen has not stored any files"
        raise BadInput(f"--pack: {what} in {on.caches.folder}; call `rocmprobe warm --shapes FILE` first")
    files: dict[str, PackedFile] = {}
    try:
        with replace_atomically(path) as target, zipfile.ZipFile(target, "w") as packed:
            for name, source in found.items():
                with _snapshot(source) as whole:
                    files[name] = _add(packed, name, whole)
                if files[name].size > _LARGEST_FILE:
                    raise BadInput(
                        f"--pack: {source} is larger than {_LARGEST_FILE:,} bytes, too large to share"
                    )
            manifest = Manifest(
                FORMAT, __version__, now(), origin, on.setting.name, shapes, files, dict(on.setting.env)
            )
            content = (json.dumps(to_json(manifest), indent=1) + "\n").encode()
            packed.writestr(archive.entry_for(MANIFEST, len(content)), content)
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(path)) from error
    size = sum(each.size for each in files.values())
    return f"{len(files)} files ({size / 1e6:.3g} MB) for {len(shapes)} first calls of {origin.words}"


@contextmanager
def _snapshot(source: Path) -> Iterator[Path]:
    """Yield a temporary, complete copy of a file or an SQLite database."""
    with source.open("rb") as stream:
        is_database = stream.read(len(_SQLITE)) == _SQLITE
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        if not is_database:
            shutil.copyfile(source, copy)
        else:
            with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(copy)) as target:
                # A copy of the file would miss the rows in SQLite's write-ahead log.
                live.backup(target)
                target.execute("pragma journal_mode=delete")
        yield copy


def _add(packed: zipfile.ZipFile, name: str, source: Path) -> PackedFile:
    size = source.stat().st_size
    digest = hashlib.sha256()
    with source.open("rb") as stream, packed.open(archive.entry_for(name, size), "w") as target:
        while piece := stream.read(1 << 20):
            digest.update(piece)
            target.write(piece)
    return PackedFile(digest.hexdigest(), size)


class OpenPack:
    """A pack with a valid manifest, not unpacked yet."""

    def __init__(self, path: Path, packed: zipfile.ZipFile, manifest: Manifest) -> None:
        self._path = path
        self._packed = packed
        self.manifest = manifest

    @property
    def warning(self) -> str:
        """Warning for the user about code from somebody else."""
        made = self.manifest
        return (
            f"{self._path}: contains kernels that somebody else compiled ({made.origin.words}, "
            f"{len(made.shapes)} first calls). They would run on this GPU, and in your programs. Checksums "
            "and tests show that they are complete and compute correctly, not that they are harmless. Add "
            "--yes if you trust who made it"
        )

    def require_fit(self, on: ConfiguredDevice) -> None:
        """Raise BadInput if the pack is for another GPU, MIOpen version or set of environment variables."""
        origin, here = self.manifest.origin, origin_of(on)
        if origin != here:
            raise BadInput(
                f"{self._path}: made for {origin.words}; this machine has {here.words}. A pack works only if "
                "these are equal: make a new pack with `rocmprobe warm --shapes FILE --pack FILE`"
            )
        if dict(self.manifest.variables) != dict(on.setting.env):
            raise BadInput(
                f"{self._path}: made under the setting {quoted(self.manifest.setting)} with other variables "
                f"than those of {on.setting.name}; with --setting, name a setting that has the same variables"
            )

    def unpack(self, on: ConfiguredDevice) -> StagedPack:
        """Unpack into staging folders next to the caches. Raise BadInput if a checksum is wrong."""
        staged = {}
        for variable in _FOLDERS:
            target = Path(on.caches.variables[variable])
            staged[variable] = Path(tempfile.mkdtemp(prefix=f".{target.name}-staging-", dir=target.parent))
            guardian().remove(staged[variable])
        try:
            self._fill(staged)
        except BaseException as error:
            _remove(staged)
            if isinstance(error, (*archive.DAMAGED, archive.Unacceptable, zlib.error)):
                raise _refused(self._path, error) from error
            raise
        return StagedPack(self.manifest, on, staged)

    def _fill(self, staged: Mapping[str, Path]) -> None:
        variables = {folder: variable for variable, folder in _FOLDERS.items()}
        for name, promised in self.manifest.files.items():
            folder, _, relative = name.partition("/")
            if self._extract(name, staged[variables[folder]] / relative) != promised.sha256:
                raise archive.Unacceptable(f"{name} has another checksum than {MANIFEST} says")

    def _extract(self, name: str, target: Path) -> str:
        target.parent.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(target, flags, 0o600), "wb") as stream:
            return archive.copy_entry(self._packed, self._packed.getinfo(name), stream)


@dataclass(frozen=True)
class StagedPack:
    """An unpacked pack that no program uses yet.

    ``folders`` are the staging folders, keyed by environment variable.
    """

    manifest: Manifest
    on: ConfiguredDevice
    folders: Mapping[str, Path]

    def test(self) -> Iterator[Outcome]:
        """Test each problem in the pack with the unpacked files, and yield the outcomes."""
        variables = {name: str(folder) for name, folder in self.folders.items()}
        caches = replace(self.on.caches, variables={**self.on.caches.variables, **variables})
        with self.on.session(NullJournal(), caches) as session:
            for shape in self.manifest.shapes:
                yield session.outcome(self.on.case("convolution", shape.problem, shape.direction))

    def adopt(self) -> list[Path]:
        """Replace the caches of ``rocmprobe exec`` by the pack. Return the new paths of the old caches."""
        date = time.strftime("%Y-%m-%d-%H%M%S")
        caches, aside = self.on.caches, []
        # Move the journal with the old caches, because it describes them.
        journal = caches.folder / NAME
        if journal.exists():
            journal.rename(journal.with_name(f"{date}-{NAME}"))
        for variable, staged in self.folders.items():
            target = Path(caches.variables[variable])
            if any(target.iterdir()):
                former = target.with_name(f"{target.name}-{date}")
                target.rename(former)
                aside.append(former)
            # If ``target`` is an empty folder, the rename replaces it.
            staged.rename(target)
        return aside

    def discard(self) -> None:
        """Remove the staging folders."""
        _remove(self.folders)


def _remove(folders: Mapping[str, Path]) -> None:
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_pack(path: Path) -> Iterator[OpenPack]:
    """Open the pack in the file ``path``. Raise BadInput if the file is not a valid pack."""
    with contextlib.ExitStack() as stack:
        try:
            stream = stack.enter_context(path.open("rb"))
            size = os.fstat(stream.fileno()).st_size
            if size > _LARGEST:
                raise archive.Unacceptable(f"larger than {_LARGEST:,} bytes")
            packed = stack.enter_context(zipfile.ZipFile(stream))
            manifest = _manifest(path, packed, size)
        except OSError as error:
            raise BadInput(f"{path}: cannot be read ({error.strerror}); name a pack") from error
        except (*archive.DAMAGED, archive.Unacceptable, zlib.error, BadInput) as error:
            raise _refused(path, error) from error
        yield OpenPack(path, packed, manifest)


def _refused(path: Path, error: Exception) -> BadInput:
    if isinstance(error, BadInput):
        return error
    what = str(error) if isinstance(error, archive.Unacceptable) else f"a damaged zip file ({error})"
    return BadInput(f"{path}: {what}; {_REMEDY}")


def _manifest(path: Path, packed: zipfile.ZipFile, size: int) -> Manifest:
    entries = packed.infolist()
    archive.check_entries(entries, _largest, _EXPECTED)
    if sum(entry.file_size for entry in entries) > _LARGEST:
        raise archive.Unacceptable(f"unpacks to more than {_LARGEST:,} bytes")
    if not archive.is_dense(entries, size):
        raise archive.Unacceptable("contains data that belongs to none of the files in it")
    names = {entry.filename for entry in entries}
    if MANIFEST not in names:
        raise archive.Unacceptable(f"lacks {MANIFEST}")
    content = io.BytesIO()
    archive.copy_entry(packed, packed.getinfo(MANIFEST), content)
    data = reading.json_of(content.getvalue(), f"{path}: {MANIFEST}", _REMEDY)
    if not isinstance(data, dict) or data.get("pack") != FORMAT:
        raise archive.Unacceptable(f"{MANIFEST} is not of format {FORMAT}, which this rocmprobe reads")
    try:
        manifest: Manifest = from_json(Manifest, data)
    except BadInput as error:
        raise archive.Unacceptable(f"{MANIFEST}: {error}") from error
    sizes = {entry.filename: entry.file_size for entry in entries if entry.filename != MANIFEST}
    if {name: each.size for name, each in manifest.files.items()} != sizes:
        raise archive.Unacceptable(f"{MANIFEST} names other files than the zip file has")
    _check_bound(manifest)
    _check_shapes(manifest)
    return manifest


def _largest(name: str) -> Optional[int]:
    if name == MANIFEST:
        return _LARGEST_MANIFEST
    folder, _, relative = name.partition("/")
    named = user_file(relative)
    return _LARGEST_FILE if named and named.kind in _KINDS.get(folder, ()) else None


def _check_bound(manifest: Manifest) -> None:
    origin = manifest.origin
    gpu = database_name(origin.effective_isa, origin.compute_units)
    version = ".".join(origin.miopen.split(".")[:3])
    for name in manifest.files:
        named = user_file(str(PurePosixPath(name).relative_to(PurePosixPath(name).parts[0])))
        if named is None or named.gpu != gpu or named.version not in (None, version):
            raise archive.Unacceptable(f"{name} is not a file of {origin.words}")


def _check_shapes(manifest: Manifest) -> None:
    if not 0 < len(manifest.shapes) <= _MOST_SHAPES:
        raise archive.Unacceptable(f"names {len(manifest.shapes)} shapes; 1 to {_MOST_SHAPES} can be tested")
    for shape in manifest.shapes:
        try:
            parse_problem(shape.problem)
        except BadInput as error:
            raise archive.Unacceptable(f"{MANIFEST}: {error}") from error
        if shape.direction not in DIRECTIONS:
            raise archive.Unacceptable(f"{MANIFEST}: {quoted(shape.direction)} is not a direction")
