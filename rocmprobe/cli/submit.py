"""``rocmprobe submit``: packs a run into a bundle, or checks bundles."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

from rocmprobe.cli.base import exit_code_command
from rocmprobe.cli.help import GroupedCommand, option_group
from rocmprobe.model.exit_codes import FINDINGS, OK
from rocmprobe.model.results import BadInput
from rocmprobe.model.results_file import write_atomically
from rocmprobe.text.plain_text import one_line, plain
from rocmprobe.text.printing import print_stderr_lines, say

if TYPE_CHECKING:
    from rocmprobe.collection.bundle import Bundle

#: Environment variable with the URL of a repository of results, such as https://github.com/OWNER/NAME.
REPOSITORY = "ROCMPROBE_REPOSITORY"


_maintainers = option_group("For maintainers of a repository of results")


@click.command("submit", cls=GroupedCommand)
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RESULTS...")
@click.option("-o", "output", type=click.Path(path_type=Path), metavar="BUNDLE.zip",
              help="The file to write (default: rocmprobe-CHIP-HASH.zip in this folder).")  # fmt: skip
@click.option("--yes", is_flag=True, help="Write without confirmation.")
@click.option("--partial", is_flag=True, help="Also accept a run that was interrupted.")
@click.option(
    "--label",
    default="",
    metavar="TEXT",
    help="A public name for this machine. Bundles with one label count as one machine.",
)
@click.option(
    "--repository",
    envvar=REPOSITORY,
    show_envvar=True,
    default="",
    metavar="URL",
    help="The repository of results for the bundle. rocmprobe only prints its address.",
)
@_maintainers(
    "--check",
    "checking",
    is_flag=True,
    help="Check bundles, or a folder of them, instead of making one.",
)
@_maintainers(
    "--accepted",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="With --check: a folder of bundles accepted before. They are not checked again, and none may be "
    "missing.",
)
@_maintainers(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="With --check: copy each accepted bundle to its place in this folder.",
)
@exit_code_command
def submit_command(
    sources: tuple[Path, ...], output: Optional[Path], yes: bool, partial: bool, label: str, repository: str,
    checking: bool, accepted: Optional[Path], into: Optional[Path],
) -> int:  # fmt: skip
    """Pack a run into one file for a repository of results.

    The command first shows what the file will contain. RESULTS is the folder of a run, or its results.json.
    Names and addresses are redacted again. Nothing is sent (docs/sharing-results.md). With --check, exits 1
    if a bundle is refused.

    \b
    Examples:
      rocmprobe submit reports/latest
      rocmprobe submit reports/latest --yes -o bundle.zip
      rocmprobe submit --check bundle.zip
    """
    from rocmprobe.cli.github_job import no_commands

    with no_commands(os.environ):
        if checking:
            taken, refused = _check(sources, partial, accepted)
            if into:
                _copy(taken, into)
            return FINDINGS if refused else OK
        if len(sources) > 1:
            raise BadInput("submit: packs one run; name one folder, or add --check")
        for option, given in (("--accepted", accepted), ("--into", into)):
            if given:
                raise BadInput(f"{option}: works only with --check; add --check, or remove {option}")
        return _submit(sources[0], output, yes, partial, label, repository)


def _submit(
    source: Path, output: Optional[Path], yes: bool, partial: bool, label: str, repository: str
) -> int:
    from rocmprobe.collection.packing import pack_run

    bundle, was_redacted = pack_run(source, partial, label)
    path = output or Path(f"rocmprobe-{bundle.chip}-{bundle.sha256[:12]}.zip")
    for row in _summary(bundle, was_redacted):
        say(row)
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput("submit: no terminal to confirm on; add --yes to write the bundle")
        if not click.confirm(f"Write {plain(str(path))}?", default=False):
            say("Nothing was written.")
            return OK
    try:
        write_atomically(bundle.content, path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name another file with -o") from error
    say(path)
    for row in _what_next(bundle, repository):
        say(row)
    return OK


def _summary(bundle: Bundle, was_redacted: bool) -> Iterator[str]:
    from rocmprobe.report.text import bytes_, date

    about, results = bundle.manifest, bundle.results
    states = {outcome.state: 0 for outcome in results.outcomes}
    for outcome in results.outcomes:
        states[outcome.state] += 1
    gpus = [
        f"{each['name'] or 'unknown'}, PCI {each['pci_id']} revision {each['revision']}"
        for each in about["gpus"]
    ]
    software = [f"{name} {value}" for name, value in about["software"].items() if value]
    yield "The bundle would contain, in public:"
    yield f"  chip       {about['chip']}" + "".join(f" ({one_line(each)})" for each in gpus)
    yield f"  stack      {about['stack']}"
    yield f"  software   {one_line(', '.join(software), 400)}"
    yield f"  run        {date(results.started)}, rocmprobe {one_line(results.rocmprobe)}" + (
        ", incomplete" if results.partial else ""
    )
    yield "  outcomes   " + ", ".join(f"{amount} {one_line(state)}" for state, amount in states.items())
    if results.recommendation:
        yield f"  answer     {one_line(results.recommendation.sentence, 400)}"
    if results.options.get("note"):
        yield f"  note       {one_line(str(results.options['note']), 400)}"
    if about["label"]:
        yield f"  label      {about['label']}"
    counts = ", ".join(f"{kind} {amount}" for kind, amount in about["redacted"].items())
    yield f"  replaced   {counts or 'nothing was found to replace'}"
    sizes = ", ".join(f"{name} {bytes_(each['size'])}" for name, each in about["files"].items())
    yield f"  files      {sizes}; {bytes_(len(bundle.content))} packed"
    yield f"  licence    {about['licence']}"
    if not was_redacted:
        yield (
            "The run was made with --no-redact. If it was not made by you on this machine, "
            "rocmprobe does not know all names to replace. Read the bundle before you send it."
        )


def _what_next(bundle: Bundle, repository: str) -> Iterator[str]:
    yield "Nothing was sent. To share the bundle, do one of these:"
    place = f"bundles/{bundle.place}"
    where = one_line(repository.rstrip("/")) if repository else ""
    if where:
        yield f"  attach it to the form at {where}/issues/new?template=report.yml"
        yield f"  or add it to {where} in a pull request, as {place}"
    else:
        yield "  attach it to the form of a repository of results (--repository URL prints its address)"
        yield f"  or add it there in a pull request, as {place}"


def _check(
    sources: tuple[Path, ...], partial: bool, accepted: Optional[Path]
) -> tuple[list[tuple[Path, str]], int]:
    """Check bundles, and print one line for each. Skip a bundle if the folder ``accepted`` has the same file.

    Return the valid bundles, with their relative paths in the repository, and the number of refused bundles.
    """
    from rocmprobe.collection.packing import misplaced, read_bundle, same_file
    from rocmprobe.collection.sources import Refused

    taken: list[tuple[Path, str]] = []
    refused = known = 0

    def refuse(path: Path, why: object) -> None:
        nonlocal refused
        print_stderr_lines(f"refused: {one_line(str(path))}: {why}")
        refused += 1

    for source in sources:
        paths = [source]
        if source.is_dir():
            strangers = misplaced(source)
            for path, why in strangers:
                refuse(path, why)
            paths = sorted(set(source.glob("*/*.zip")) - {path for path, _ in strangers})
            for path in sorted(accepted.glob("*/*.zip")) if accepted else ():
                now = source / path.parent.name / path.name
                if now not in paths:
                    refuse(now, "was accepted before, and is missing")
        for path in paths:
            if accepted and same_file(path, accepted / path.parent.name / path.name):
                known += 1
                continue
            try:
                bundle = read_bundle(path, partial)
            except Refused as error:
                refuse(path, error)
                continue
            amount = len(bundle.results.outcomes)
            say(f"ok: {one_line(str(path))}: {bundle.chip} {bundle.stack}, {amount} outcomes")
            taken.append((path, bundle.place))
    say(f"{len(taken)} taken, {refused} refused" + (f", {known} taken before" if known else ""))
    return taken, refused


def _copy(bundles: Sequence[tuple[Path, str]], folder: Path) -> None:
    for path, place in bundles:
        target = folder / place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path.read_bytes(), target)
        except OSError as error:
            raise BadInput(f"{target}: {error.strerror}; name another folder with --into") from error
        say(target)
