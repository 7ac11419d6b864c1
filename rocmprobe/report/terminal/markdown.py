"""The whole judgement as Markdown for any issue tracker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Optional

from rocmprobe.judge.findings.sweep import summary
from rocmprobe.model.results import Configuration, Finding, Results
from rocmprobe.model.states import STATES, State
from rocmprobe.report import text
from rocmprobe.report.escape import code, fence, folded, joined, lines, table, words
from rocmprobe.report.identity import (
    card,
    changes_sentence,
    changes_table,
    identity,
    tested_machines_sentence,
)
from rocmprobe.report.page import first_calls, layout, matrix, view
from rocmprobe.report.page.banners import banners as page_banners
from rocmprobe.report.states import SEVERITY_SYMBOLS, verdict_word

#: Largest number of characters of the Markdown: a tenth of GitHub's limit for the summary of a step.
LIMIT = 100_000
_EVIDENCE_LINES = 12
_FINDINGS = 50
_COLUMNS = 40
_ROWS = 100


def markdown(results: Results) -> str:
    """Return the run's judgement as Markdown of at most ``LIMIT`` characters."""
    return joined(_blocks(results), LIMIT)


def _blocks(results: Results) -> Iterator[str]:
    yield from verdict(results)
    if results.findings:
        yield "## Findings"
        for found in results.findings[:_FINDINGS]:
            yield from _finding(found)
        yield left_out(len(results.findings) - _FINDINGS, "finding")
    yield from against(results)
    yield "## Outcomes"
    yield counts(results)
    for name in view.device_names(results):
        yield from _device(view.device(results, name))
    yield from _sizes(results)
    yield from _recommended(results)
    yield from _not_covered(results)
    yield "## Environment"
    yield from environment(results)


def verdict(results: Results) -> Iterator[str]:
    """Yield the beginning of the report: title, warnings, verdict, configuration, cost and confidence."""
    recommendation = results.recommendation
    word = verdict_word(results)
    yield f"# rocmprobe: {word} · {words(card(results.machine), 120)}"
    yield from banners(results)
    yield f"**{word}.** {words(view.sentence(results), 1000)}"
    if recommendation is None:
        return
    yield from configuration(recommendation.configuration)
    yield from fenced(view.other_blocks(results))
    rows = (
        ("Cost", recommendation.cost),
        ("Confidence", ": ".join(filter(None, (recommendation.confidence_level, recommendation.confidence)))),
        ("Tried on", tested_machines_sentence(results)),
    )
    yield "\n".join(f"- **{label}:** {words(value, 1000)}" for label, value in rows if value)
    if recommendation.verify:
        yield f"Test it again:\n\n{fence(recommendation.verify, 'sh', 1000)}"
    yield "\n".join(
        f"- **Also:** {words(row.get('title', ''))}. {words(row.get('text', ''), 1000)}"
        for row in recommendation.advice[:10]
    )


def banners(results: Results) -> Iterator[str]:
    """Yield each warning as a Markdown quotation."""
    for banner in page_banners(results):
        yield f"> **{banner.title}:** {words(banner.body, 1000)}"


def configuration(recommended: Configuration) -> Iterator[str]:
    """Yield the recommended configuration as blocks to copy."""
    yield from fenced(view.blocks(recommended))
    yield "\n".join(f"- {words(layer, 1000)}" for layer in recommended.layers[:20])


def fenced(blocks: Iterable[view.Block]) -> Iterator[str]:
    """Yield blocks to copy, each after its label."""
    for block in blocks:
        yield f"{words(block.label)}:\n\n{fence(block.body, block.language)}"


def title(found: Finding) -> str:
    """Return a finding in one line: symbol, severity and title."""
    return f"{SEVERITY_SYMBOLS[found.severity]} {found.severity}: {words(found.title, 400)}"


def _finding(found: Finding) -> Iterator[str]:
    yield f"### {title(found)}"
    yield f"Layer {code(found.layer, 60)}, cause {code(found.cause, 60)}."
    if found.evidence:
        yield lines(found.evidence, _EVIDENCE_LINES)
    if found.advice:
        yield f"**What to do:** {words(found.advice, 1500)}"


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


def counts(results: Results) -> str:
    """Return the number of outcomes in each state."""
    found = Counter(outcome.state for outcome in results.outcomes)
    states = [f"{look.symbol} {found[state]} {state}" for state, look in STATES.items() if found[state]]
    return f"{text.count(len(results.outcomes), 'outcome')}: {', '.join(states) or 'none'}."


def _device(device: view.DeviceSection) -> Iterator[str]:
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
    found = first_calls.changing_sizes(results)
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
    by_device = view.device_rows(results.recommendation.devices)
    if by_device.rows:
        yield "## For each device"
        yield _table(by_device)
    per = view.per_rows(results.recommendation.per)
    if per.rows:
        yield "## For each dtype and purpose"
        yield _table(per)
    alternatives = layout.table(results.recommendation.alternatives, ("setting", "verdict"))
    if alternatives.rows:
        yield "## Alternatives"
        yield _table(alternatives)


def _table(tabled: layout.Table, most: int = _ROWS) -> str:
    header = [words(name, 60) for name in tabled.header[:_COLUMNS]]
    return table(header, ([words(cell, 200) for cell in row[:_COLUMNS]] for row in tabled.rows), most)


def _not_covered(results: Results) -> Iterator[str]:
    yield "## Not covered"
    not_covered = list(results.recommendation.not_covered) if results.recommendation else []
    items = [f"- {words(line)}" for line in (*_never_run(results), *not_covered)][:30]
    items += [
        f"- {text.count(amount, 'outcome')} {look.symbol} {look.name}: {words(why)}"
        for look, why, amount in matrix.without_result(results)[:20]
    ]
    yield "\n".join(items) or "Every test has a result."
    sweep = summary(results)
    if sweep:
        yield f"Solvers alone: {words(sweep)}."


def _never_run(results: Results) -> Iterator[str]:
    """Yield a note if no AMD GPU was tested."""
    if results.simulated:
        yield "any GPU: the machine was simulated, and nothing ran on RDNA1 or any other AMD card"
    elif not any(target.get("backend") == "miopen" for target in results.options.get("targets") or ()):
        yield "any AMD GPU: this run did not test one"


def environment(results: Results) -> Iterator[str]:
    """Yield the machine's identity, variables and facts as tables."""
    machine = results.machine
    yield table(("", ""), ((label, words(value, 200)) for label, value in identity(results)))
    if machine.variables:
        yield "Variables that are set:"
        rows = view.fact_rows(view.variable_facts(machine))
        yield table(("variable", "value", "meaning"), map(_fact, rows), _ROWS)
    facts = view.fact_rows(view.other_facts(machine))
    if facts:
        inner = table(("fact", "value", "source"), map(_fact, facts), _ROWS)
        yield folded(f"{text.count(len(facts), 'fact')}, each with its source", inner)
    if results.redacted:
        kinds = ", ".join(f"{words(kind, 40)} {amount}" for kind, amount in results.redacted.items())
        yield f"Replaced by placeholders before this was written: {kinds}."


def _fact(row: tuple[str, str, str]) -> tuple[str, ...]:
    name, value, source = row
    return code(name, 100), words(value, 160), words(source, 160)
