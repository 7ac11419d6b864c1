"""A run's end on a terminal: verdict, findings, counts, files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rocmprobe.judge.findings.sweep import FAULTY_SOLVERS, summary
from rocmprobe.model.results import Outcome, Results
from rocmprobe.model.states import STATES
from rocmprobe.report import text
from rocmprobe.report.identity import changes_sentence, tried_on
from rocmprobe.report.page import networks, shapes_table, view
from rocmprobe.report.page.banners import banners
from rocmprobe.report.states import verdict_tone, verdict_word
from rocmprobe.report.terminal.findings import print_findings, styled

_STYLES = {"good": "green", "slow": "yellow", "bad": "red", "fault": "magenta", "unlearned": "dim"}


def render_run(results: Results, paths: Mapping[str, Path], console: Console) -> None:
    """Verdict, configuration to copy, findings, counts by state, and where the files are."""
    for banner in banners(results):
        banner_line = styled(
            (f"{banner.title}: ", "bold magenta" if banner.kind == "simulated" else "bold yellow")
        )
        console.print(banner_line.append(text.plain(banner.body)))
    recommendation = results.recommendation
    word, tone = verdict_word(results), verdict_tone(results)
    console.print()
    console.print(styled((f"Verdict: {word}. ", f"bold {_STYLES[tone]}"), (view.sentence(results), "bold")))
    if recommendation:
        _print_blocks(view.blocks(recommendation.configuration), console)
        for layer in recommendation.configuration.layers:
            console.print(styled((f"  {layer}", "")))
        _print_blocks(view.other_blocks(results), console)
        console.print()
        if recommendation.cost:
            console.print(styled(("Cost: ", "dim"), (recommendation.cost, "")))
        program = shapes_table.sentence(results)
        if program:
            console.print(styled(("Your model: ", "dim"), (f"{program}.", "")))
        if recommendation.confidence:
            line = ": ".join(filter(None, (recommendation.confidence_level, recommendation.confidence)))
            console.print(styled(("Confidence: ", "dim"), (line, "")))
        if tried_on(results):
            console.print(styled(("Tried on: ", "dim"), (tried_on(results), "")))
        if recommendation.not_covered:
            console.print(styled(("Not covered: ", "dim"), ("; ".join(recommendation.not_covered), "")))
        if recommendation.verify:
            console.print(styled(("Check it again: ", "dim"), (recommendation.verify, "")), soft_wrap=True)
        for name, answer in recommendation.devices.items():
            gpu = (
                f" ({answer.gpu}{', in the processor' if answer.in_processor else ''})" if answer.gpu else ""
            )
            alone = f" Alone: {answer.mask}" if answer.mask else ""
            console.print(styled((f"{name}{gpu}: ", "dim"), (answer.sentence + alone, "")))
        for row in recommendation.advice:
            console.print(styled(("Besides: ", "dim"), (f"{row['title']}. {row['text']}", "")))
    if results.estimate:
        console.print(styled(("Estimate: ", "dim"), (networks.line(results), "")))
    print_findings(results.findings, console)
    sweep = summary(results)
    if sweep and not any(found.id == FAULTY_SOLVERS for found in results.findings):
        console.print(styled(("\nSolvers alone: ", "dim"), (f"{sweep}.", "")))
    if results.changes:
        console.print(styled(("\nBaseline: ", "dim"), (f"{changes_sentence(results.changes)}.", "")))
    _print_counts(results, console)
    for name, path in paths.items():
        console.print(styled((f"{name:>12}  ", "dim"), (str(path), "")), soft_wrap=True)


def _print_blocks(blocks: Iterable[view.Block], console: Console) -> None:
    for block in blocks:
        console.print(styled((f"\n{block.label}:", "dim")))
        # Soft wrap: a wrapped line would not survive being copied.
        console.print(Text(_indented(block.body)), soft_wrap=True)


def _print_counts(results: Results, console: Console) -> None:
    drivers = sorted({outcome.driver for outcome in results.outcomes}, reverse=True)
    console.print()
    for driver in drivers:
        mine = [outcome for outcome in results.outcomes if outcome.driver == driver]
        named = f" by {driver}" if len(drivers) > 1 or driver != "torch" else ""
        _print_line(f"{text.count(len(mine), 'outcome')}{named}: ", mine, console)


def _print_line(label: str, outcomes: Sequence[Outcome], console: Console) -> None:
    counts = Counter(outcome.state for outcome in outcomes)
    counted = styled((label, ""))
    for position, look in enumerate(look for look in STATES.values() if counts[look.name]):
        counted.append(", " if position else "")
        counted.append(f"{look.symbol} {counts[look.name]} {look.name}", _STYLES[look.tone])
    console.print(counted)


def _indented(body: str) -> str:
    return "\n".join(f"  {line}" for line in text.plain(body).splitlines())
