"""Signatures: each names its cause in a log (``logs/CAUSE/yes-*.txt``), and not in a near miss."""

from __future__ import annotations

from pathlib import Path

from rows import every_row

from rocmprobe.explain.conditions import CONDITIONS
from rocmprobe.explain.explain import SYMPTOMS, Explanation, diagnose, explain
from rocmprobe.explain.facts import Facts, facts_in, merge_and_derive
from rocmprobe.explain.signatures import signatures
from rocmprobe.knowledge.causes import causes
from rocmprobe.text.log import of_text

LOGS = sorted((Path(__file__).parent / "logs").glob("*/*.txt"))
NAMES = {row.name for row in causes()}


def answer(text: str, **facts: object) -> Explanation:
    log = of_text(text)
    return explain(log, merge_and_derive(Facts(**facts), facts_in(log)))


@every_row("path", LOGS)
def test_a_log_has_its_cause_and_a_near_miss_has_not(path: Path) -> None:
    found = answer(path.read_text("utf-8"))
    wanted = path.name.startswith("yes-")
    assert (found.cause == path.parent.name) == wanted, (path.name, found.answer, found.cause)
    assert not wanted or found.answer in ("known", "elsewhere")


def test_every_signature_decides_a_log() -> None:
    decided = set()
    for path in LOGS:
        if path.name.startswith("yes-"):
            log = of_text(path.read_text("utf-8"))
            hit = diagnose(log.lines, merge_and_derive(Facts(), facts_in(log))).hit
            decided.add(hit.signature.name if hit else "")
    naming = {row.name for row in signatures() if {each.cause for each in row.causes} - SYMPTOMS}
    assert naming - decided == set()


def test_rows_name_only_what_exists() -> None:
    rows = signatures()
    assert len({row.name for row in rows}) == len(rows)
    assert {each.cause for row in rows for each in row.causes} <= NAMES
    assert not [row.name for row in rows if row.harmless and row.context]
    words = CONDITIONS | {row.name for row in rows}
    assert {word for row in rows for each in row.causes for word in (*each.requires, *each.excludes)} <= words
    # A signature below 90 % may locate, not name.
    measured = [tuple(map(int, row.precision.split(" of "))) for row in rows if row.precision]
    assert all(right >= 0.9 * named for right, named in measured)
