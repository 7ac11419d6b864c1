"""The whole judgement as Markdown for any issue tracker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from rocmprobe.judge.failures import counts_sentence
from rocmprobe.judge.recommendation.blocks import Block
from rocmprobe.judge.summary import Summary
from rocmprobe.model.results import Finding, Results
from rocmprobe.model.states import State
from rocmprobe.report import ladder, matrix, tables
from rocmprobe.report.changing_sizes import changing_sizes
from rocmprobe.report.escape import code, fence, folded, joined, lines, table, words
from rocmprobe.report.identity import changes_sentence, changes_table, identity
from rocmprobe.report.symbols import SEVERITY_SYMBOLS
from rocmprobe.text import readable as text

#: Largest number of characters of the Markdown: a tenth of GitHub's limit for the summary of a step.
LIMIT = 100_000
_EVIDENCE_LINES = 12
_FINDINGS = 50
_COLUMNS = 40
_ROWS = 100
_REASONS = 20


def markdown(summary: Summary) -> str:
    """Return the run's judgement as Markdown of at most ``LIMIT`` characters."""
    return joined(_blocks(summary), LIMIT)


def _blocks(summary: Summary) -> Iterator[str]:
    results = summary.results
    yield from verdict(summary)
    if summary.findings:
        yield "## Findings"
        for found in summary.findings[:_FINDINGS]:
            yield from _finding(found)
        yield left_out(len(summary.findings) - _FINDINGS, "finding")
    yield from advice(summary)
    yield from against(results)
    yield "## Outcomes"
    yield counts(summary)
    for name in ladder.device_names(results):
        yield from _device(ladder.device(results, name))
    yield from _sizes(results)
    yield from _recommended(results)
    yield from _not_run(summary)
    yield "## Environment"
    yield from environment(results)


def verdict(summary: Summary) -> Iterator[str]:
    """Yield the beginning of the report: title, warnings, verdict, configuration, cost and limits."""
    yield f"# rocmprobe: {summary.word} · {words(summary.card, 120)}"
    for notice in summary.notices:
        yield f"> **{notice.title}:** {words(notice.body, 1000)}"
    yield f"**{summary.word}.** {words(summary.reason, 1000)}"
    yield from _fenced(summary.to_copy.all_blocks)
    yield "\n".join(f"- {words(note, 1000)}" for note in summary.to_copy.notes[:20])
    for other in summary.others:
        yield from _fenced(other.all_blocks)
    rows = (
        ("Cost", summary.cost), ("Not tested", "; ".join(summary.not_tested)),
        ("Confidence", summary.confidence), ("Tried on", summary.tried_on),
    )  # fmt: skip
    yield "\n".join(f"- **{label}:** {words(value, 1000)}" for label, value in rows if value)
    if summary.verify:
        yield f"Test it again:\n\n{fence(summary.verify, 'sh', 1000)}"


def advice(summary: Summary) -> Iterator[str]:
    """Yield the other PyTorch builds, and the repairs of the machine."""
    yield "\n".join(
        f"- **Also:** {words(row.get('title', ''))}. {words(row.get('text', ''), 1000)}"
        for row in summary.advice[:10]
    )


