"""A bundle made of a run's folder: redacted again, judged again, and held against what the folder says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmprobe import __version__
from rocmprobe.collection import archive
from rocmprobe.collection.archive import JOURNAL, MANIFEST, RESULTS, SAMPLES, Refused
from rocmprobe.collection.checking import checked
from rocmprobe.collection.clean import cleaned, line, lines
from rocmprobe.collection.derived import derived, difference, gathered
from rocmprobe.collection.manifest import document, manifest, wrong_label
from rocmprobe.collection.naming import place_of
from rocmprobe.collection.simulated import sign_of_simulation
from rocmprobe.engine.journal import parsed
from rocmprobe.model.results import BadInput, Results, as_stored, ordinary_run, read_results, to_json
from rocmprobe.text import reading
from rocmprobe.text.redact import redacted, redacted_with, users_of_homes

_NO_RUN = "name the folder of a run, or the results.json in it"


@dataclass(frozen=True)
class Made:
    """A bundle that is not written yet: its ``content`` and ``sha256``, its ``manifest``, the ``results`` in
    it, and by name the size of each file. ``was_redacted``: the run itself had redacted what it wrote."""

    content: bytes
    sha256: str
    manifest: Mapping[str, Any]
    results: Results
    was_redacted: bool


def made(source: Path, partial: bool = False, label: str = "") -> Made:
    """A bundle of the run at ``source``, its folder or the results.json in it.

    Raises BadInput where there is no run, where it was simulated, came to no end (unless ``partial``), or
    where results.json is not what the journal beside it comes to.
    """
    if why := wrong_label(label):
        raise BadInput(f"--label: {why}")
    if not source.exists():
        raise BadInput(f"{source}: does not exist; {_NO_RUN}")
    source = ordinary_run(source)
    folder = source if source.is_dir() else source.parent
    given = source if not source.is_dir() else folder / RESULTS
    raw = _files_of(folder)
    records = list(parsed(raw[JOURNAL].split(b"\n")))
    found = derived(raw)
    if sign := sign_of_simulation(records):
        raise BadInput(f"{folder}: {sign}; only runs on real machines are gathered")
    if given.exists():
        _refuse_edited(given, found)
    if found.partial and not partial:
        raise BadInput(
            f"{folder}: the run did not come to its end; finish it with `rocmprobe run --resume {folder}`, "
            "or add --partial"
        )
    redaction = redacted if found.options["redact"] else _knowing_users(raw)
    rows = {
        JOURNAL: records,
        SAMPLES: [each for each in lines(raw.get(SAMPLES, b"")) if isinstance(each, dict)],
    }
    files = {name: b"".join(line(cleaned(row, redaction)) for row in rows[name]) for name in raw}
    results = derived(files)
    files[RESULTS] = document(to_json(as_stored(results)))
    about = manifest(results, files, __version__, label)
    if redacted(about) != about:
        raise BadInput("--label: is the name of a user or a machine; take another, or none")
    content = archive.packed({**files, MANIFEST: document(about)})
    try:
        checked(content, partial=True)
    except Refused as error:
        raise BadInput(f"{folder}: no repository would take the bundle: {error}") from error
    return Made(content, hashlib.sha256(content).hexdigest(), about, results, bool(found.options["redact"]))


def _files_of(folder: Path) -> dict[str, bytes]:
    found = {JOURNAL: reading.read_bytes(folder / JOURNAL, _NO_RUN, archive.LARGEST_FILES[JOURNAL])}
    if (folder / SAMPLES).exists():
        found[SAMPLES] = reading.read_bytes(folder / SAMPLES, _NO_RUN, archive.LARGEST_FILES[SAMPLES])
    return found


def _refuse_edited(path: Path, right: Results) -> None:
    read_results(path)  # says what is wrong with a file that is none
    given = reading.read_json(path, _NO_RUN)
    due = to_json(as_stored(right))
    if right.rocmprobe != __version__:
        given, due = gathered(given), gathered(due)
    where = difference(given, due, older=right.rocmprobe != __version__)
    if where:
        raise BadInput(
            f"{path}: edited: {where}; where it was written by another rocmprobe, write it again with "
            f"`rocmprobe report {path.parent} --format json`"
        )


def _knowing_users(raw: Mapping[str, bytes]) -> Callable[[Any], Any]:
    """Redaction of a run that was not redacted: it may come from another machine, so the users in its paths
    are looked for as well."""
    users = users_of_homes(raw[JOURNAL].decode("utf-8", "replace").replace("\\\\", "\\"))
    return lambda data: redacted_with(data, users)


def place_in_repository(bundle: Made) -> str:
    """Where a repository of results keeps this bundle."""
    return f"bundles/{place_of(bundle.manifest['chip'], bundle.sha256)}"


def unused(folder: Path, bundle: Made) -> Path:
    """The name that a bundle gets in ``folder`` where none is given."""
    return folder / f"rocmprobe-{bundle.manifest['chip']}-{bundle.sha256[:12]}.zip"
