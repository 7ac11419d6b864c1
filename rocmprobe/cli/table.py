"""``rocmprobe table``: combines the results of many machines in one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

import click

from rocmprobe.cli.base import exit_code_command
from rocmprobe.cli.github_job import summarise
from rocmprobe.cli.help import GroupedCommand, option_group
from rocmprobe.model.exit_codes import FINDINGS, OK
from rocmprobe.model.results import BadInput
from rocmprobe.model.results_file import replace_atomically, write_atomically
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.printing import print_stderr, print_stderr_lines, say, say_json

_FORMATS = ("html", "json", "csv", "parquet")
_ENDS = {".htm": "html", ".ndjson": "json", **{f".{name}": name for name in _FORMATS}}


_maintainers = option_group("For maintainers of a repository of results")


@click.command("table", cls=GroupedCommand)
@click.argument("results", nargs=-1, required=True, metavar="RESULTS...")
@click.option("--format", "form", type=click.Choice(_FORMATS),
              help="What to write (default: by the name of FILE, else html).")  # fmt: skip
@click.option("-o", "output", type=click.Path(path_type=Path), metavar="FILE",
              help="Output file (default: table.html, table.parquet; json, csv: the terminal).")  # fmt: skip
@click.option("--by-folder", is_flag=True,
              help="The first folder below each given folder or archive names a machine.")  # fmt: skip
@click.option("--simulated", is_flag=True, help="Also read runs of simulated machines.")
@_maintainers("--site", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Write static pages and JSON of bundles instead (docs/sharing-results.md).")  # fmt: skip
@_maintainers("--repository", default="", metavar="URL", help="With --site: where the bundles come from.")
@_maintainers(
    "--raw",
    default="",
    metavar="URL",
    help="With --site: the address of the folder of bundles (default: next to the pages).",
)
@exit_code_command
def table_command(
    results: tuple[str, ...], form: Optional[str], output: Optional[Path], by_folder: bool, simulated: bool,
    site: Optional[Path], repository: str, raw: str,
) -> int:  # fmt: skip
    """Show the results of many machines in one table.

    RESULTS are results.json files, folders, patterns, archives (zip, tar), bundles of submitted results,
    or - for a list of names on standard input. A file that cannot be read is one line on stderr, and does
    not stop the command (docs/sharing-results.md).

    \b
    Examples:
      rocmprobe table reports/ -o table.html
      rocmprobe table --by-folder gathered/ --format json
      find /srv/runs -name results.json | rocmprobe table - --format csv -o rows.csv
      rocmprobe table bundles/ --site site
    """
    import sqlite3

    from rocmprobe.collection.sources import found, listed
    from rocmprobe.collection.store import Store, gather

    names: list[str] = []
    for name in results:
        names.extend(listed(sys.stdin.buffer) if name == "-" else [name])
    if site:
        for option, given in (
            ("--format", form), ("-o", output), ("--by-folder", by_folder), ("--simulated", simulated),
        ):  # fmt: skip
            if given:
                raise BadInput(f"{option}: cannot be combined with --site; leave one out")
        return _write_site(names, site, repository, raw)
    if repository or raw:
        raise BadInput("--repository and --raw need --site; add it, or leave them out")
    chosen = form or (_ENDS.get(output.suffix.lower(), "html") if output else "html")
    if output is None and chosen in ("html", "parquet"):
        output = Path(f"table.{chosen}")
    try:
        with Store() as store:
            read = gather(found(names, by_folder), store, simulated, print_stderr)
            if not read.results:
                raise BadInput(_nothing(read))
            _write(store, read, chosen, output)
    except OSError as error:
        if error.filename is None:  # Writing to standard output failed.
            raise
        raise BadInput(f"{error.filename}: {error.strerror}; name another file with -o") from error
    except sqlite3.OperationalError as error:
        raise BadInput(f"the rows do not fit ({error}); set TMPDIR to a folder with more space") from error
    print_stderr(_summary(read))
    if output is not None:
        say(output)
    return OK


def _write(store: Any, read: Any, form: str, output: Optional[Path]) -> None:
    if form == "parquet":
        from rocmprobe.collection.output import write_parquet

        assert output is not None
        write_parquet(store.every(), output)
    elif form == "csv":
        from rocmprobe.collection.output import write_csv

        if output is None:
            write_csv(store.every(), _Terminal())
            return
        with (
            replace_atomically(output) as temporary,
            temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream,
        ):
            write_csv(store.every(), stream)
    else:
        from rocmprobe.collection.document import document

        table = document(store, read)
        if os.environ.get("GITHUB_STEP_SUMMARY"):
            from rocmprobe.collection.output import markdown

            summarise(markdown(table), os.environ)
        if form == "html":
            from rocmprobe.collection.pages import table_page

            text = table_page(table)
        elif output is None:
            say_json(table)
            return
        else:
            import json

            text = json.dumps(table, indent=1) + "\n"
        assert output is not None
        write_atomically(text.encode("utf-8", "backslashreplace"), output)


def _write_site(names: Iterable[str], folder: Path, repository: str, raw: str) -> int:
    """Write the static pages of bundles. Return FINDINGS if a bundle is refused.

    Raise BadInput if the pages cannot be written.
    """
    from rocmprobe.collection.bundle import Bundle
    from rocmprobe.collection.packing import read_bundle
    from rocmprobe.collection.pages import write_site
    from rocmprobe.collection.sources import Refused

    refused = 0

    def accepted() -> Iterator[tuple[Path, Bundle]]:
        nonlocal refused
        for name in map(Path, names):
            for path in sorted(name.rglob("*.zip")) if name.is_dir() else [name]:
                try:
                    yield path, read_bundle(path, partial=True, accepted=True)
                except Refused as error:
                    print_stderr_lines(f"refused: {one_line(str(path))}: {error}")
                    refused += 1

    try:
        write_site(accepted(), folder, repository, raw)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror}); name another with --site") from error
    say(folder / "index.html")
    return FINDINGS if refused else OK


class _Terminal:
    def write(self, text: str) -> None:
        say(text, end="")


def _nothing(read: Any) -> str:
    if read.simulated and not read.refused:
        return f"all {read.simulated} results are of simulated machines; add --simulated to read them"
    return f"no results in {_files(read.files)}; name results.json files, or folders that contain them"


def _summary(read: Any) -> str:
    left_out = [
        f"{count} {what}"
        for count, what in (
            (read.duplicates, "there twice"),
            (read.simulated, "left out as simulated"),
            (read.refused, "refused"),
        )
        if count
    ]
    return f"{read.results} results from {_files(read.files)}" + "".join(f", {each}" for each in left_out)


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"
