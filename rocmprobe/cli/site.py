"""The pages of ``rocmprobe table --site``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rocmprobe.model.exit_codes import FINDINGS, OK
from rocmprobe.model.results import BadInput
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.printing import print_stderr_lines, say


def write_pages(names: Iterable[str], folder: Path, repository: str, raw: str) -> int:
    """Write the pages of the bundles in ``names``, files or folders of them, and say where. Returns the exit
    code: FINDINGS where a bundle is refused, which is one line on stderr and not on the pages.

    What an older rocmprobe judged of a bundle may differ: the pages judge it again. Raises BadInput where
    the pages cannot be written.
    """
    from rocmprobe.collection.archive import Refused
    from rocmprobe.collection.checking import Bundle, read_bundle
    from rocmprobe.collection.writing import write_site

    refused = 0

    def taken() -> Iterator[Bundle]:
        nonlocal refused
        for path in _paths(names):
            try:
                yield read_bundle(path, partial=True, accepted=True)
            except Refused as error:
                print_stderr_lines(f"refused: {one_line(str(path))}: {error}")
                refused += 1

    try:
        write_site(taken(), folder, repository, raw)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror}); name another with --site") from error
    say(folder / "index.html")
    return FINDINGS if refused else OK


def _paths(names: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    for path in map(Path, names):
        found += sorted(path.rglob("*.zip")) if path.is_dir() else [path]
    return found
