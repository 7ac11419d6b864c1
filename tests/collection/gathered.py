"""Small results of made-up machines, the table that the command makes of them, and the elements of a page."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Optional

from rocmprobe.collection.document import document
from rocmprobe.collection.sources import found
from rocmprobe.collection.store import Store, gather
from rocmprobe.model.results import SCHEMA_VERSION
from rocmprobe.text import reading


def fact(value: Any) -> dict[str, Any]:
    return {"value": value, "source": "a test"}


def outcome(state: str = "pass", check: str = "gemm", **other: Any) -> dict[str, Any]:
    asked = {"device": "cuda:0", "driver": "torch", "setting": "default", "check": check, "dtype": "float32"}
    return {**asked, "direction": None, "cause": None, "solver": None, "state": state, **other}


def results(
    *outcomes: dict[str, Any],
    day: int = 1,
    facts: Optional[dict[str, Any]] = None,
    variables: Optional[dict[str, Any]] = None,
    gpu: Optional[dict[str, Any]] = None,
    **other: Any,
) -> dict[str, Any]:
    """Those of a machine with one RX 5700 XT, unless ``gpu`` and ``facts`` say otherwise."""
    own = {"native_isa": "gfx1010", "pci_id": "0x731f", "revision": "0xc1", "cus": 40, "vram_bytes": 2**33}
    known = {
        "torch.version": "2.0.1",
        "rocm.version": "5.4.2",
        "kernel.release": "6.8.0",
        "os.name": "Debian 12",
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "rocmprobe": "0.1.0",
        "started": f"2026-01-{day:02}T00:00:00Z",
        "finished": None,
        "partial": False,
        "simulated": None,
        "machine": {
            "gpus": [{name: fact(value) for name, value in {**own, **(gpu or {})}.items()}],
            "facts": {name: fact(value) for name, value in {**known, **(facts or {})}.items()},
            "variables": {name: fact(value) for name, value in (variables or {}).items()},
        },
        "outcomes": list(outcomes) or [outcome()],
        "recommendation": None,
        **other,
    }


def put(path: Path, data: Any) -> Path:
    """Write a file; results get the folder of their run, so that no two of them are the same file."""
    if "outcomes" in data:
        data = {**data, "options": {"folder": str(path)}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), "utf-8")
    return path


def table(*names: Path, simulated: bool = False, by_folder: bool = True) -> dict[str, Any]:
    """The document made of files, held against its schema."""
    with Store() as store:
        read = gather(found([str(name) for name in names], by_folder), store, simulated, lambda line: None)
        made = document(store, read)
    reading.check(made, "table", "table.json", "a test")
    return made


def command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "rocmprobe", "table", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


class Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.tags.append((tag, dict(attrs)))

    @property
    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}

    @property
    def links(self) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags for name in ("href", "src") if name in attrs]
