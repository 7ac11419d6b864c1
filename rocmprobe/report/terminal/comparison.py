"""What changed between two runs, on a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocmprobe.judge.comparison.compare import Comparison, Side, verdict, worse
from rocmprobe.judge.comparison.environment_changes import ABSENT
from rocmprobe.judge.comparison.measurement_changes import LESS, MORE, OPEN, Measured, quiet
from rocmprobe.report import text
from rocmprobe.report.escape import code, table
from rocmprobe.report.identity import CHANGE_WORDS
from rocmprobe.report.states import VERDICT_WORDS

#: Rows of each table; the JSON has all of them.
_SHOWN = 40
#: Characters of a value of the environment.
_LONGEST = 120
_CHANGES = {
    ("time", MORE): "slower", ("time", LESS): "faster", ("first call", MORE): "slower to start",
    ("first call", LESS): "faster to start",
    ("new size", MORE): "slower for new sizes", ("new size", LESS): "faster for new sizes",
    ("memory", MORE): "more memory", ("memory", LESS): "less memory",
}  # fmt: skip


@dataclass(frozen=True)
class _Section:
    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def render_comparison(comparison: Comparison, console: Console) -> None:
    console.print(Text(text.plain(_headline(comparison)), "bold red" if worse(comparison) else "bold green"))
    for label, words in _lines(comparison):
        console.print(Text(f"{label}: ", "dim").append(text.one_line(words, 1000), ""), soft_wrap=True)
    for section in _sections(comparison):
        console.print()
        table = Table(
            *section.header, title=section.title, title_justify="left", title_style="bold", box=None
        )
        for row in section.rows[:_SHOWN]:
            table.add_row(*(Text(text.one_line(cell, 400), overflow="fold") for cell in row))
        console.print(table)
        if len(section.rows) > _SHOWN:
            console.print(_left_out(section))


def markdown(comparison: Comparison) -> str:
    """The same as Markdown; text from the files is shown as code in it."""
    blocks = [
        f"## rocmprobe compare: {_headline(comparison)}",
        "\n".join(f"- {label}: {code(words, 1000)}" for label, words in _lines(comparison)),
    ]
    for section in _sections(comparison):
        rows = (tuple(map(code, row)) for row in section.rows[:_SHOWN])
        blocks.append(f"### {section.title}\n\n{table(section.header, rows)}")
        if len(section.rows) > _SHOWN:
            blocks.append(_left_out(section))
    return "\n\n".join(filter(None, blocks)) + "\n"


def _headline(comparison: Comparison) -> str:
    words = verdict(comparison)
    return f"{words[0].upper()}{words[1:]}."


def _lines(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """What is said in words: a label of ours, and a sentence that may hold what the files hold."""
    yield "Old", _side(comparison.old)
    yield "New", _side(comparison.new)
    before, now = (_recommended(side) for side in (comparison.old, comparison.new))
    if before != now:
        yield "Recommended", f"{before}, now {now}"
    found = comparison.measurements
    asked = text.count(comparison.compared, "question")
    yield (
        "Compared",
        f"{asked}, {text.count(found.times, 'time')}, "
        f"{text.count(found.amounts, 'amount')} of memory; "
        f"{text.count(len(comparison.environment), 'difference')} of the environment",
    )
    for device, factor in found.drift.items():
        if not quiet(factor):
            yield (
                "Device",
                f"the speed of {device} itself differs by a factor of {factor:.2f} between the runs, by "
                "matrix product and copy: another program used it, or its clocks differed. None of its "
                "times is reported as changed; compare runs of an idle machine.",
            )
    if found.times and not found.drift:
        yield (
            "Device",
            "no matrix product and copy were timed in both runs, so its own speed is unknown, and no time is "
            "reported as changed; run the check throughput in both.",
        )
    open_ = found.changed_as(OPEN)
    if open_:
        several = len({each.device for each in comparison.measurements.changed}) > 1
        names = ", ".join(
            " ".join(([each.device] if several else []) + [each.setting, each.what, f"{each.ratio:.2f}"])
            for each in open_[:6]
        )
        more = f" and {len(open_) - 6} more" if len(open_) > 6 else ""
        yield "Too noisy to tell (new / old)", f"{names}{more}"
    for note in comparison.notes:
        yield "Note", note


def _side(side: Side) -> str:
    words = [side.path, text.date(side.started), f"rocmprobe {side.rocmprobe}"]
    words += [f"simulated {side.simulated}"] if side.simulated else []
    return ", ".join([*words, "partial"] if side.partial else words)


def _recommended(side: Side) -> str:
    word = VERDICT_WORDS.get(side.recommendation or "", "nothing")
    return f"{word} ({side.setting})" if side.setting else word


def _sections(comparison: Comparison) -> Iterator[_Section]:
    states = [
        (CHANGE_WORDS[change.kind], change.id, change.before or "", change.after or "")
        for change in comparison.changed
    ]
    if states:
        yield _Section("States", ("change", "question", "before", "now"), states)
    environment = [(each.name, _value(each.before), _value(each.after)) for each in comparison.environment]
    if environment:
        yield _Section("Environment", ("what", "before", "now"), environment)
    found = [each for each in comparison.measurements.changed if each.told != OPEN]
    if found:
        header = ("change", "setting", "what", "new / old", "range", "of")
        yield _Section("Time and memory", header, [_row(each) for each in found])


def _row(each: Measured) -> tuple[str, ...]:
    range_ = "" if each.kind == "memory" else f"{each.least:.2f} to {each.most:.2f}"
    of = each.id or text.count(each.problems, "problem")
    place = (
        f"{each.device} {each.setting}"
        if each.driver == "torch"
        else f"{each.device} {each.driver} {each.setting}"
    )
    return _CHANGES[each.kind, each.told], place, each.what, f"{each.ratio:.2f}", range_, of


def _value(value: Any) -> str:
    if value == ABSENT:
        return ABSENT
    if isinstance(value, (str, list)) and not value:
        return "(empty)"
    return text.one_line(text.show(value), _LONGEST)


def _left_out(section: _Section) -> str:
    return f"{text.count(len(section.rows) - _SHOWN, 'row')} more: rocmprobe compare --json has all of them."
