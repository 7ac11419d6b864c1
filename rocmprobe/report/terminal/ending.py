"""The end of a run on a terminal: failures, findings, configuration, and the verdict as the last line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rocmprobe.judge.findings.sweep import FAULTY_SOLVERS, summary
from rocmprobe.model.results import Recommendation, Results
from rocmprobe.report import text
from rocmprobe.report.commands import env_command, exec_command
from rocmprobe.report.identity import changes_sentence, run_seconds, tested_machines_sentence
from rocmprobe.report.page import view
from rocmprobe.report.page.banners import banners
from rocmprobe.report.states import SEVERITY_SYMBOLS, verdict_tone, verdict_word
from rocmprobe.report.terminal.failures import by_reason, counts
from rocmprobe.report.terminal.findings import SEVERITY_STYLES, styled
from rocmprobe.report.terminal.lines import Line, fitted, print_lines

TONE_STYLES = {"good": "green", "slow": "yellow", "bad": "red", "fault": "magenta", "unlearned": "dim"}
_ROWS, _VERIFY_ROWS = 25, 10
#: Ranks of lines. If there are too many lines, lines with the largest rank are left out first.
_MUST, _FIRST, _SURE, _NEXT, _COST, _BLANK, _REST = range(7)
_SHOWN_REASONS = 4
#: Largest number of shell lines of a configuration. More lines are replaced by the command `rocmprobe env`.
_SHOWN_ROWS = 5
_FINDING, _REASON = "finding", "reason for failures"


def render_run(results: Results, paths: Mapping[str, Path], console: Console) -> None:
    """Print failures with reasons, the configuration, paths and the verdict, in at most ``_ROWS`` rows."""
    lines = [
        *_banners(results), *_blank(), *_counts(results), *_failures(results), *_findings(results),
        *_blank(), *_configurations(results), *_blank(), *_further(results), *_paths(paths),
        *_verdict(results),
    ]  # fmt: skip
    _print_fitted(lines, _ROWS, console)


def render_verdict(results: Results, console: Console) -> None:
    """Print only the verdict."""
    print_lines([line for line in _verdict(results) if line.rank == _MUST], console)


def render_verification(
    results: Results, holds: bool, sentence: str, paths: Mapping[str, Path], console: Console
) -> None:
    """Print the end of a run with ``--verify``.

    ``sentence`` says whether the configuration ``holds``.
    """
    verdict = Line(styled((sentence, f"bold {TONE_STYLES['good' if holds else 'bad']}")), most=3)
    lines = [*_banners(results), *_counts(results), *_failures(results), *_paths(paths)] if paths else []
    lines.append(verdict)
    _print_fitted(lines, _VERIFY_ROWS, console)


def _print_fitted(lines: list[Line], most: int, console: Console) -> None:
    kept, left_out = fitted(lines, most, console)
    if any(line.counted for line in left_out):
        # Keep one row free for the line that says what is left out.
        kept, left_out = fitted(lines, most - 1, console)
        number = Counter(line.counted for line in left_out if line.counted)
        nouns = [text.count(amount, noun, _plural(noun)) for noun, amount in number.items()]
        places = [place for place, line in enumerate(kept) if line.counted] or [len(kept) - 2]
        more = styled((f"  In the report only: {' and '.join(nouns)}", "dim"))
        kept.insert(places[-1] + 1, Line(more, most=1))
    print_lines(kept, console)


def _plural(noun: str) -> str:
    return "reasons for failures" if noun == _REASON else f"{noun}s"


def _blank() -> Iterator[Line]:
    yield Line(Text(), _BLANK)


def _banners(results: Results) -> Iterator[Line]:
    for banner in banners(results):
        if banner.kind == "simulated":
            body = f"machine {results.simulated}. Nothing ran on a real GPU; speeds are a CPU's."
            yield Line(styled((f"{banner.title}: ", "bold magenta"), (body, "")))
        else:
            rank = {"partial": _MUST, "note": _FIRST}.get(banner.kind, _NEXT)
            words = text.one_line(banner.body, 1000)
            line = styled((f"{banner.title}: ", "bold yellow"), (words, ""))
            yield Line(line, rank, most=0 if _holds_code(words) else 2)


def _counts(results: Results) -> Iterator[Line]:
    cases, took = text.count(len(results.outcomes), "case"), text.seconds(run_seconds(results))
    yield Line(styled((f"{cases} in {took}: ", "dim"), (counts(results.outcomes), "bold")), most=2)


def _failures(results: Results) -> Iterator[Line]:
    for number, group in enumerate(by_reason(results.outcomes)):
        rank = _FIRST if number == 0 else _NEXT if number < _SHOWN_REASONS else _REST
        style = TONE_STYLES[group.state.tone]
        line = styled((f"  {group.state.symbol} ", style), (group.sentence, ""))
        yield Line(line, rank, most=1 if number else 2, counted=_REASON)


def _findings(results: Results) -> Iterator[Line]:
    for number, finding in enumerate(results.findings):
        if number == 0:
            yield Line(styled(("Findings", "bold")))
        style = SEVERITY_STYLES[finding.severity]
        line = styled(
            (f"  {SEVERITY_SYMBOLS[finding.severity]} ", style), (text.one_line(finding.title, 300), "")
        )
        rank = _FIRST if number == 0 else _REST if finding.severity == "info" else _NEXT
        yield Line(line, rank, most=1 if finding.severity == "info" else 2, counted=_FINDING)


def _configurations(results: Results) -> Iterator[Line]:
    found = results.recommendation
    if found is None:
        return
    blocks = view.blocks(found.configuration)
    by_exec = bool(blocks and not results.partial and found.configuration.setting)
    if by_exec:
        yield Line(styled(("Run your program with the recommended configuration:", "bold")))
        yield from _copied(exec_command(results, found.configuration))
    for number, block in enumerate(blocks):
        body = block.body
        if block.language == "sh" and body.count("\n") >= _SHOWN_ROWS and not results.partial:
            body = env_command(results)
        either = "Or without rocmprobe exec. " if by_exec and number == 0 else ""
        yield Line(styled((f"{either}{block.label}:", "bold")))
        yield from _copied(body)
    for layer in found.configuration.layers:
        words = text.one_line(f"{layer[:1].upper()}{layer[1:]}", 500).rstrip(".")
        yield Line(styled((f"{words}.", "dim")), _SURE)
    for words, other in found.others.items():
        yield Line(styled((f"For {words}:", "bold")), _SURE)
        setting = results.setting(other.setting)
        if results.partial or (setting and setting.changes_problems):
            for block in view.blocks(other):
                yield from _copied(block.body, _SURE)
        else:
            yield from _copied(exec_command(results, other), _SURE)


def _holds_code(words: str) -> bool:
    return "`" in words


def _copied(body: str, rank: int = _MUST) -> Iterator[Line]:
    for row in text.plain(body).splitlines():
        if row.strip():
            yield Line(Text(f"  {row}"), rank, copied=True)


def _further(results: Results) -> Iterator[Line]:
    found = results.recommendation
    yield from _labelled("Baseline", results.changes and f"{changes_sentence(results.changes)}.", _SURE)
    if found:
        yield from _devices(found)
        yield from _labelled("Cost", found.cost, _COST)
        yield from _advice(results, found)
    sweep = summary(results)
    if sweep and not any(finding.id == FAULTY_SOLVERS for finding in results.findings):
        yield from _labelled("Solvers alone", f"{sweep}.", _COST)
    yield from _labelled("Tried on", tested_machines_sentence(results), _SURE)
    if found:
        yield from _labelled("Not tested", "; ".join(found.not_covered), _COST)
        if found.verify:
            label = styled(("Test it again: ", "dim"), (found.verify, ""))
            yield Line(label, _COST, copied=True)


def _labelled(label: str, words: object, rank: int) -> Iterator[Line]:
    if words:
        yield Line(styled((f"{label}: ", "dim"), (text.one_line(str(words), 1000), "")), rank, most=2)


def _devices(found: Recommendation) -> Iterator[Line]:
    for name, answer in found.devices.items():
        gpu = f" ({answer.gpu}{', in the processor' if answer.in_processor else ''})" if answer.gpu else ""
        alone = f" To use only this GPU: {answer.mask}" if answer.mask else ""
        yield from _labelled(f"{name}{gpu}", f"{answer.sentence}{alone}", _SURE)


def _advice(results: Results, found: Recommendation) -> Iterator[Line]:
    known = {finding.title for finding in results.findings}
    rows = [row for row in found.advice if row["title"] not in known]
    builds = [row for row in rows if "rocmprobe install" in row["text"]]
    for row in rows:
        if row not in builds:
            yield Line(styled((f"{text.one_line(row['title']).rstrip('.')}.", "")), _COST, most=1)
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


def _verdict(results: Results) -> Iterator[Line]:
    found = results.recommendation
    if found and found.confidence:
        words = ": ".join(filter(None, (found.confidence_level, found.confidence)))
        yield from _labelled("Confidence", words, _FIRST)
    word, style, sentence = verdict_word(results), TONE_STYLES[verdict_tone(results)], view.sentence(results)
    word = "" if sentence.startswith(word) else f"{word}. "
    yield Line(styled((f"Verdict: {word}", f"bold {style}"), (sentence, "bold")))
