"""Functions that pack a run into a bundle and check bundles (docs/sharing-results.md).

A check derives the results from the journal, and compares them with the files in the bundle.
"""

from __future__ import annotations

import filecmp
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Optional

from packaging.version import InvalidVersion, Version

from rocmprobe import __version__
from rocmprobe.collection.bundle import (
    LARGEST,
    LARGEST_FILES,
    Bundle,
    document,
    manifest,
    pack,
    unpack,
    wrong_label,
)
from rocmprobe.collection.sources import JOURNAL, MANIFEST, RESULTS, SAMPLES, Refused
from rocmprobe.engine.journal import parsed
from rocmprobe.model.results import BadInput, Results
from rocmprobe.model.results_file import as_stored, read_results, resolve_member, to_json
from rocmprobe.report import write
from rocmprobe.text import reading
from rocmprobe.text.plain_text import one_line, quoted
from rocmprobe.text.redact import redacted, redacted_by_form, redacted_with, users_of_homes

#: Keys of results.json whose values are judgements. Versions of rocmprobe can judge the same journal
#: differently.
JUDGED = frozenset({"findings", "recommendation", "estimate", "step_times", "changes", "redacted"})
_LASTING = ("date", "partial", "chip", "native_isa", "pci_id", "revision", "files")
#: Tolerance for numbers, because sums differ in the last digit between versions of Python.
_RELATIVE_TOLERANCE = 1e-9
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NO_RUN = "name the folder of a run, or the results.json in it"
_AGAIN = "make it again with `rocmprobe submit`"


def pack_run(source: Path, partial: bool = False, label: str = "") -> tuple[Bundle, bool]:
    """Return a bundle of the run at ``source``, and True if the run was recorded with redaction.

    ``partial`` allows an incomplete run. Raise BadInput if the run is missing, simulated or edited.
    """
    if why := wrong_label(label):
        raise BadInput(f"--label: {why}")
    if not source.exists():
        raise BadInput(f"{source}: does not exist; {_NO_RUN}")
    source = resolve_member(source)
    folder = source if source.is_dir() else source.parent
    given = source if not source.is_dir() else folder / RESULTS
    raw = {
        name: reading.read_bytes(folder / name, _NO_RUN, LARGEST_FILES[name])
        for name in (JOURNAL, SAMPLES)
        if name == JOURNAL or (folder / name).exists()
    }
    found = derive(raw)
    if found.simulated is not None:
        raise BadInput(
            f"{folder}: the journal says that the machine was simulated; only runs on real machines are "
            "accepted"
        )
    if given.exists():
        _check_folder(given, found)
    if found.partial and not partial:
        raise BadInput(
            f"{folder}: the run is not complete; finish it with `rocmprobe run --resume {folder}`, "
            "or add --partial"
        )
    was_redacted = bool(found.options["redact"])
    redaction = redacted if was_redacted else _redaction_of_another_machine(raw)
    rows: dict[str, Any] = {
        JOURNAL: parsed(raw[JOURNAL].split(b"\n")),
        SAMPLES: filter(_is_object, map(reading.json_line, raw.get(SAMPLES, b"").split(b"\n"))),
    }
    files = {name: b"".join(_line(cleaned(row, redaction)) for row in rows[name]) for name in raw}
    results = derive(files)
    files[RESULTS] = document(to_json(as_stored(results)))
    about = manifest(results, files, __version__, label)
    if redacted(about) != about:
        raise BadInput("--label: is the name of a user or a machine; use another label, or none")
    content = pack({**files, MANIFEST: document(about)})
    try:
        return check(content, partial=True), was_redacted
    except Refused as error:
        raise BadInput(f"{folder}: no repository would accept the bundle: {error}") from error


def _check_folder(path: Path, derived: Results) -> None:
    # Read the file first, so that a file without results gets a clear error message.
    read_results(path)
    older = derived.rocmprobe != __version__
    where = _edited(reading.read_json(path, _NO_RUN), derived, older, measured_only=older)
    if where:
        raise BadInput(
            f"{path}: edited: {where}; if another version of rocmprobe wrote it, write it again with "
            f"`rocmprobe report {path.parent} --format json`"
        )


def _redaction_of_another_machine(raw: Mapping[str, bytes]) -> Callable[[Any], Any]:
    users = users_of_homes(raw[JOURNAL].decode("utf-8", "replace").replace("\\\\", "\\"))
    return lambda data: redacted_with(data, users)


