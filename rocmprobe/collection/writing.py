"""Writes the pages: a folder that any server can hand out, the same from the same bundles."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

import jinja2
from markupsafe import Markup

from rocmprobe import __version__
from rocmprobe.collection import api
from rocmprobe.collection.answers import Recommended
from rocmprobe.collection.checking import Bundle
from rocmprobe.collection.gathering import Cell, Chip, Stack, gathered
from rocmprobe.collection.manifest import LICENCE
from rocmprobe.collection.naming import place_of
from rocmprobe.model.results import BadInput
from rocmprobe.model.states import STATES
from rocmprobe.report import text
from rocmprobe.report.states import VERDICT_TONES, verdict_with_layers
from rocmprobe.report.templates import environment, style_sheet
from rocmprobe.text import reading

#: What shows that a folder was written by this.
_MARK = Path("api") / "v1" / "index.json"
_RAW = "raw"


def write_site(bundles: Iterable[Bundle], folder: Path, repository: str = "", raw: str = "") -> int:
    """Write the pages of ``bundles`` to ``folder``, in place of those that it holds. Returns how many chips
    there are.

    ``repository`` is the address of the repository that they come from; ``raw`` that of its folder of
    bundles, where these are not to be copied beside the pages. Raises BadInput where ``folder`` holds
    anything else, and OSError.
    """
    for name, address in (("repository", repository), ("raw", raw)):
        if address and not address.startswith(("https://", "http://")):
            raise BadInput(f"--{name}: {address!r} is no address that begins with https://")
    if folder.exists() and not (folder / _MARK).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder}: holds something that is no site; name a new folder")
    chips = gathered(bundles)
    temporary = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    try:
        _write(chips, temporary, repository.rstrip("/"), raw.rstrip("/"))
        if not raw:
            _copy(chips, temporary)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return len(chips)


def _copy(chips: Sequence[Chip], folder: Path) -> None:
    every = (answer.submission for chip in chips for answer in chip.backing.answers)
    for one in {each.sha256: each for each in every}.values():
        target = folder / _RAW / place_of(one.chip, one.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one.path, target)


def _write(chips: Sequence[Chip], folder: Path, repository: str, raw: str) -> None:
    def put(name: str, content: str) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8", "backslashreplace")

    put("style.css", style_sheet("rocmprobe.collection", "style.css"))
    put("index.html", _page("index", "", repository, chips=chips))
    for chip in chips:
        put(f"{chip.name}/index.html", _page("chip", "../", repository, chip=chip))
        for stack in chip.stacks:
            page = _page(
                "stack", "../../", repository, chip=chip, stack=stack, checks=_by_check(stack),
                address=lambda answer: api.address_of(answer, raw or f"../../{_RAW}"),
            )  # fmt: skip
            put(f"{chip.name}/{stack.name}/index.html", page)
    put("api/v1/index.json", _json(api.index(chips, repository)))
    put("api/v1/schema.json", _json(reading.schema("site")))
    for chip in chips:
        put(f"api/v1/{chip.name}.json", _json(api.of_chip(chip, raw or f"../../{_RAW}", repository)))


@dataclass(frozen=True)
class _Table:
    """A check: its settings as columns, its dtypes and directions as rows. ``untried`` are settings under
    which nothing was learned."""

    name: str
    columns: tuple[str, ...]
    untried: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell]]

    def count(self, works: Optional[bool], differs: bool = False) -> int:
        """How many cells work, fail, or differ."""
        cells = [cell for row in self.rows.values() for cell in row.values()]
        return sum(cell.works is works and cell.differs is differs for cell in cells)


def _by_check(stack: Stack) -> list[_Table]:
    """The tables of a stack; what PyTorch does by itself and what is recommended stand first."""
    first = ["default", *(each.recommended.setting for each in stack.advised)]
    found: dict[str, dict[str, dict[str, Cell]]] = {}
    for cell in stack.cells:
        question = cell.question
        column = question.setting + (" (capi)" if question.driver == "capi" else "")
        row = f"{question.dtype} {question.direction}".strip()
        found.setdefault(question.check, {}).setdefault(row, {})[column] = cell
    tables = []
    for name, rows in found.items():
        columns = list(dict.fromkeys(column for row in rows.values() for column in row))
        learned = {
            column
            for row in rows.values()
            for column, cell in row.items()
            if cell.works is not None or cell.differs
        }
        columns.sort(key=lambda column: first.index(column) if column in first else len(first))
        shown = tuple(column for column in columns if column in learned) or tuple(columns)
        untried = tuple(column for column in columns if column not in shown)
        tables.append(_Table(name, shown, untried, rows))
    return tables


def _word(recommended: Recommended) -> str:
    return verdict_with_layers(recommended.verdict, recommended.pytorch_layers)


def _json(data: Any) -> str:
    return json.dumps(data, indent=1) + "\n"


def _page(name: str, root: str, repository: str, **content: Any) -> str:
    template = _templates().get_template(f"{name}.html.jinja")
    return template.render(root=root, repository=repository, version=__version__, licence=LICENCE, **content)


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    templates = environment("rocmprobe.collection", _shown)
    templates.globals.update(looks=STATES, word=_word, tones=VERDICT_TONES)
    templates.filters.update(date=lambda value: text.date(value)[:10], bytes=text.bytes_, count=text.count)
    return templates


def _shown(value: Any) -> Any:
    """Any value as a page may show it: foreign text without control characters, and not without end."""
    if value is None:
        return "unknown"
    if isinstance(value, Markup):
        return value
    plain = text.plain(str(value))
    return plain if len(plain) <= _LONGEST else plain[:_LONGEST] + "…"


#: Characters of one value on a page.
_LONGEST = 2000
