"""Runs and bundles for tests.

No run here was on AMD hardware: the journals of simulated machines are forged to look real.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rocmprobe.collection.bundle import pack
from rocmprobe.collection.packing import pack_run
from rocmprobe.collection.sources import JOURNAL
from rocmprobe.model.results_file import write_results
from rocmprobe.report.write import judged_results

Records = list[dict[str, Any]]


def records(folder: Path) -> Records:
    return [json.loads(line) for line in (folder / JOURNAL).read_text("utf-8").splitlines()]


def rewritten(folder: Path, rows: Records) -> Path:
    """The run in ``folder`` with another journal, judged again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JOURNAL).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    write_results(judged_results(folder), folder / "results.json")
    return folder


def disguised(rows: Records) -> Records:
    """The journal of a simulated run without the mark that it was simulated: a forged journal."""
    shown: Records = json.loads(json.dumps(rows))
    shown[0]["simulation"] = shown[0]["options"]["simulate"] = None
    return shown


def repacked(bundle: Path, target: Path, change: Callable[[dict[str, bytes]], Any]) -> Path:
    """``bundle`` with its files changed in place by ``change``, packed as rocmprobe packs them."""
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    target.write_bytes(pack(files))
    return target


def document(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()


def variant(
    rows: Records,
    gpu: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    started: str = "",
    states: Mapping[str, str] | None = None,
) -> Records:
    """The same run on another card (``gpu``, by field), with other software (``facts``), at another time, and
    with the outcomes whose ids hold a word of ``states`` in that state."""
    changed: Records = json.loads(json.dumps(rows))
    run, gpu, facts, states = changed[0], gpu or {}, facts or {}, states or {}
    for card in (run["machine"]["gpus"][0], run["targets"][0]["gpu"]):
        for name, value in gpu.items():
            card[name] = {"value": value, "source": "sysfs"}
    for name, value in facts.items():
        run["machine"]["facts"][name] = {"value": value, "source": "a file"}
    run["started"] = started or run["started"]
    for row in changed:
        if row["record"] == "outcome":
            outcome = row["outcome"]
            for name in ("native_isa", "effective_isa"):
                if outcome[name]:
                    outcome[name] = gpu.get(name, outcome[name])
            for word, state in states.items():
                if word in outcome["id"]:
                    outcome["state"] = state
    return changed


def submitted(folder: Path, rows: Records, target: Path, label: str = "") -> Path:
    """The bundle of a run with the journal ``rows``, as a repository keeps it below ``target``."""
    bundle, _ = pack_run(rewritten(folder, rows), label=label)
    path = target / bundle.place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bundle.content)
    return path