def cleaned(record: Any, redaction: Callable[[Any], Any]) -> Any:
    """Redact a record, and remove the boot id and the path of the run's folder."""
    record = redaction(record)
    if not isinstance(record, dict):
        return record
    if "boot" in record:
        record["boot"] = ""
    if record.get("record") == "run":
        record["folder"] = PurePosixPath(str(record.get("folder", ""))).name
        # Set the option, so that rocmprobe counts the placeholders and redacts new text when it derives
        # results from the journal.
        if isinstance(record.get("options"), dict):
            record["options"] = {**record["options"], "redact": True}
    return record


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _line(record: Any) -> bytes:
    return (json.dumps(record) + "\n").encode()


def read_bundle(path: Path, partial: bool = False, accepted: bool = False) -> Bundle:
    """Return the bundle at ``path``. Raise Refused if the bundle is invalid.

    ``partial`` allows an incomplete run. Set ``accepted`` for a bundle that is already in a repository. If an
    older rocmprobe made an accepted bundle, its findings are not checked.
    """
    if path.is_symlink():
        raise Refused("a link; a bundle is a plain file")
    try:
        content = reading.read_bytes(path, "a bundle is smaller", LARGEST)
    except BadInput as error:
        raise Refused(str(error).partition(": ")[2]) from error
    bundle = check(content, partial, accepted)
    if _SHA256.fullmatch(path.stem):
        if path.stem != bundle.sha256:
            raise Refused("its name is not the SHA-256 of its content")
        if path.resolve().parent.name != bundle.chip:
            raise Refused(f"belongs into the folder {bundle.chip}")
    return bundle


def check(content: bytes, partial: bool = False, accepted: bool = False) -> Bundle:
    """Check the ``content`` of a bundle and return the bundle.

    See ``read_bundle`` for the arguments and errors.
    """
    files = unpack(content)
    try:
        about, data = (reading.json_of(files[name], name, _AGAIN) for name in (MANIFEST, RESULTS))
        reading.check(data, "results", RESULTS, _AGAIN)
        right = derive(files)
        if right.simulated is not None:
            raise Refused(f"a simulated run: {JOURNAL} says so")
        if right.partial and not partial:
            raise Refused("a partial run: it is not complete")
        _check_edits(files, about, data, right, accepted)
        _check_identifiers(files, about, data)
    except BadInput as error:
        raise Refused(str(error)) from error
    except Refused:
        raise
    except Exception as error:
        # If judging one journal fails, the check of other bundles must continue.
        why = f"{type(error).__name__}: {error}"
        raise Refused(f"{JOURNAL}: cannot be judged ({one_line(why, 120)}); {_AGAIN}") from error
    return Bundle(content, about, right)


def derive(files: Mapping[str, bytes]) -> Results:
    """Derive the results from the journal and the sensor samples in ``files``.

    Raise BadInput if the journal is invalid.
    """
    with tempfile.TemporaryDirectory(prefix="bundle-") as name:
        folder = Path(name)
        for each in (JOURNAL, SAMPLES):
            if each in files:
                (folder / each).write_bytes(files[each])
        try:
            return write.recorded(folder)
        except BadInput as error:
            raise BadInput(str(error).replace(f"{folder}/", "")) from error


def _check_edits(files: Mapping[str, bytes], about: Any, data: Any, right: Results, accepted: bool) -> None:
    made_by, label = (about.get(name) if _is_object(about) else None for name in ("rocmprobe", "label"))
    if not isinstance(made_by, str) or not isinstance(label, str):
        raise Refused(f"{MANIFEST}: lacks rocmprobe or label; {_AGAIN}")
    if why := wrong_label(label):
        raise Refused(f"{MANIFEST}: label: {why}")
    older = _is_older(made_by)
    where = _edited(data, right, older, measured_only=older and accepted)
    if where and older and not _edited(data, right, older, measured_only=True):
        raise Refused(
            f"judged by rocmprobe {made_by}, but {__version__} judges differently ({where}); {_AGAIN}"
        )
    if where:
        raise Refused(f"edited: {RESULTS}: {where}")
    expected = manifest(right, files, made_by, label)
    if older and accepted:
        # Other values, e.g. the name of the stack, can differ between versions of rocmprobe.
        about, expected = ({name: each.get(name) for name in _LASTING} for each in (about, expected))
    where = difference(about, expected, older)
    if where:
        raise Refused(f"edited: {MANIFEST}: {where}")


