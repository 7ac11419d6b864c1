"""HTML pages: the table of a collection, and a site with the bundles of a repository."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Optional

import jinja2
from markupsafe import Markup

from rocmprobe import __version__
from rocmprobe.collection.bundle import LICENCE, Bundle
from rocmprobe.collection.identity import Question, word_order
from rocmprobe.collection.submissions import (
    Cell,
    ChipPage,
    Recommended,
    StackPage,
    chip_data,
    chip_pages,
    index_data,
)
from rocmprobe.model.results import BadInput
from rocmprobe.model.states import STATES
from rocmprobe.report import text
from rocmprobe.report.states import VERDICT_TONES, VERDICT_WORDS, verdict_with_layers
from rocmprobe.report.templates import asset, content_security_policy, environment, style_sheet
from rocmprobe.text import reading

_PACKAGE = "rocmprobe.collection"
#: File that marks a folder as a site written by ``write_site``.
_MARK = Path("api") / "v1" / "index.json"
_RAW = "raw"
_LONGEST = 2000
#: Largest number of rows of a list on the page. table.json has all rows.
MOST_ROWS = 300
_MOST_CELLS = 12
_MOST_CHANGES = 8
#: Checks in the summary of a setting, sorted by how often they fail.
_SHOWN = ("convolution", "batch-norm", "training-step")


def table_page(table: Mapping[str, Any], title: str = "rocmprobe: what works where") -> str:
    """Return a table from ``document.document`` as an HTML page."""
    script = asset(_PACKAGE, "table.js")
    return _templates().get_template("table.html.jinja").render(
        title=title,
        policy=content_security_policy([script]),
        style=Markup(style_sheet(_PACKAGE, "table.css")),  # noqa: S704 - files of ours
        script=Markup(script),  # noqa: S704
        data=_embedded(_packed(table)),
        table=table,
        verdict_words=VERDICT_WORDS,
        most=MOST_ROWS,
        most_cells=_MOST_CELLS,
        most_changes=_MOST_CHANGES,
        configurations=_configurations(table),
        outliers=_outliers(table),
        changes=_changes(table),
        summary=_summary(table),
        chip=lambda number: chip_words(table["chips"][number]),
        stack=lambda number: stack_words(table["stacks"][number]),
        question=question_words,
        machine=_machine_words,
        labelled=any(each["label"] for each in table["machines"]),
        simulated=sum(bool(each["simulated"]) for each in table["machines"]),
    )  # fmt: skip


def chip_words(chip: Mapping[str, str]) -> str:
    """Describe a chip in one line."""
    known = (chip["isa"] or "unknown chip", chip["name"], _identity(chip))
    return " · ".join(filter(None, known))


def _identity(chip: Mapping[str, str]) -> str:
    revision = chip["revision"].removeprefix("0x") if chip["revision"] else ""
    return " rev ".join(filter(None, (chip["pci_id"], revision)))


def stack_words(stack: Mapping[str, str]) -> str:
    """Describe a software stack in one line."""
    parts = [
        f"{name} {stack[key]}"
        for key, name in (("torch", "torch"), ("rocm", "ROCm"), ("miopen", "MIOpen"))
        if stack[key]
    ]
    if stack["override"]:
        parts.append(f"HSA_OVERRIDE_GFX_VERSION={stack['override']}")
    if stack["simulated"]:
        parts.append(f"simulated: {stack['simulated']}")
    return ", ".join(parts) or "no torch, no ROCm"


def question_words(question: Mapping[str, str]) -> str:
    """Describe a question in one line."""
    caller = question["caller"] if question["caller"] != "torch" else ""
    words = (question["check"], question["dtype"], question["direction"], caller)
    return f"{question['setting']}: " + " ".join(filter(None, words))


def _machine_words(machine: Mapping[str, Any]) -> str:
    gpus = []
    for gpu in machine["gpus"]:
        memory = int(gpu["vram_bytes"]) / 2**30 if gpu["vram_bytes"].isdigit() else 0
        identity = _identity({"pci_id": gpu["pci_id"], "revision": gpu["revision"]})
        cus = f"{gpu['cus']} CUs" if gpu["cus"] and gpu["native_isa"] else ""
        gpus.append(
            " ".join(filter(None, (gpu["native_isa"], identity, cus, f"{memory:.0f} GiB" if memory else "")))
        )
    return "; ".join(gpus)


def _configurations(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the recommendations that the page shows.

    Show every recommendation for all dtypes together. Show a recommendation for a single dtype only if it is
    for training, and if a recommendation for all dtypes on this chip and stack names another setting.
    """
    rows: list[dict[str, Any]] = []
    whole: dict[tuple[int, int], set[Optional[str]]] = {}
    for each in table["configurations"]:
        place = (each["chip"], each["stack"])
        if not each["dtype"]:
            whole.setdefault(place, set()).add(each["setting"])
            rows.append(each)
        elif each["purpose"] == "training" and {each["setting"]} != whole.get(place):
            rows.append(each)
    return rows


