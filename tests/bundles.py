"""Runs and bundles for tests. No run here was on AMD hardware: what is simulated is made to look as if it
were, as somebody who forges a journal would do it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rocmprobe.bundle.archive import JOURNAL, packed
from rocmprobe.report.write import write_report

Records = list[dict[str, Any]]


def records(folder: Path) -> Records:
    return [json.loads(line) for line in (folder / JOURNAL).read_text("utf-8").splitlines()]


def rewritten(folder: Path, rows: Records) -> Path:
    """The run in ``folder`` with another journal, judged again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JOURNAL).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    write_report(folder)
    return folder


def disguised(rows: Records) -> Records:
    """A simulated run without a sign of it: what ``submit --check`` says it cannot see."""
    text = json.dumps(rows).replace('"source": "simulated machine', '"source": "/sys, machine')
    text = text.replace("worker/simulation/", "worker/").replace("which stands in for the GPU", "")
    text = text.replace('"simulation.torch"', '"other.torch"').replace('"this machine, "', '"/proc"')
    made: Records = json.loads(text)
    made[0]["simulation"] = made[0]["options"]["simulate"] = None
    for row in made:
        if row["record"] == "trial":
            row["trial"]["mapped"] = {"libamdhip64": ["/opt/rocm/lib/libamdhip64.so.6"]}
    return made


def repacked(bundle: Path, target: Path, change: Callable[[dict[str, bytes]], Any]) -> Path:
    """``bundle`` with its files changed in place by ``change``, packed as rocmprobe packs them."""
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    target.write_bytes(packed(files))
    return target


def document(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()