def _is_older(made_by: str) -> bool:
    if made_by == __version__:
        return False
    try:
        older = Version(made_by) < Version(__version__)
    except InvalidVersion:
        raise Refused(f"{MANIFEST}: rocmprobe is {quoted(made_by)}, no version") from None
    if not older:
        raise Refused(f"made by rocmprobe {made_by}, which is newer than this one ({__version__}); update it")
    return True


def _edited(data: Any, right: Results, older: bool, measured_only: bool) -> Optional[str]:
    expected = to_json(as_stored(right))
    if measured_only:
        data, expected = _measured(data), _measured(expected)
    return difference(data, expected, older)


def _measured(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the measured part of results, without judgements."""
    kept = {key: value for key, value in data.items() if key not in JUDGED}
    kept["outcomes"] = [_unexpected(outcome) for outcome in data["outcomes"]]
    return kept


def _unexpected(outcome: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in outcome.items() if key != "expected"}
    if outcome.get("expected"):
        found["state"] = outcome["expected"]["state"]
    return found


def difference(found: Any, right: Any, older: bool = False) -> Optional[str]:
    """Describe the first difference between two JSON values, or return None if they are equal.

    If ``older``, ``found`` can lack keys.
    """
    return next(_differences(found, right, older, ()), None)


def _differences(found: Any, right: Any, older: bool, place: tuple[str, ...]) -> Iterator[str]:
    if isinstance(found, Mapping) and isinstance(right, Mapping):
        for key in found:
            if key in right:
                yield from _differences(found[key], right[key], older, (*place, str(key)))
            else:
                yield f"{_shown((*place, str(key)))} is not in the journal"
        for key in right:
            if key not in found and not older:
                yield f"{_shown((*place, str(key)))} is missing"
    elif isinstance(found, (list, tuple)) and isinstance(right, (list, tuple)):
        if len(found) != len(right):
            yield f"{_shown(place)} has {len(found)} entries, but {len(right)} in the journal"
        for number, (one, other) in enumerate(zip(found, right)):
            name = one.get("id", number) if isinstance(one, Mapping) else number
            yield from _differences(one, other, older, (*place, str(name)))
    elif not _same(found, right):
        yield f"{_shown(place)} is {quoted(found, 60)}, but {quoted(right, 60)} in the journal"


def _same(found: Any, right: Any) -> bool:
    if float in (type(found), type(right)) and {type(found), type(right)} <= {int, float}:
        if math.isnan(found) or math.isnan(right):
            return math.isnan(found) and math.isnan(right)
        return math.isclose(found, right, rel_tol=_RELATIVE_TOLERANCE)
    return bool(type(found) is type(right) and found == right)


def _shown(place: tuple[str, ...]) -> str:
    return "/".join(place) or "all of it"


def _check_identifiers(files: Mapping[str, bytes], about: Any, data: Any) -> None:
    """Raise Refused if a file contains an identifier that redaction would remove."""
    records: list[tuple[str, Any]] = [(RESULTS, data), (MANIFEST, about)]
    for name in (JOURNAL, SAMPLES):
        for number, row in enumerate(files.get(name, b"").split(b"\n")[:-1], 1):
            record = reading.json_line(row)
            if not _is_object(record):
                raise Refused(f"{name}: line {number} is no record; {_AGAIN}")
            records.append((f"{name}: line {number}", record))
    for place, record in records:
        where = difference(record, cleaned(record, redacted_by_form))
        if where:
            raise Refused(f"contains an identifier: {place}: {where.partition(' is ')[0]}")


def misplaced(folder: Path) -> list[tuple[Path, str]]:
    """Return the files that must not be in a repository's folder of bundles, each with the reason."""
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        fits = len(parts) == 2 and path.suffix == ".zip" and _SHA256.fullmatch(path.stem)
        if path == folder / ".gitkeep":  # git does not keep empty folders
            continue
        if path.is_symlink() or not ((path.is_dir() and len(parts) == 1) or (fits and path.is_file())):
            found.append((path, "the folder of bundles contains only CHIP/SHA256.zip"))
    return found


def same_file(path: Path, other: Path) -> bool:
    """Return True if two files have the same content and ``path`` is no symbolic link."""
    try:
        return not path.is_symlink() and filecmp.cmp(path, other, shallow=False)
    except OSError:
        return False
