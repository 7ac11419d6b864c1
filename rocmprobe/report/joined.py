"""Report of a joined run: each Python environment with its torch version, result and speed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from markupsafe import Markup
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from rocmprobe.judge.members import choose
from rocmprobe.model.results import JoinedRun, Member, Results
from rocmprobe.model.results_file import read_joined, results_file, write_atomically, write_joined
from rocmprobe.report import text
from rocmprobe.report.escape import joined as blocks_of
from rocmprobe.report.escape import table as escaped_table
from rocmprobe.report.escape import words
from rocmprobe.report.page.layout import Table, table
from rocmprobe.report.states import VERDICT_WORDS, reason
from rocmprobe.report.templates import content_security_policy, environment, style_sheet
from rocmprobe.report.terminal.findings import styled
from rocmprobe.report.terminal.markdown import LIMIT
from rocmprobe.report.write import judged_results

_PACKAGE = "rocmprobe.report.page"
_CAPTION = "Time: only the convolutions timed in every environment"


def write_joined_report(folder: Path) -> tuple[JoinedRun, dict[str, Results]]:
    """Write results.json and report.html of the joined run in ``folder``.

    The reports of all member runs must exist already.
    """
    begun = read_joined(folder / "results.json")
    assert begun is not None, f"{folder} contains a joined run"
    runs = {each.name: judged_results(folder / each.name) for each in begun.runs}
    tested = {name: each for name, each in runs.items() if each.outcomes}
    chosen = choose(begun, tested)
    members = tuple(_noted(each, tested) for each in chosen.members)
    joined = replace(chosen, members=members)
    write_joined(joined, folder / "results.json")
    write_atomically(page(joined).encode(), folder / "report.html")
    return joined, runs


def as_text(source: Path, form: str) -> str:
    """Return a joined run as Markdown.

    Return "" if ``source`` is an ordinary run or ``form`` is not "md".
    """
    found = read_joined(results_file(source)) if form == "md" else None
    return markdown(found) if found else ""


def write_page(source: Path, form: str, output: Optional[Path]) -> Optional[Path]:
    """Write the page of the joined run ``source`` to ``output``, and return the path of the page.

    Return None if ``source`` is an ordinary run or ``form`` is not "html".
    """
    path = results_file(source)
    found = read_joined(path) if form == "html" else None
    if found is None:
        return None
    target = output or path.with_name("report.html")
    write_atomically(page(found).encode(), target)
    return target


def _noted(member: Member, tested: dict[str, Results]) -> Member:
    results = tested.get(member.name)
    if member.unusable:
        return replace(member, note=member.unusable)
    if results is None:
        return replace(member, note="The run was stopped before this environment was tested.")
    return replace(member, note=_why_none(results))


def _why_none(results: Results) -> str:
    """Return the reason why no setting is recommended, or "" if a setting is recommended."""
    found = results.recommendation
    if found and found.configuration.setting:
        return ""
    if found and found.verdict != "none":
        return found.sentence
    return next((reason(each) for each in results.outcomes if each.meaning.fails), "")


def side_by_side(joined: JoinedRun) -> Table:
    """Return the members as a table. Show devices only if they differ."""
    differ = len({each.device for each in joined.members if each.device}) > 1
    found = [
        {
            "environment": f"{each.name} (recommended)" if each.name == joined.chosen else each.name,
            "torch": text.show(each.torch) if each.torch else "",
            "device": each.device if differ else "",
            "result": _result(each),
            "setting": each.setting,
            "time": text.seconds(each.seconds) if each.seconds else "",
        }
        for each in joined.members
    ]
    return table(found, ("environment", "device", "result", "setting", "time", "torch"))


def _result(member: Member) -> str:
    if member.unusable:
        return "Not tested"
    return VERDICT_WORDS.get(member.verdict, "No result")


def page(joined: JoinedRun) -> str:
    """Return the HTML page of a joined run, which links to the report of each member run."""
    template = environment(_PACKAGE, _shown).get_template("joined.html.jinja")
    rendered: str = template.render(
        joined=joined,
        environments=side_by_side(joined),
        caption=_CAPTION,
        policy=content_security_policy(()),
        style=Markup(style_sheet(_PACKAGE, "style.css")),  # noqa: S704 - a file of our own
    )
    return rendered


def _shown(value: Any) -> Any:
    return value if isinstance(value, Markup) else text.plain(str(value))


def markdown(joined: JoinedRun) -> str:
    """Return the table of members as Markdown, for a job summary and for an issue."""
    found = side_by_side(joined)
    notes = [f"- {words(each.name)}: {words(each.note, 300)}" for each in joined.members if each.note]
    blocks = (
        f"# rocmprobe: {words(joined.sentence)}",
        f"**Note:** {words(joined.note, 1000)}" if joined.note else "",
        escaped_table(found.header, [[words(cell, 300) for cell in row] for row in found.rows]),
        "\n".join(notes),
        f"Cost: {words(joined.cost, 1000)}" if joined.cost else "",
    )
    return blocks_of(blocks, LIMIT)


def render_joined(joined: JoinedRun, folder: Path, console: Console) -> None:
    """Print the table, the note on each environment, and the cost of the recommended environment."""
    found = side_by_side(joined)
    grid = Grid(box=None, padding=(0, 2, 0, 0))
    for name in found.header:
        grid.add_column(Text(name, "dim"), overflow="fold")
    for each, cells in zip(joined.members, found.rows):
        grid.add_row(*(styled((cell, "bold" if each.name == joined.chosen else "")) for cell in cells))
    console.print()
    console.print(styled((joined.sentence, "bold")))
    console.print()
    console.print(grid)
    for each in joined.members:
        if each.note:
            console.print(styled((f"{each.name}: ", "dim"), (each.note, "")))
    if joined.cost:
        console.print(styled(("Cost: ", "dim"), (joined.cost, "")))
    for name in ("report.html", "results.json"):
        console.print(styled((f"{name:>12}  ", "dim"), (str(folder / name), "")), soft_wrap=True)
