"""What a repository of results asks of a bundle before it takes it; docs/sharing-results.md has the list.

What this cannot show: whoever writes a whole journal that never ran passes.
"""

from __future__ import annotations

import filecmp
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from rocmprobe import __version__
from rocmprobe.collection import archive
from rocmprobe.collection.archive import JOURNAL, MANIFEST, RESULTS, SAMPLES, Refused
from rocmprobe.collection.clean import cleaned, line
from rocmprobe.collection.derived import derived, difference, gathered
from rocmprobe.collection.manifest import FORMAT, LICENCE, document, manifest, wrong_label
from rocmprobe.collection.simulated import sign_of_simulation
from rocmprobe.engine.journal import parsed
from rocmprobe.model.results import BadInput, Results, as_stored, from_json, to_json
from rocmprobe.text import reading
from rocmprobe.text.plain_text import one_line, quoted
from rocmprobe.text.redact import redacted_by_form

_SHA256 = re.compile(r"[0-9a-f]{64}")
#: What no version of rocmprobe says otherwise of a run.
_LASTING = ("date", "partial", "chip", "native_isa", "pci_id", "revision")
_AGAIN = "make it again with `rocmprobe submit`"


@dataclass(frozen=True)
class Bundle:
    """A bundle that was taken. ``results`` are what this rocmprobe makes of its journal, not the file in
    it."""

    path: Path
    sha256: str
    size: int
    manifest: Mapping[str, Any]
    results: Results

    @property
    def chip(self) -> str:
        return str(self.manifest["chip"])

    @property
    def stack(self) -> str:
        return str(self.manifest["stack"])


def read_bundle(path: Path, partial: bool = False, accepted: bool = False) -> Bundle:
    """Check the bundle at ``path`` and return it with its results.

    ``partial``: a run that did not come to its end passes, too. ``accepted``: it was taken before, so what an
    older rocmprobe judged may differ; its results are those that this one judges.
    Raises Refused, which does not name the file.
    """
    content = _content(path)
    about, results = checked(content, partial, accepted)
    sha256 = hashlib.sha256(content).hexdigest()
    _refuse_place(path, sha256, about)
    return Bundle(path, sha256, len(content), about, results)


def checked(content: bytes, partial: bool = False, accepted: bool = False) -> tuple[dict[str, Any], Results]:
    """The manifest and the results of a bundle, from its ``content``. As ``read_bundle``."""
    files = archive.unpacked(content)
    about = _manifest(files)
    data = _document(files[RESULTS], RESULTS)
    records = _records(files[JOURNAL])
    try:
        reading.check(data, "results", RESULTS, _AGAIN)
        if data["simulated"] is not None:
            raise Refused(f"a simulated run: {RESULTS} says so")
        # Before anything else is read from the records: their types.
        right = derived(files)
        if sign := sign_of_simulation(records):
            raise Refused(f"a simulated run: {sign}")
    except BadInput as error:
        raise Refused(str(error)) from error
    except Refused:
        raise
    except Exception as error:
        # A journal that breaks what judges it must not keep the others from being checked.
        why = f"{type(error).__name__}: {error}"
        raise Refused(f"{JOURNAL}: cannot be judged ({one_line(why, 120)}); {_AGAIN}") from error
    if right.partial and not (partial and about.get("partial") is True):
        raise Refused("a partial run: it did not come to its end")
    _refuse_edited(data, right, about, accepted)
    _refuse_identifiers(files, data, about)
    return about, right


def _content(path: Path) -> bytes:
    if path.is_symlink():
        raise Refused("a link; a bundle is a plain file")
    try:
        return reading.read_bytes(path, "a bundle is smaller", archive.LARGEST)
    except BadInput as error:
        raise Refused(str(error).partition(": ")[2]) from error


def _document(content: bytes, name: str) -> Any:
    """The JSON data of a file in a bundle. Raises Refused where it is not written as ``submit`` writes it:
    keys that occur twice, say, which readers understand differently."""
    try:
        data = reading.json_of(content, name, _AGAIN)
    except BadInput as error:
        raise Refused(str(error)) from error
    if document(data) != content:
        raise Refused(f"{name}: not written as rocmprobe writes it; {_AGAIN}")
    return data


@dataclass(frozen=True)
class _File:
    sha256: str
    size: int


@dataclass(frozen=True)
class _Manifest:
    """The types of a manifest."""

    bundle: int
    rocmprobe: str
    licence: str
    label: str
    chip: str
    stack: str
    files: Mapping[str, _File]


