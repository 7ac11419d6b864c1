"""A joined run: an ordinary run for each of several Python environments, in folders below one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

from rocmprobe import __version__
from rocmprobe.engine import run
from rocmprobe.engine.interpreters import Interpreter, interpreters, pass_on
from rocmprobe.engine.journal import NAME
from rocmprobe.engine.options import RunOptions
from rocmprobe.model.results import (
    SCHEMA_VERSION,
    BadInput,
    JoinedRun,
    Member,
    NothingToTest,
    read_joined,
    write_joined,
)
from rocmprobe.text.redact import redacted_text


def begin(
    options: RunOptions, out: Optional[Path], found: Sequence[Interpreter], former: Optional[Path] = None
) -> Path:
    """Begin a run for each interpreter, and write the ``results.json`` that names them. Return its folder.

    ``former`` is the results.json of a run, or of a joined run, that each is compared with. Raise BadInput as
    ``run.begin`` does, NothingToTest if no environment has what is to be tested.
    """
    started = run.now()
    folder = out or run.new_folder(started, "environments")
    if (folder / NAME).exists() or (folder / "results.json").exists():
        raise BadInput(f"{folder}: holds a run already; name another folder, or take it up with --resume")
    members = [_begun(options, folder, each, former) for each in found]
    if all(each.unusable for each in members):
        raise NothingToTest("; ".join(f"--python {each.name}: {each.unusable}" for each in members))
    joined = JoinedRun(SCHEMA_VERSION, __version__, started, True, tuple(members), note=options.note)
    write_joined(joined, folder / "results.json")
    if out is None:
        run.link_latest(folder)
    return folder


def _begun(options: RunOptions, folder: Path, each: Interpreter, former: Optional[Path]) -> Member:
    python = redacted_text(each.python) if options.redact else each.python
    member = Member(each.name, python, each.unusable)
    if each.unusable:
        return member
    try:
        run.begin(options, folder / each.name, former=former, interpreter=each)
    except NothingToTest as error:
        return replace(member, unusable=str(error))
    return member


def resume(folder: Path, retry_aborted: bool, wanted: Sequence[str]) -> None:
    """Resume the members of the joined run in ``folder`` that are not complete. ``wanted`` says again where
    interpreters are.

    Raise BadInput as ``run.resume`` does.
    """
    if wanted:
        pass_on(interpreters(wanted))
    for each in unfinished(folder):
        run.resume(each, retry_aborted)


def folders(folder: Path) -> list[Path]:
    """Return the folders of the runs that are joined in ``folder``, in the order of the command line."""
    joined = read_joined(folder / "results.json")
    return [folder / each.name for each in joined.runs] if joined else []


def unfinished(folder: Path) -> list[Path]:
    """Return those of ``folders`` whose run is not complete."""
    return [each for each in folders(folder) if run.results(each).partial]
