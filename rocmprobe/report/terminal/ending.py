"""The end of a run on a terminal: failures, findings, configuration, and the verdict as the last line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rocmprobe.judge.failures import counts_sentence
from rocmprobe.judge.recommendation.blocks import env_command
from rocmprobe.judge.summary import Summary
from rocmprobe.report.identity import changes_sentence, run_seconds
from rocmprobe.report.symbols import SEVERITY_SYMBOLS
from rocmprobe.report.terminal.findings import SEVERITY_STYLES, print_findings, styled
from rocmprobe.report.terminal.lines import Line, fitted, print_lines
from rocmprobe.text import readable as text

TONE_STYLES = {"good": "green", "slow": "yellow", "bad": "red", "fault": "magenta", "unlearned": "dim"}
_ROWS, _VERIFY_ROWS = 25, 10
#: Ranks of lines. If there are too many lines, lines with the largest rank are left out first.
_MUST, _FIRST, _SURE, _NEXT, _LATER, _BLANK, _REST = range(7)
_SHOWN_REASONS = 4
#: Largest number of shell lines of a configuration. More lines are replaced by the command `rocmprobe env`.
_SHOWN_ROWS = 5


def render_run(summary: Summary, paths: Mapping[str, Path], console: Console) -> None:
    """Print failures with reasons, the configuration, paths and the verdict, in at most ``_ROWS`` rows."""
    lines = [
        *_notices(summary), *_blank(), *_counts(summary), *_failures(summary), *_findings(summary),
        *_blank(), *_configurations(summary), *_blank(), *_further(summary), *_paths(paths),
        *_verdict(summary),
    ]  # fmt: skip
    _print_fitted(lines, _ROWS, console)


def render_verdict(summary: Summary, console: Console) -> None:
    """Print only the verdict, after the notice of a partial run."""
    lines = [*_notices(summary, ("partial",)), *_verdict(summary)]
    print_lines([line for line in lines if line.rank == _MUST], console)


def render_conclusion(summary: Summary, console: Console) -> None:
    """Print every finding with its advice, then the command to use and the verdict."""
    # The results can come from anyone, so their texts are cut.
    shown = replace(
        summary,
        reason=text.one_line(summary.reason, 2000),
        to_copy=replace(summary.to_copy, blocks=(), notes=()),
        others=(),
    )
    print_lines([*_notices(shown)], console)
    print_findings(shown.findings, console)
    print_lines([*_blank(), *_configurations(shown), *_blank(), *_verdict(shown)], console)


def render_verification(
    summary: Summary, holds: bool, sentence: str, paths: Mapping[str, Path], console: Console
) -> None:
    """Print the end of a run with ``--verify``.

    ``sentence`` says whether the configuration ``holds``.
    """
    verdict = Line(styled((sentence, f"bold {TONE_STYLES['good' if holds else 'bad']}")), most=3)
    lines = [*_notices(summary), *_counts(summary), *_failures(summary), *_paths(paths)] if paths else []
    lines.append(verdict)
    _print_fitted(lines, _VERIFY_ROWS, console)


def _print_fitted(lines: list[Line], most: int, console: Console) -> None:
    kept, left_out = fitted(lines, most, console)
    if any(line.in_report for line in left_out):
        # Keep one row free for the line that says that something is left out.
        kept, _ = fitted(lines, most - 1, console)
        places = [place for place, line in enumerate(kept) if line.in_report] or [len(kept) - 2]
        kept.insert(places[-1] + 1, Line(styled(("  The report shows more.", "dim")), most=1))
    print_lines(kept, console)


def _blank() -> Iterator[Line]:
    yield Line(Text(), _BLANK)


def _notices(summary: Summary, kinds: Collection[str] = ()) -> Iterator[Line]:
    """Yield the notices of ``kinds``, or all notices."""
    for notice in summary.notices:
        if kinds and notice.kind not in kinds:
            continue
        rank = {"simulated": _MUST, "partial": _MUST, "note": _FIRST}.get(notice.kind, _LATER)
        style = "bold magenta" if notice.kind == "simulated" else "bold yellow"
        words = text.one_line(notice.body, 1000)
        line = styled((f"{notice.title}: ", style), (words, ""))
        yield Line(line, rank, most=0 if _holds_code(words) else 2)


def _counts(summary: Summary) -> Iterator[Line]:
    cases = text.count(sum(count.number for count in summary.counts), "case")
    took = text.seconds(run_seconds(summary.results))
    yield Line(styled((f"{cases} in {took}: ", "dim"), (counts_sentence(summary.counts), "bold")), most=2)


def _failures(summary: Summary) -> Iterator[Line]:
    for number, group in enumerate(summary.failures):
        rank = _LATER if number < _SHOWN_REASONS else _REST
        style = TONE_STYLES[group.state.tone]
        line = styled((f"  {group.state.symbol} ", style), (group.sentence, ""))
        yield Line(line, rank, most=1 if number else 2, in_report=True)


def _findings(summary: Summary) -> Iterator[Line]:
    bodies = {block.body for block in summary.to_copy.all_blocks}
    for number, finding in enumerate(summary.findings):
        if number == 0:
            yield Line(styled(("Findings", "bold")))
        style = SEVERITY_STYLES[finding.severity]
        line = styled(
            (f"  {SEVERITY_SYMBOLS[finding.severity]} ", style), (text.one_line(finding.title, 300), "")
        )
        rank = _FIRST if number == 0 else _REST if finding.severity == "info" else _NEXT
        yield Line(line, rank, most=1 if finding.severity == "info" else 2, in_report=True)
        # The command of the configuration follows anyway.
        if finding.remedy and finding.remedy not in bodies:
            remedy = styled(("    Remedy: ", "dim"), (finding.remedy, ""))
            yield Line(remedy, rank, copied=True, in_report=True)


def _configurations(summary: Summary) -> Iterator[Line]:
    for block in summary.to_copy.all_blocks:
        body = block.body
        if block.language == "sh" and body.count("\n") >= _SHOWN_ROWS and summary.to_copy.command:
            body = env_command(summary.results)
        yield Line(styled((f"{block.label}:", "bold")))
        yield from _copied(body)
    for note in summary.to_copy.notes:
        yield Line(styled((text.one_line(note, 500), "dim")), _SURE)
    for other in summary.others:
        for block in (other.command,) if other.command else other.blocks:
            yield Line(styled((f"{block.label}:", "bold")), _SURE)
            yield from _copied(block.body, _SURE)


def _holds_code(words: str) -> bool:
    return "`" in words


def _copied(body: str, rank: int = _MUST) -> Iterator[Line]:
    for row in text.plain(body).splitlines():
        if row.strip():
            yield Line(Text(f"  {row}"), rank, copied=True)


def _further(summary: Summary) -> Iterator[Line]:
    changes = summary.results.changes
    yield from _labelled("Baseline", changes and f"{changes_sentence(changes)}.", _SURE)
    yield from _devices(summary)
    yield from _labelled("Cost", summary.cost, _SURE)
    yield from _advice(summary)
    yield from _labelled("Solvers alone", summary.solvers and f"{summary.solvers}.", _LATER)
    yield from _labelled("Tried on", summary.tried_on, _SURE)
    yield from _labelled("Not tested", "; ".join(summary.not_tested), _SURE)
    if summary.verify:
        yield Line(styled(("Test it again: ", "dim"), (summary.verify, "")), _LATER, copied=True)


def _labelled(label: str, words: object, rank: int) -> Iterator[Line]:
    if words:
        yield Line(styled((f"{label}: ", "dim"), (text.one_line(str(words), 1000), "")), rank, most=2)


def _devices(summary: Summary) -> Iterator[Line]:
    found = summary.results.recommendation
    for name, answer in found.devices.items() if found else ():
        gpu = f" ({answer.gpu}{', in the processor' if answer.in_processor else ''})" if answer.gpu else ""
        alone = f" To use only this GPU: {answer.mask}" if answer.mask else ""
        yield from _labelled(f"{name}{gpu}", f"{answer.sentence}{alone}", _SURE)


def _advice(summary: Summary) -> Iterator[Line]:
    known = {finding.title for finding in summary.findings}
    rows = [row for row in summary.advice if row["title"] not in known]
    builds = [row for row in rows if "rocmprobe install" in row["text"]]
    for row in rows:
        if row not in builds:
            yield Line(styled((f"{text.one_line(row['title']).rstrip('.')}.", "")), _LATER, most=1)
    if builds:
        words = text.count(len(builds), "other PyTorch build")
        yield Line(styled((f"{words} for this card: ", "dim"), ("rocmprobe install", "")), _SURE, copied=True)


def _paths(paths: Mapping[str, Path]) -> Iterator[Line]:
    for number, (name, path) in enumerate(paths.items()):
        label = styled((f"{'Report' if number == 0 else name}: ", "dim"), (str(path), ""))
        if number == 0:
            yield Line(label, copied=True)
    others = list(paths)[1:]
    if others:
        yield Line(styled((f"  {' and '.join(others)} are in the same folder", "dim")), _REST)


def _verdict(summary: Summary) -> Iterator[Line]:
    yield from _labelled("Confidence", summary.confidence, _FIRST)
    word = "" if summary.reason.startswith(summary.word) else f"{summary.word}. "
    style = f"bold {TONE_STYLES[summary.tone]}"
    yield Line(styled((f"Verdict: {word}", style), (summary.reason, "bold")))
