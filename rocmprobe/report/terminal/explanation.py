"""The result of `rocmprobe explain` on a terminal: causes with evidence, the most likely cause first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Union

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rocmprobe.explain.explain import Explanation, RankedCause
from rocmprobe.explain.log_facts import known
from rocmprobe.knowledge.causes import causes
from rocmprobe.report.terminal.lines import print_paragraph
from rocmprobe.text import readable as text

#: Words for a score, each with the smallest score for which the word is used. On the labelled reports with
#: which the rules were written, the first cause is correct in 30 of 30 explanations with a score of at least
#: 0.9, and in 130 of 150 with a score from 0.6 to 0.9 (benchmarks/explain.py).
_WORDS = ((0.9, "likely"), (0.6, "possible"), (0.0, "a guess"))
_SHOWN_EVIDENCE = 2
#: Largest number of characters of a log line. The JSON has the whole line.
_LONGEST = 300
_LONGEST_FACT = 2000


def render_explanation(
    explanation: Explanation, console: Console, verbose: bool = False, machine: bool = False
) -> None:
    """Print the summary, its evidence, the advice and the facts.

    If ``verbose``, print each cause with score, evidence, advice and verification. If ``machine``, the
    facts of this machine are already used, so print no hint to add them.
    """
    _print_answer(explanation, console)
    if verbose:
        titles = {cause.name: cause.title for cause in causes()}
        for number, cause in enumerate(explanation.causes, 1):
            _print_cause(number, cause, titles.get(cause.cause, cause.cause), console)
    if explanation.note:
        console.print(_labelled("Note", explanation.note))
    _print_facts(explanation, console, machine)
    others = len(explanation.causes) - explanation.sure
    if others > 0 and not verbose and not explanation.elsewhere:
        console.print(_line(f"{text.count(others, 'guess', 'guesses')} more: -v", "dim"))


def _print_answer(explanation: Explanation, console: Console) -> None:
    console.print(_line(explanation.summary, "bold"))
    first = explanation.causes[0] if explanation.sure else None
    if explanation.layer and not explanation.elsewhere:
        layer, score = explanation.layer.name, (first or explanation.layer).score
        console.print(_inset(_labelled("Layer", f"{layer}, {_word(score)}")))
    evidence = next((each.evidence for each in explanation.causes if each.evidence), ())
    if not explanation.elsewhere:
        for line in evidence[:_SHOWN_EVIDENCE]:
            console.print(_inset(_labelled("Because", text.one_line(line, _LONGEST))))
    for word, sentence in (
        ("What to do", explanation.action),
        ("To verify", first.verify if first else ""),
        ("To decide", explanation.decide),
    ):
        if sentence:
            print_paragraph(_labelled(word, sentence), console, 3)
    console.print()


def _inset(line: Union[str, Text]) -> Padding:
    return Padding(line, (0, 0, 0, 3), expand=False)


def _word(score: float) -> str:
    return next(word for least, word in _WORDS if score >= least or least == 0)


def _heading(number: int, cause: RankedCause, title: str) -> Text:
    heading = _line(f"{number}. {title}", "bold")
    return heading.append(
        text.plain(f"  {_word(cause.score)} ({cause.score:.2f}); {cause.layer}, {cause.cause}"), "dim"
    )


def _print_cause(number: int, cause: RankedCause, title: str, console: Console) -> None:
    console.print(_heading(number, cause, title))
    _print_list("Evidence for it", cause.evidence, console)
    _print_list("Evidence against it", cause.against, console)
    for word, sentence in (("What to do", cause.advice), ("To verify", cause.verify)):
        if sentence:
            print_paragraph(_labelled(word, sentence), console, 3)
    console.print()


def _print_list(label: str, lines: Iterable[str], console: Console) -> None:
    for number, line in enumerate(lines):
        if number == 0:
            console.print(_line(f"   {label}:", "dim"))
        console.print(Padding(Text(text.one_line(line, _LONGEST)), (0, 0, 0, 5), expand=False))


def _print_facts(explanation: Explanation, console: Console, machine: bool) -> None:
    facts = explanation.facts
    shown = {name: text.one_line(text.show(value), _LONGEST_FACT) for name, value in known(facts).items()}
    listed = "; ".join(f"{name} {value}" for name, value in shown.items())
    console.print(_labelled("Known", listed or "only the log"))
    if not (machine or explanation.elsewhere or explanation.sure or facts.gpu or facts.true_gfx):
        console.print(
            _labelled(
                "Missing",
                "the machine. If the log is from this machine, use `rocmprobe explain --machine LOG`, else "
                "--fact gpu=..",
            )
        )


def _labelled(label: str, sentence: str) -> Text:
    return Text().append(f"{label}: ", "dim").append(text.plain(sentence))


def _line(words: str, style: str) -> Text:
    return Text(text.plain(words), style)
