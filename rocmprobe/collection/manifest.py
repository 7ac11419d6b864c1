"""The manifest of a bundle: what it is about, and the hash of every other file in it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Optional

from rocmprobe.collection.archive import MANIFEST
from rocmprobe.collection.naming import chip_name, gpu_facts, stack_facts, stack_name, tested_gpus
from rocmprobe.model.results import Results, to_json
from rocmprobe.text.redact import census

FORMAT = 1
LICENCE = "CC-BY-4.0"
#: What a submitter may call a machine, so that two bundles from it are counted as one machine.
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._-]{0,38}[A-Za-z0-9])?")


def manifest(results: Results, files: Mapping[str, bytes], made_by: str, label: str) -> dict[str, Any]:
    """The manifest of a bundle with ``files``, made by the version ``made_by`` of rocmprobe. It depends on
    nothing else, so that the same run gives the same bundle."""
    gpus = tested_gpus(results)
    device, gpu = next(iter(gpus.items()), ("cpu", None))
    facts = gpu_facts(gpu) if gpu else {}
    native = facts.get("native_isa")
    return {
        "bundle": FORMAT,
        "rocmprobe": made_by,
        "licence": LICENCE,
        "date": results.started,
        "partial": results.partial,
        "label": label,
        "chip": chip_name(native, device),
        "stack": stack_name(results.machine, gpu),
        "native_isa": native,
        "pci_id": facts.get("pci_id"),
        "revision": facts.get("revision"),
        "gpus": [gpu_facts(each) for each in gpus.values() if each],
        "software": stack_facts(results.machine, gpu),
        "redacted": census(to_json(results)),
        "files": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
            for name, content in files.items()
            if name != MANIFEST
        },
    }


def document(data: Any) -> bytes:
    """JSON data as the files of a bundle hold them: one text for one value, so that nothing can hide in how
    it is written."""
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def wrong_label(label: str) -> Optional[str]:
    """Why ``label`` is none; None where it is one."""
    if label and not LABEL.fullmatch(label):
        return "a label has up to 40 letters, digits, spaces, full stops, hyphens and underscores"
    return None
