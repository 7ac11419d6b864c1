"""The table as the summary of a CI job: what works where, who differs and what changed, without the cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rocmprobe.collection.page import chip_words, question_words, stack_words
from rocmprobe.report import text
from rocmprobe.report.escape import code, words
from rocmprobe.report.escape import table as table_of
from rocmprobe.report.states import VERDICT_WORDS

#: Rows of each kind; with these a summary stays far below the 1 MiB that GitHub takes for a step.
_ROWS = 40
_LIST = 20


def markdown(table: Mapping[str, Any]) -> str:
    """Of the content of table.json."""
    return "\n\n".join(filter(None, _blocks(table))) + "\n"


def _blocks(table: Mapping[str, Any]) -> Iterator[str]:
    machines = table["machines"]
    simulated = sum(bool(each["simulated"]) for each in machines)
    yield "## rocmprobe: what works where"
    read = f"{text.count(table['read']['results'], 'result')} of {text.count(len(machines), 'machine')}"
    yield f"{read}, {simulated} simulated." if simulated else f"{read}."
    refused = (f"{code(each['file'])}: {words(each['reason'])}" for each in table["read"]["reasons"])
    yield from _section("Not read", refused)
    whole = [each for each in table["configurations"] if not each["dtype"]]
    yield table_of(
        ("chip", "stack", "what works", "machines"),
        [
            (
                words(chip_words(table["chips"][each["chip"]])),
                words(stack_words(table["stacks"][each["stack"]])),
                _answer(each),
                f"{each['machines']} of {each['of']}",
            )
            for each in whole[:_ROWS]
        ],
    )
    yield _more(len(whole) - _ROWS, "row")
    yield from _section(
        "Machines that differ from equal ones", [_outlier(each) for each in table["outliers"]]
    )
    yield from _section("What changed", [_change(each) for each in table["changes"]])


def _answer(each: Mapping[str, Any]) -> str:
    verdict = words(VERDICT_WORDS.get(each["verdict"], each["verdict"]) or "unknown")
    return f"{verdict}: {code(each['setting'])}" if each["setting"] else verdict


def _outlier(each: Mapping[str, Any]) -> str:
    cells, facts = each["cells"], each["facts"]
    first = cells[0]
    line = (
        f"{', '.join(map(code, each['machines'][:5]))}: {code(first['state'])} instead of "
        f"{code(first['majority'])} in {words(question_words(first))}"
    )
    if len(cells) > 1:
        line += f", and {len(cells) - 1} more"
    if facts:
        line += f"; {code(facts[0]['name'])} is {code(facts[0]['value'] or 'not known')}"
    return line


def _change(each: Mapping[str, Any]) -> str:
    states = [
        f"{code(found['before'])} to {code(found['after'])} in {words(question_words(found['first']))}"
        + (f" and {found['questions'] - 1} more" if found["questions"] > 1 else "")
        for found in each["states"][:5]
    ]
    return f"{code(each['machine'])}: {'; '.join(states)}"


def _section(heading: str, entries: Iterable[str]) -> Iterator[str]:
    rows = list(entries)
    if rows:
        yield f"### {heading}"
        yield "\n".join(f"- {row}" for row in rows[:_LIST])
        yield _more(len(rows) - _LIST, "row")


def _more(left: int, what: str) -> str:
    return f"{text.count(left, what)} more: the table has them." if left > 0 else ""