def _fenced(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield blocks to copy, each after its label."""
    for block in blocks:
        yield f"{words(block.label)}:\n\n{fence(block.body, block.language)}"


def title(found: Finding) -> str:
    """Return a finding in one line: symbol, severity and title."""
    return f"{SEVERITY_SYMBOLS[found.severity]} {found.severity}: {words(found.title, 400)}"


def _finding(found: Finding) -> Iterator[str]:
    yield f"### {title(found)}"
    possible = "possible cause" if found.confirm else "cause"
    yield f"Layer {code(found.layer, 60)}, {possible} {code(found.cause, 60)}."
    if found.evidence:
        yield lines(found.evidence, _EVIDENCE_LINES)
    if found.advice:
        yield f"**What to do:** {words(found.advice, 1500)}"
    if found.remedy:
        yield f"**Remedy:** {remedy(found)}"
    if found.confirm:
        yield f"**To confirm the cause:** {words(found.confirm, 1500)}"


def remedy(found: Finding) -> str:
    """Return the remedy of a finding: a link, or a command as code."""
    return words(found.remedy, 500) if found.remedy.startswith("https:") else code(found.remedy, 500)


def left_out(amount: int, noun: str) -> str:
    """Return a sentence that says how many items are not shown, or ""."""
    return f"{text.count(amount, noun)} more in results.json." if amount > 0 else ""


def against(results: Results, most: int = 50) -> Iterator[str]:
    """Yield the changes since the baseline, or nothing if the run has no baseline."""
    if results.changes is None:
        return
    yield "## Against the baseline"
    yield f"{words(changes_sentence(results.changes), 1000)}."
    tabled = changes_table(results.changes)
    if tabled:
        yield _table(tabled, most)


def counts(summary: Summary) -> str:
    """Return the number of cases by result."""
    cases = sum(count.number for count in summary.counts)
    return f"{text.count(cases, 'case')}: {counts_sentence(summary.counts)}."


def _device(device: ladder.DeviceSection) -> Iterator[str]:
    isa = f" ({words(device.isa, 60)})" if device.isa else ""
    yield f"### Device {code(device.name, 60)}{isa}"
    yield f"The ladder. {words(device.ladder.caption)}"
    rows = [(rung.name, _look(rung.look), rung.detail) for rung in device.ladder.rungs]
    yield table(("rung", "state", "of them"), rows)
    tables = {"Convolution": device.matrix, "Problem matrix": device.problem_matrix, "Layers": device.layers}
    for name, tabled in tables.items():
        if tabled:
            yield folded(f"{name}: settings and their results", _matrix(tabled))


def _sizes(results: Results) -> Iterator[str]:
    found = changing_sizes(results)
    if found:
        yield "## Changing sizes"
        yield words(found.caption, 1000)
        yield _table(found.table)


def _look(look: Optional[State]) -> str:
    return f"{look.symbol} {look.name}" if look else "not run"


def _matrix(tabled: matrix.Matrix) -> str:
    columns = tabled.columns[:_COLUMNS]
    rows = [
        (
            code(group.name, 120), code(row, 120),
            *(_cell(cell) for cell in cells[:_COLUMNS]),
        )
        for group in tabled.groups
        for row, cells in group.rows
    ]  # fmt: skip
    header = ("question", "part", *(code(column.label, 60) for column in columns))
    parts = [words(tabled.summary), table(header, rows, _ROWS)]
    return "\n\n".join([*parts, *filter(None, [left_out(len(tabled.columns) - _COLUMNS, "setting")])])


def _cell(cell: Optional[matrix.Cell]) -> str:
    if cell is None:
        return ""
    return cell.look.symbol if cell.look.name == "pass" else _look(cell.look)


def _recommended(results: Results) -> Iterator[str]:
    if results.recommendation is None:
        return
    by_device = tables.device_rows(results.recommendation.devices)
    if by_device.rows:
        yield "## For each device"
        yield _table(by_device)
    per = tables.per_rows(results.recommendation.per)
    if per.rows:
        yield "## For each dtype and purpose"
        yield _table(per)
    alternatives = tables.table(results.recommendation.alternatives, ("setting", "verdict"))
    if alternatives.rows:
        yield "## Alternatives"
        yield _table(alternatives)


def _table(tabled: tables.Table, most: int = _ROWS) -> str:
    header = [words(name, 60) for name in tabled.header[:_COLUMNS]]
    return table(header, ([words(cell, 200) for cell in row[:_COLUMNS]] for row in tabled.rows), most)


def _not_run(summary: Summary) -> Iterator[str]:
    yield "## Cases that did not run"
    items = [
        f"- {text.count(row.number, 'case')} {row.state.symbol} {row.state.name}: {words(row.reason)}"
        for row in summary.not_run[:_REASONS]
    ]
    rest = sum(row.number for row in summary.not_run[_REASONS:])
    items += [f"- {text.count(rest, 'case')} for other reasons, see results.json"] if rest else []
    yield "\n".join(items) or "Every case ran."
    if summary.solvers:
        yield f"Solvers alone: {words(summary.solvers)}."


def environment(results: Results) -> Iterator[str]:
    """Yield the machine's identity, variables and facts as tables."""
    machine = results.machine
    yield table(("", ""), ((label, words(value, 200)) for label, value in identity(results)))
    if machine.variables:
        yield "Variables that are set:"
        rows = tables.fact_rows(tables.variable_facts(machine))
        yield table(("variable", "value", "meaning"), map(_fact, rows), _ROWS)
    facts = tables.fact_rows(tables.other_facts(machine))
    if facts:
        inner = table(("fact", "value", "source"), map(_fact, facts), _ROWS)
        yield folded(f"{text.count(len(facts), 'fact')}, each with its source", inner)
    if results.redacted:
        kinds = ", ".join(f"{words(kind, 40)} {amount}" for kind, amount in results.redacted.items())
        yield f"Replaced by placeholders before this was written: {kinds}."


def _fact(row: tuple[str, str, str]) -> tuple[str, ...]:
    name, value, source = row
    return code(name, 100), words(value, 160), words(source, 160)
