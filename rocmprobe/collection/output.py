"""Writers for CSV, Parquet and Markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from rocmprobe.collection.pages import chip_words, question_words, stack_words
from rocmprobe.model.results import BadInput
from rocmprobe.model.results_file import replace_atomically
from rocmprobe.report import text
from rocmprobe.report.escape import code, words
from rocmprobe.report.escape import table as table_of
from rocmprobe.report.states import VERDICT_WORDS

COLUMNS = (
    "label", "native_isa", "pci_id", "revision", "gpu", "device", "os", "kernel", "driver", "torch", "rocm",
    "miopen", "override", "simulated", "setting", "caller", "check", "dtype", "direction", "state",
    "cause", "solver", "problems", "started", "partial", "rocmprobe", "sha256", "file",
)  # fmt: skip
_BATCH = 20_000
#: Prefixes that a spreadsheet reads as a formula, or GitHub Actions as a command.
_FORMULA = ("=", "+", "-", "@", "::")

#: Largest number of rows of each kind. GitHub accepts summaries up to 1 MiB per step.
_ROWS = 40
_LIST = 20


class Writable(Protocol):
    """An open file, or the terminal."""

    def write(self, text: str, /) -> object:
        """Write ``text``."""


def write_csv(rows: Iterable[Mapping[str, Any]], stream: Writable) -> None:
    """Write CSV with a header. An apostrophe protects text that a spreadsheet would read as a formula."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(row[name]) for name in COLUMNS] for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_parquet(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write a Parquet file atomically.

    Raise BadInput if pyarrow is missing, and OSError if the file cannot be written.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(
            "--format parquet needs pyarrow; install it with `pip install 'rocmprobe[table]'`, or use csv"
        ) from error
    kinds = {"problems": pyarrow.int64(), "partial": pyarrow.bool_()}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])
    every = iter(rows)
    with replace_atomically(path) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
        while batch := list(islice(every, _BATCH)):
            columns = {name: [row[name] for row in batch] for name in COLUMNS}
            writer.write_table(pyarrow.table(columns, schema=schema))


def markdown(table: Mapping[str, Any]) -> str:
    """Return a summary of table.json as Markdown."""
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
        "Machines that differ from others with the same GPU and software",
        [_outlier(each) for each in table["outliers"]],
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
