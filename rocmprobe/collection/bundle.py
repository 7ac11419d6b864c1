"""Format of a bundle: a zip file with one run, for a public repository (docs/sharing-results.md).

A bundle contains the journal, the results, and a manifest with hashes. Bundles of the same files are equal
byte for byte.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Optional

from rocmprobe.collection.identity import chip_name, gpu_facts, stack_facts, stack_name
from rocmprobe.collection.reading import tested
from rocmprobe.collection.sources import JOURNAL, MANIFEST, RESULTS, SAMPLES, Refused
from rocmprobe.model.results import Results
from rocmprobe.model.results_file import to_json
from rocmprobe.text import archive
from rocmprobe.text.redact import census

FORMAT = 1
LICENCE = "CC-BY-4.0"
#: Files of a bundle in their order, each with its largest unpacked size in bytes.
LARGEST_FILES: Mapping[str, int] = {
    MANIFEST: 64 * 2**10, RESULTS: 64 * 2**20, JOURNAL: 128 * 2**20, SAMPLES: 32 * 2**20,
}  # fmt: skip
#: Files that a bundle can lack. Only a run that recorded sensors has samples.
OPTIONAL = frozenset({SAMPLES})
#: Largest size of a bundle in bytes. GitHub accepts attachments of at most 25 MB.
LARGEST = 25_000_000
#: Pattern of a label: a submitter's name for a machine. Bundles with the same label count as one machine.
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,38}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Bundle:
    """A valid bundle."""

    content: bytes
    manifest: Mapping[str, Any]
    results: Results

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def chip(self) -> str:
        return str(self.manifest["chip"])

    @property
    def stack(self) -> str:
        return str(self.manifest["stack"])

    @property
    def label(self) -> str:
        return str(self.manifest["label"])

    @property
    def place(self) -> str:
        return place_of(self.chip, self.sha256)


def place_of(chip: str, sha256: str) -> str:
    """Return the path of a bundle in a repository, "CHIP/SHA256.zip"."""
    return f"{chip}/{sha256}.zip"


def pack(files: Mapping[str, bytes]) -> bytes:
    """Pack ``files`` and return the content of the zip file."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name in LARGEST_FILES:
            if name in files:
                packed.writestr(archive.entry_for(name, len(files[name])), files[name])
    return target.getvalue()


def unpack(content: bytes) -> dict[str, bytes]:
    """Return the files of a bundle by name.

    Raise Refused if the bundle is damaged, too large or incomplete.
    """
    if len(content) > LARGEST:
        raise Refused(f"larger than {LARGEST:,} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            entries = packed.infolist()
            _check_entries(entries, len(content))
            return {entry.filename: _read(packed, entry) for entry in entries}
    except archive.Unacceptable as error:
        raise Refused(str(error)) from error
    except (*archive.DAMAGED, zlib.error) as error:
        raise Refused(f"a damaged zip file ({error})") from error


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    archive.check_entries(entries, LARGEST_FILES.get, f"a bundle has {', '.join(LARGEST_FILES)}")
    names = [entry.filename for entry in entries]
    missing = [name for name in LARGEST_FILES if name not in names and name not in OPTIONAL]
    if missing:
        raise Refused(f"lacks {', '.join(missing)}")
    # A repository publishes the whole zip file, so there must be no hidden data between the files.
    if not archive.is_dense(entries, size):
        raise Refused("has data outside of its files; make it with `rocmprobe submit`")


def _read(packed: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    content = io.BytesIO()
    archive.copy_entry(packed, entry, content)
    return content.getvalue()


def manifest(results: Results, files: Mapping[str, bytes], made_by: str, label: str) -> dict[str, Any]:
    """Return the manifest of a bundle with ``files``.

    ``made_by`` is the version of rocmprobe that makes the bundle.
    """
    run = tested(results)
    device, gpu = next(iter(run.gpus.items()), ("cpu", {}))
    facts = gpu_facts(gpu)
    return {
        "bundle": FORMAT,
        "rocmprobe": made_by,
        "licence": LICENCE,
        "date": results.started,
        "partial": results.partial,
        "label": label,
        "chip": chip_name(facts["native_isa"], device),
        "stack": stack_name(run.facts, gpu),
        "native_isa": facts["native_isa"],
        "pci_id": facts["pci_id"],
        "revision": facts["revision"],
        "gpus": [gpu_facts(each) for each in run.gpus.values() if each],
        "software": stack_facts(run.facts, gpu),
        "redacted": census(to_json(results)),
        "files": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
            for name, content in files.items()
            if name != MANIFEST
        },
    }


def document(data: Any) -> bytes:
    """Encode JSON data for a file in a bundle."""
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def wrong_label(label: str) -> Optional[str]:
    """Return the reason why ``label`` is invalid, or None."""
    if label and not LABEL.fullmatch(label):
        return "a label has up to 40 letters, digits, spaces, full stops, hyphens and underscores"
    return None
