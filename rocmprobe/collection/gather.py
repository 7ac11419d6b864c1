"""From names of files to a store of rows, with what was left out and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rocmprobe.collection.reading import Joined, NoResults, Simulated, run_of
from rocmprobe.collection.sources import Found, Refused
from rocmprobe.collection.store import Store
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.redact import redacted_text

#: Of the files that were left out, the table names this many.
NAMED = 100
#: Of the files that were left out, stderr names this many.
PRINTED = 10
#: Parts of a path that the table shows: the file, the run, the machine.
_PARTS = 3


@dataclass
class Read:
    """What was read: ``files`` in all, of which ``results`` are in the table, ``duplicates`` were there
    already byte for byte, ``simulated`` and ``refused`` were left out, the first of these with a reason."""

    files: int = 0
    results: int = 0
    duplicates: int = 0
    simulated: int = 0
    refused: int = 0
    partial: int = 0
    reasons: tuple[tuple[str, str], ...] = ()


def gather(
    sources: Iterable[Found], store: Store, simulated: bool = False, refuse: Callable[[str], None] = print
) -> Read:
    """Put every results file into ``store``; ``refuse`` gets one line for each of the first ``PRINTED``
    that are left out, and one line that counts the others.

    ``simulated`` takes runs of simulated machines in, too.
    """
    read = Read()
    for source in sources:
        read.files += 1
        if isinstance(source, Refused):
            _leave_out(read, source, refuse)
            continue
        try:
            run = run_of(source.content, source.label, simulated)
        except Joined:
            # The runs that it joins are files of their own, beside it.
            read.files -= 1
            continue
        except NoResults as error:
            _leave_out(read, Refused(source.name, str(error), isinstance(error, Simulated)), refuse)
            continue
        except (ValueError, RecursionError, OverflowError) as error:
            # An integer of ten thousand digits, or lists in lists in a fact.
            _leave_out(read, Refused(source.name, f"cannot be read ({one_line(str(error))})"), refuse)
            continue
        if store.add(run, _short_name(source.name)):
            read.results += 1
            read.partial += run.partial
        else:
            read.duplicates += 1
    store.in_order()
    more = read.refused + read.simulated - PRINTED
    if more > 0:
        refuse(f"{more} more left out")
    return read


def _short_name(name: str) -> str:
    """The last parts of a path: the table leaves the house, and says nothing of whose folder it was."""
    return redacted_text(one_line("/".join(name.split("/")[-_PARTS:]), 300))


def _leave_out(read: Read, source: Refused, refuse: Callable[[str], None]) -> None:
    if source.simulated:
        read.simulated += 1
    else:
        read.refused += 1
    if len(read.reasons) < NAMED:
        read.reasons = (*read.reasons, (_short_name(source.name), source.reason))
    if read.refused + read.simulated <= PRINTED:
        refuse(f"{one_line(source.name, 300)}: {source.reason}")
