"""The answer of `rocmprobe explain` on a terminal: the remedy or the tests first, then the reason."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from rocmprobe.explain.explain import Explanation
from rocmprobe.explain.facts import known
from rocmprobe.report.terminal.lines import wrapped
from rocmprobe.text import readable as text

#: Number of columns of labels such as "Do:".
_LABELS = 7
_LONGEST_FACT = 2000
#: Largest number of rows of an answer.
_KNOWN, _LOCATED = 12, 8


def render_explanation(explanation: Explanation, console: Console, verbose: bool = False) -> None:
    """Print the answer. If ``verbose``, also print what else was weighed, and the facts."""
    for line in _fitted(explanation, console.width):
        console.print(line, soft_wrap=True)
    if explanation.note:
        _print_labelled("Note", explanation.note, console)
    if verbose:
        for each in explanation.weighed:
            _print_labelled("Else", text.one_line(each, _LONGEST_FACT), console)
        facts = known(explanation.facts).items()
        listed = "; ".join(
            f"{name} {text.one_line(text.show(value), _LONGEST_FACT)}" for name, value in facts
        )
        _print_labelled("Facts", listed or "only the log", console)


def _fitted(explanation: Explanation, width: int) -> list[Text]:
    """Return the lines of the answer, with two rows of each quote if there is room."""
    lines = list(_lines(explanation, width, 2))
    height = sum(-(-line.cell_len // width) for line in lines)
    return (
        lines
        if height <= (_LOCATED if explanation.tests else _KNOWN)
        else list(_lines(explanation, width, 1))
    )


def _lines(explanation: Explanation, width: int, rows: int) -> Iterator[Text]:
    yield from wrapped(Text(text.plain(explanation.headline), "bold"), width)
    if step := explanation.remedy:
        after = f" ({step.after})" if step.after else ""
        yield from _labelled("Do", f"{step.does.removesuffix('.')}{after}." if after else step.does, width)
        for command in step.commands:
            yield _command(command)
    for line in explanation.why:
        yield from _labelled("Why", text.one_line(line, rows * (width - _LABELS)), width)
    for number, test in enumerate(explanation.tests, 1):
        yield Text(f"{number}. {text.plain('; '.join(test.commands))}")
        yield from _labelled("Works" if test.works else "Shows", test.works or test.shows, width)
    if explanation.verify:
        yield from _labelled("Check", explanation.verify, width)


def _command(command: str) -> Text:
    # Never wrapped with an indent, because users copy it.
    return Text(f"{' ' * _LABELS}{text.plain(command)}")


def _labelled(label: str, sentence: str, width: int) -> Iterator[Text]:
    for number, row in enumerate(wrapped(Text(text.plain(sentence)), max(width - _LABELS, 20))):
        start = f"{label}:".ljust(_LABELS) if number == 0 else " " * _LABELS
        yield Text(start, "dim").append_text(row)


def _print_labelled(label: str, sentence: str, console: Console) -> None:
    for line in _labelled(label, sentence, console.width):
        console.print(line, soft_wrap=True)
