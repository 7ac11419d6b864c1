"""Comparison of runs: as tables on a terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from rich.table import Table
from rich.text import Text

from rocmprobe.judge.comparison import Comparison, MeasuredChange
from rocmprobe.model.changes import MISSING, NEW
from rocmprobe.model.states import STATES
from rocmprobe.report import escape
from rocmprobe.report.identity import CHANGE_WORDS
from rocmprobe.text import readable as text
from rocmprobe.text.console import Console
from rocmprobe.text.plain_text import sentence_case

#: Largest number of changed states that are shown. The JSON has all.
_SHOWN = 100
#: Beginnings of a cell that a spreadsheet reads as a formula, or GitHub as a command.
_FORMULA = ("=", "+", "-", "@", "::")
_Rows = Sequence[Mapping[str, Any]]
_Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def verdict(comparison: Comparison) -> str:
    """Return the result in one line, such as "1 regressed, 2 fixed, 1 setting slower" or "no change"."""
    if comparison.not_comparable:
        return f"not comparable: {comparison.not_comparable}"
    kinds = Counter(change.kind for change in comparison.changed if change.kind not in (NEW, MISSING))
    parts = [f"{kinds[kind]} {words}" for kind, words in CHANGE_WORDS.items() if kinds[kind]]
    measured = Counter(("case" if each.case else "setting", _words(each)) for each in comparison.measured)
    parts += [f"{amount} {noun}{'s' * (amount > 1)} {words}" for (noun, words), amount in measured.items()]
    return ", ".join(parts) or "no change"


def _words(change: MeasuredChange) -> str:
    words = ("with less memory", "with more memory") if change.case else ("faster", "slower")
    return words[change.ratio > 1]


def render(rows: _Rows, comparison: Optional[Comparison]) -> None:
    """Print the row of each run, or for two runs their ``comparison``."""
    console = Console()
    if comparison:
        line = verdict(comparison)
        console.print(f"{sentence_case(line)}.", style="bold red" if comparison.worse else "bold green")
        console.print("\n".join([f"Compared: {text.count(comparison.compared, 'case')}.", *comparison.notes]))
    for title, header, cells in _tables(rows, comparison):
        shown = Table(*header, title=title, title_justify="left", title_style="bold", box=None)
        for row in cells:
            shown.add_row(*(Text(text.one_line(cell, 400), overflow="fold") for cell in row))
        console.print(shown)


def markdown(rows: _Rows, comparison: Optional[Comparison]) -> str:
    """Return the same as Markdown. Text from the files becomes code, so it cannot be markup."""
    blocks = [f"## rocmprobe compare: {escape.words(verdict(comparison))}"] if comparison else []
    blocks += [f"- {escape.words(note)}" for note in comparison.notes] if comparison else []
    for title, header, cells in _tables(rows, comparison):
        body = escape.table(header, (tuple(map(escape.code, row)) for row in cells), len(cells))
        blocks.append(f"### {title}\n\n{body}")
    return "\n\n".join(blocks) + "\n"


def _tables(rows: _Rows, comparison: Optional[Comparison]) -> Iterator[_Table]:
    """Yield title, header and rows of each table. Leave out tables without rows."""
    if comparison is None:
        yield "Runs", ("run", "chip", "stack", "verdict", "setting", "states"), list(map(_cells, rows))
        return
    sides = [(name, *(text.show(row[name]) for row in rows)) for name in rows[0]]
    yield "Runs", ("", "old", "new"), [row for row in sides if row[1] != row[2]]
    changed = [each for each in comparison.changed if each.kind not in (NEW, MISSING)]
    if changed:
        states = [(CHANGE_WORDS[each.kind], each.id, str(each.before), str(each.after)) for each in changed]
        yield f"States ({len(changed)})", ("change", "case", "before", "now"), states[:_SHOWN]
    if comparison.measured:
        header = ("change", "setting", "of", "new / old", "noise")
        yield "Time and memory", header, [
            (_words(each), each.setting, each.case or each.device, f"{each.ratio:.2f}", f"{each.noise:.2f}")
            for each in comparison.measured
        ]  # fmt: skip


def _cells(row: Mapping[str, Any]) -> Sequence[str]:
    stack = ", ".join(f"{name} {row[name]}" for name in ("torch", "rocm", "miopen") if row[name])
    verdict = f"{row['verdict']}, partial" if row["partial"] else row["verdict"]
    return row["run"], row["chip"], stack, verdict, row["setting"], text.show(row["states"])


def to_csv(rows: _Rows) -> str:
    """Return one line for each run, with a column for each state."""
    stream = io.StringIO()
    names = [name for name in rows[0] if name != "states"]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*names, *STATES])
    for row in rows:
        cells = [text.show(row[name]) for name in names]
        cells = [f"'{cell}" if cell.startswith(_FORMULA) else cell for cell in cells]
        writer.writerow([*cells, *(row["states"].get(state, 0) for state in STATES)])
    return stream.getvalue()