def _outliers(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for each in table["outliers"]:
        key = json.dumps([each["machines"], each["chip"], each["facts"]])
        known = found.setdefault(key, {**each, "stacks": []})
        dtypes: dict[tuple[Any, ...], list[str]] = {}
        for cell in each["cells"]:
            asked = (cell["setting"], cell["caller"], cell["check"], cell["direction"])
            here = (cell["state"], cell["majority"], cell["machines"], cell["of"])
            dtypes.setdefault((*asked, *here), []).append(cell["dtype"])
        names = ("setting", "caller", "check", "direction", "state", "majority", "machines", "of")
        cells = [{**dict(zip(names, key)), "dtype": ", ".join(words)} for key, words in dtypes.items()]
        known["stacks"].append({"stack": each["stack"], "cells": cells})
    return list(found.values())


def _changes(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: dict[str, list[Any]] = {}
    for each in table["changes"]:
        found.setdefault(each["machine"], []).append(each)
    return [
        {"machine": machine, "rows": rows, "all": len(rows) + rows[0]["earlier"], "last": rows[0]["after"]}
        for machine, rows in found.items()
    ]


def _summary(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: dict[tuple[int, int, str], dict[str, dict[str, int]]] = {}
    for cell in table["cells"]:
        if cell["check"] not in _SHOWN or cell["dtype"] != "float32":
            continue
        checks = found.setdefault((cell["chip"], cell["stack"], cell["setting"]), {})
        states = checks.setdefault(cell["check"], {})
        for state, machines in cell["states"].items():
            # A machine can count in the cells of several directions, so a sum would be too large.
            states[state] = max(states.get(state, 0), machines)
    return [
        {
            "chip": chip, "stack": stack, "setting": setting,
            "checks": [
                [(STATES[state], states[state]) for state in STATES if state in states]
                for states in (checks.get(name, {}) for name in _SHOWN)
            ],
        }
        for (chip, stack, setting), checks in found.items()
    ]  # fmt: skip


def _packed(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells in a compact form, with indexes into lists of texts."""
    words: dict[str, list[str]] = {
        name: sorted({cell[name] for cell in table["cells"]}, key=partial(word_order, name))
        for name in Question._fields
    }
    numbers = {name: {word: number for number, word in enumerate(known)} for name, known in words.items()}
    states = list(STATES)
    return {
        "chips": [chip_words(each) for each in table["chips"]],
        "stacks": [stack_words(each) for each in table["stacks"]],
        "words": words,
        "states": [[look.name, look.symbol, look.tone, look.meaning] for look in STATES.values()],
        "cells": [
            [
                cell["chip"], cell["stack"], *(numbers[name][cell[name]] for name in words),
                [part for state, count in cell["states"].items() for part in (states.index(state), count)],
                cell["machines"], cell["runs"], cell["unsteady"], cell["partial"],
                ", ".join([*cell["causes"], *cell["solvers"]]), cell["last"][:10],
            ]
            for cell in table["cells"]
        ],
    }  # fmt: skip


def _embedded(data: Any) -> Markup:
    made = json.dumps(data, separators=(",", ":"))
    for sign in "<>&":
        made = made.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(made)  # noqa: S704 - holds no character of HTML


def write_site(
    bundles: Iterable[tuple[Path, Bundle]], folder: Path, repository: str = "", raw: str = ""
) -> None:
    """Write the pages of ``bundles`` to ``folder``, replacing earlier pages.

    ``raw`` is the URL of the bundles. If ``raw`` is "", copy the bundles into ``folder``. Raise BadInput if
    ``folder`` has other content, and OSError if a page cannot be written.
    """
    for name, address in (("repository", repository), ("raw", raw)):
        if address and not address.startswith(("https://", "http://")):
            raise BadInput(f"--{name}: {address!r} does not begin with https://")
    if folder.exists() and not (folder / _MARK).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder}: has files that are not part of a site; name a new folder")
    chips = chip_pages(bundles)
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


def _copy(chips: Sequence[ChipPage], folder: Path) -> None:
    every = (answer.submission for chip in chips for answer in chip.backing.answers)
    for one in {each.sha256: each for each in every}.values():
        target = Path(one.address(str(folder / _RAW)))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one.path, target)


def _write(chips: Sequence[ChipPage], folder: Path, repository: str, raw: str) -> None:
    def put(name: str, content: str) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8", "backslashreplace")

    put("style.css", style_sheet(_PACKAGE, "style.css"))
    put("index.html", _render("index", "", repository, chips=chips))
    for chip in chips:
        put(f"{chip.name}/index.html", _render("chip", "../", repository, chip=chip))
        for stack in chip.stacks:
            page = _render(
                "stack", "../../", repository, chip=chip, stack=stack, checks=_by_check(stack),
                address=lambda answer: answer.submission.address(raw or f"../../{_RAW}"),
            )  # fmt: skip
            put(f"{chip.name}/{stack.name}/index.html", page)
    put("api/v1/index.json", _json(index_data(chips, repository)))
    put("api/v1/schema.json", _json(reading.schema("site")))
    for chip in chips:
        put(f"api/v1/{chip.name}.json", _json(chip_data(chip, raw or f"../../{_RAW}", repository)))


@dataclass(frozen=True)
class _Table:
    name: str
    columns: tuple[str, ...]
    untried: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell]]

    def count(self, works: Optional[bool], differs: bool = False) -> int:
        cells = [cell for row in self.rows.values() for cell in row.values()]
        return sum(cell.works is works and cell.differs is differs for cell in cells)


def _by_check(stack: StackPage) -> list[_Table]:
    first = ["default", *(each.recommended.setting for each in stack.advised)]
    found: dict[str, dict[str, dict[str, Cell]]] = {}
    for cell in stack.cells:
        question = cell.question
        column = question.setting + (" (capi)" if question.caller == "capi" else "")
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


def _render(name: str, root: str, repository: str, **content: Any) -> str:
    template = _templates().get_template(f"{name}.html.jinja")
    return template.render(root=root, repository=repository, version=__version__, licence=LICENCE, **content)


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    templates = environment(_PACKAGE, _shown)
    templates.globals.update(looks=STATES, tones=VERDICT_TONES, word=_word)
    templates.filters.update(date=lambda value: text.date(value)[:10], bytes=text.bytes_, count=text.count)
    return templates


def _shown(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    plain = text.plain(str(value))
    return plain if len(plain) <= _LONGEST else plain[:_LONGEST] + "…"