def _manifest(files: Mapping[str, bytes]) -> dict[str, Any]:
    data = _document(files[MANIFEST], MANIFEST)
    try:
        about: _Manifest = from_json(_Manifest, data)
    except BadInput as error:
        raise Refused(f"{MANIFEST}: {error}; {_AGAIN}") from error
    if about.bundle != FORMAT:
        raise Refused(f"{MANIFEST}: bundle is {quoted(about.bundle)}, this rocmprobe reads {FORMAT}")
    if about.licence != LICENCE:
        raise Refused(f"{MANIFEST}: licence is {quoted(about.licence)}, not {LICENCE}")
    if why := wrong_label(about.label):
        raise Refused(f"{MANIFEST}: label: {why}")
    if set(about.files) != set(files) - {MANIFEST}:
        raise Refused(f"{MANIFEST}: names other files than the bundle holds")
    for name, named in about.files.items():
        if named.size != len(files[name]) or named.sha256 != hashlib.sha256(files[name]).hexdigest():
            raise Refused(f"{name}: not the file that the manifest was made for (its hash differs)")
    return dict(data)


def _records(content: bytes) -> list[dict[str, Any]]:
    rows = content.split(b"\n")
    found = list(parsed(rows[:-1]))
    if rows[-1] or len(found) != len(rows) - 1:
        raise Refused(f"{JOURNAL}: has a line that is no record; {_AGAIN}")
    kinds = [record["record"] for record in found]
    if kinds[:1] != ["run"] or kinds.count("run") > 1:
        raise Refused(f"{JOURNAL}: not the journal of one run")
    return found


def _refuse_edited(data: Any, right: Results, about: Mapping[str, Any], accepted: bool) -> None:
    made_by, older = str(about["rocmprobe"]), False
    if made_by != __version__:
        try:
            older = Version(made_by) < Version(__version__)
        except InvalidVersion:
            raise Refused(f"{MANIFEST}: rocmprobe is {quoted(made_by)}, no version") from None
        if not older:
            raise Refused(
                f"made by rocmprobe {made_by}, which is newer than this one ({__version__}); update it"
            )
    due = to_json(as_stored(right))
    one, other = (gathered(data), gathered(due)) if older and accepted else (data, due)
    where = difference(one, other, older)
    if where and older and not difference(gathered(data), gathered(due), older):
        raise Refused(
            f"judged by rocmprobe {made_by}, and {__version__} comes to something else ({where}); {_AGAIN}"
        )
    if where:
        raise Refused(f"edited: {RESULTS}: {where}")
    expected = manifest(right, {}, made_by, str(about["label"]))
    found = {**about, "files": {}}
    if older and accepted:
        # Which names a stack has is rocmprobe's word, not the submitter's.
        found, expected = ({name: each.get(name) for name in _LASTING} for each in (found, expected))
    where = difference(found, expected, older)
    if where:
        raise Refused(f"edited: {MANIFEST}: {where}")


def _refuse_identifiers(files: Mapping[str, bytes], data: Any, about: Any) -> None:
    for name, content in ((RESULTS, data), (MANIFEST, about)):
        where = difference(content, redacted_by_form(content))
        if where:
            raise Refused(f"holds an identifier: {name}: {_without_value(where)}")
    for name in (JOURNAL, SAMPLES):
        for number, row in enumerate(files.get(name, b"").split(b"\n")[:-1], 1):
            record = reading.json_line(row)
            if not isinstance(record, dict) or line(record) != row + b"\n":
                raise Refused(f"{name}: line {number} is not written as rocmprobe writes it; {_AGAIN}")
            where = difference(record, cleaned(record, redacted_by_form))
            if where:
                raise Refused(f"holds an identifier: {name}: line {number}: {_without_value(where)}")


def _without_value(where: str) -> str:
    """Where an identifier is, without repeating it in the log of a CI job."""
    return where.partition(" is ")[0]


def _refuse_place(path: Path, sha256: str, about: Mapping[str, Any]) -> None:
    """A file that is named after a hash has that hash, and lies in the folder of its chip."""
    if not _SHA256.fullmatch(path.stem):
        return
    if path.stem != sha256:
        raise Refused("its name is not the SHA-256 of its content")
    if path.resolve().parent.name != about["chip"]:
        raise Refused(f"belongs into the folder {about['chip']}")


def misplaced(folder: Path) -> list[tuple[Path, str]]:
    """What is in the folder of a repository's bundles and does not belong there, with why: a bundle's place
    is CHIP/SHA256.zip."""
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        fits = len(parts) == 2 and path.suffix == ".zip" and _SHA256.fullmatch(path.stem)
        if path == folder / ".gitkeep":  # an empty folder does not last in git
            continue
        if path.is_symlink() or not ((path.is_dir() and len(parts) == 1) or (fits and path.is_file())):
            found.append((path, "the folder of bundles holds CHIP/SHA256.zip and nothing else"))
    return found


def same_file(path: Path, other: Path) -> bool:
    """Whether two plain files have the same content."""
    try:
        return not path.is_symlink() and filecmp.cmp(path, other, shallow=False)
    except OSError:
        return False
