"""The answer of `rocmprobe explain` on a terminal: causes, best first, each with its evidence."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rocmprobe.explain.explain import Explanation, RankedCause
from rocmprobe.explain.log_facts import Facts, known
from rocmprobe.knowledge.causes import causes
from rocmprobe.report import text

#: From which score on a cause is called so.
_WORDS = ((0.9, "very likely"), (0.7, "likely"), (0.4, "possible"), (0.0, "a guess"))
#: What is less likely than this is said in one line, except for the first.
_WORTH_ADVICE = 0.1
#: Longer lines of a log are cut here; the JSON has them whole.
_LONGEST = 300
#: So are longer facts.
_LONGEST_FACT = 2000


def render_explanation(explanation: Explanation, console: Console) -> None:
    """The answer, what to do, and what would decide; each cause with its score, evidence, advice and how to
    verify it; the facts."""
    titles = {cause.name: cause.title for cause in causes()}
    _print_answer(explanation, console)
    for number, cause in enumerate(explanation.causes, 1):
        if number > 1 and cause.score < _WORTH_ADVICE:
            console.print(_heading(number, cause, titles.get(cause.cause, cause.cause)))
        else:
            _print_cause(number, cause, titles.get(cause.cause, cause.cause), console)
    if explanation.note:
        console.print(_labelled("Note", explanation.note))
    _print_facts(explanation.facts, console)


def _print_answer(explanation: Explanation, console: Console) -> None:
    console.print(_line(explanation.summary, "bold"))
    # The first cause says the same again where it is the answer.
    of_first = explanation.causes[0].advice if explanation.causes else ""
    for word, sentence in (
        ("What to do", explanation.action if explanation.action != of_first else ""),
        ("To decide", explanation.decide),
    ):
        if sentence:
            console.print(Padding(_labelled(word, sentence), (0, 0, 0, 3), expand=False))
    for what, level in (("Layer", explanation.layer), ("Group of causes", explanation.group)):
        if level:
            console.print(
                Padding(_labelled(what, f"{level.name} ({level.score:.2f})"), (0, 0, 0, 3), expand=False)
            )
    console.print()


def _heading(number: int, cause: RankedCause, title: str) -> Text:
    word = next(word for least, word in _WORDS if cause.score >= least or least == 0)
    heading = _line(f"{number}. {title}", "bold")
    return heading.append(text.plain(f"  {word} ({cause.score:.2f}); {cause.layer}, {cause.cause}"), "dim")


def _print_cause(number: int, cause: RankedCause, title: str, console: Console) -> None:
    console.print(_heading(number, cause, title))
    _print_list("Speaks for it", cause.evidence, console)
    _print_list("Speaks against it", cause.against, console)
    for word, sentence in (("What to do", cause.advice), ("To verify", cause.verify)):
        if sentence:
            console.print(Padding(_labelled(word, sentence), (0, 0, 0, 3), expand=False))
    console.print()


def _print_list(label: str, lines: Iterable[str], console: Console) -> None:
    for number, line in enumerate(lines):
        if number == 0:
            console.print(_line(f"   {label}:", "dim"))
        console.print(Padding(Text(text.one_line(line, _LONGEST)), (0, 0, 0, 5), expand=False))


def _print_facts(facts: Facts, console: Console) -> None:
    shown = {name: text.one_line(text.show(value), _LONGEST_FACT) for name, value in known(facts).items()}
    listed = "; ".join(f"{name} {value}" for name, value in shown.items())
    console.print(_labelled("Known", listed or "nothing but the log; --fact says more"))


def _labelled(label: str, sentence: str) -> Text:
    return Text().append(f"{label}: ", "dim").append(text.plain(sentence))


def _line(words: str, style: str) -> Text:
    return Text(text.plain(words), style)
