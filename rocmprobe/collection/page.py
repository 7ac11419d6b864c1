"""The table as one HTML file: no server, no request, and everything but the filter works without a script.

The page holds the cells of the table, not the files, so that its size does not grow with their number. What
comes from results is escaped by the template, or is JSON that the script shows as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Optional

import jinja2
from markupsafe import Markup

from rocmprobe.collection.reading import Question, word_order
from rocmprobe.model.states import STATES
from rocmprobe.report import text
from rocmprobe.report.states import VERDICT_TONES, VERDICT_WORDS
from rocmprobe.report.templates import asset, content_security_policy, environment, style_sheet

_PACKAGE = "rocmprobe.collection"
#: Rows of a list that a person may read; all are in table.json.
MOST_ROWS = 300
#: Cells of an outlier that are named one by one.
_MOST_CELLS = 12
#: Changes of one machine that are shown.
_MOST_CHANGES = 8
#: What the summary shows of each setting: the layer that breaks first.
_SHOWN = ("convolution", "batch-norm", "training-step")


def page(table: Mapping[str, Any], title: str = "rocmprobe: what works where") -> str:
    """The page of a document of ``table.document``."""
    script = asset(_PACKAGE, "table.js")
    return _templates().get_template("table.html.jinja").render(
        title=title,
        policy=content_security_policy([script]),
        style=Markup(style_sheet(_PACKAGE, "table.css")),  # noqa: S704 - files of ours
        script=Markup(script),  # noqa: S704
        data=_embedded(_packed(table)),
        table=table,
        looks=STATES,
        verdict_words=VERDICT_WORDS,
        tones=VERDICT_TONES,
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
    """A chip in one line: its ISA, name, PCI id and revision, as far as they are known."""
    known = (chip["isa"] or "unknown chip", chip["name"], _identity(chip))
    return " · ".join(filter(None, known))


def _identity(chip: Mapping[str, str]) -> str:
    revision = chip["revision"].removeprefix("0x") if chip["revision"] else ""
    return " rev ".join(filter(None, (chip["pci_id"], revision)))


def stack_words(stack: Mapping[str, str]) -> str:
    """A stack in one line: versions, and the override where one is set."""
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
    """A question in one line: setting, check, dtype, direction, and capi where it was asked without torch."""
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
    """What is recommended, by chip and stack; for a dtype in training only where it is something else."""
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
    """Machines that differ, once for all stacks under which they do with the same facts beside it."""
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
    """By machine, the changes from run to run that the table has of it."""
    found: dict[str, list[Any]] = {}
    for each in table["changes"]:
        found.setdefault(each["machine"], []).append(each)
    return [
        {"machine": machine, "rows": rows, "all": len(rows) + rows[0]["earlier"], "last": rows[0]["after"]}
        for machine, rows in found.items()
    ]


def _summary(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """By chip, stack and setting the states in float32, all directions together."""
    found: dict[tuple[int, int, str], dict[str, dict[str, int]]] = {}
    for cell in table["cells"]:
        if cell["check"] not in _SHOWN or cell["dtype"] != "float32":
            continue
        checks = found.setdefault((cell["chip"], cell["stack"], cell["setting"]), {})
        states = checks.setdefault(cell["check"], {})
        for state, machines in cell["states"].items():
            # Each direction counts machines of its own; the largest number is the least that is true of all.
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
    """The cells with a number for each word, which is what makes thousands of them small."""
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
    """JSON that no parser of HTML takes for the end of a script, or its beginning."""
    made = json.dumps(data, separators=(",", ":"))
    for sign in "<>&":
        made = made.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(made)  # noqa: S704 - no character of HTML is left in it


def _shown(value: Any) -> Any:
    return "" if value is None else text.plain(value)


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    return environment(_PACKAGE, _shown)
