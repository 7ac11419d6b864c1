"""Changes between two runs, on a terminal and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocmprobe.judge.comparison.compare import Comparison, Side, verdict, worse
from rocmprobe.judge.comparison.environment_changes import ABSENT, Difference
from rocmprobe.judge.comparison.measurement_changes import LESS, MORE, OPEN, Measured, quiet
from rocmprobe.model.changes import MISSING, NEW, Change
from rocmprobe.model.states import STATES
from rocmprobe.report import text
from rocmprobe.report.escape import code, table
from rocmprobe.report.identity import CHANGE_WORDS
from rocmprobe.report.states import VERDICT_WORDS

#: Largest number of rows of each table. The JSON has all rows.
_SHOWN = 20
#: Largest number of differences in settings that are listed. If there are more, only their number is shown.
_SETTING_VALUES = 4
_NAMED = 6
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
    """Return the comparison as Markdown. Text from the files becomes code, so it cannot be markup."""
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
    """Yield (label, sentence) for each line above the tables. Sentences can contain untrusted text."""
    yield "Old", _side(comparison.old)
    yield "New", _side(comparison.new)
    before, now = (_recommended(side) for side in (comparison.old, comparison.new))
    if before != now:
        yield "Recommended", f"{before}, now {now}"
    found = comparison.measurements
    yield (
        "Compared",
        f"{text.count(comparison.compared, 'case')}, {text.count(found.times, 'time')}, "
        f"{text.count(found.amounts, 'amount')} of memory",
    )
    for label, kind in (("Only in the old run", MISSING), ("Only in the new run", NEW)):
        if alone := comparison.of(kind):
            yield label, f"{text.count(len(alone), 'case')} ({_by_setting(alone)})"
    unlearned = [change for change in comparison.changed if change.kind not in (MISSING, NEW)]
    unlearned = [change for change in unlearned if not _matters(change)]
    if unlearned:
        yield "No result in either run", f"{text.count(len(unlearned), 'case')}, for another reason now"
    if options := [each for each in comparison.environment if _is_option(each)]:
        yield "Options that differ", ", ".join(each.name.partition(".")[2] for each in options)
    for device, factor in found.drift.items():
        if not quiet(factor):
            yield (
                "Device",
                f"the speed of {device} itself (matrix product and copy) differs by a factor of "
                f"{factor:.2f} between the runs: another program used it, or its clocks differed. None of "
                "its times is reported as changed. Compare runs of an idle machine.",
            )
    if found.times and not found.drift:
        yield (
            "Device",
            "the speed of the device is unknown, because matrix product and copy were not timed in both "
            "runs. No time is reported as changed. Run the check throughput in both runs.",
        )
    open_ = found.changed_as(OPEN)
    if open_:
        several = len({each.device for each in comparison.measurements.changed}) > 1
        names = ", ".join(
            " ".join(([each.device] if several else []) + [each.setting, each.what, f"{each.ratio:.2f}"])
            for each in open_[:6]
        )
        more = f" and {len(open_) - 6} more" if len(open_) > 6 else ""
        yield "Too noisy to compare (new / old)", f"{names}{more}"
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
        if _matters(change)
    ]
    if states:
        yield _Section("States", ("change", "case", "before", "now"), states)
    environment = list(_environment(comparison.environment))
    if environment:
        yield _Section("Environment", ("what", "before", "now"), environment)
    found = [each for each in comparison.measurements.changed if each.told != OPEN]
    if found:
        header = ("change", "setting", "what", "new / old", "range", "of")
        yield _Section("Time and memory", header, [_row(each) for each in found])


def _matters(change: Change) -> bool:
    states = [STATES[state] for state in (change.before, change.after) if state in STATES]
    return change.kind not in (MISSING, NEW) and any(state.learned for state in states)


def _by_setting(changed: Iterable[Change]) -> str:
    # An id is DEVICE/DRIVER/SETTING/CHECK/...
    amounts = Counter(([*change.id.split("/"), "", "", ""])[2] for change in changed).most_common()
    named = ", ".join(f"{amount} of {setting}" for setting, amount in amounts[:_NAMED])
    more = f" and {text.count(len(amounts) - _NAMED, 'setting')} more" if len(amounts) > _NAMED else ""
    return named + more


def _is_option(each: Difference) -> bool:
    return each.name.startswith("options.")


def _environment(found: Iterable[Difference]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, old value, new value) for each difference. Leave out differences in options.

    Many changed settings become one row.
    """
    shown = [each for each in found if not _is_option(each)]
    of_settings = [each for each in shown if each.name.startswith("settings.")]
    if len(of_settings) > _SETTING_VALUES:
        shown = [each for each in shown if each not in of_settings]
    for each in shown:
        yield each.name, _value(each.before), _value(each.after)
    if len(of_settings) > _SETTING_VALUES:
        settings = {each.name.split(".")[1] for each in of_settings}
        yield (
            "settings",
            f"{len(of_settings)} values of {text.count(len(settings), 'setting')} differ",
            "--json",
        )


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
        return "(not set)"
    if isinstance(value, (str, list)) and not value:
        return "(empty)"
    return text.one_line(text.show(value), _LONGEST)


def _left_out(section: _Section) -> str:
    return f"{text.count(len(section.rows) - _SHOWN, 'row')} more; `rocmprobe compare --json` prints all."
