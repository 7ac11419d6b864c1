"""Score of the rules of `rocmprobe explain` on labelled reports: ``python benchmarks/explain_score.py FILE``.

FILE has one JSON object per line: ``log``, ``cause``, ``log_quality`` (the tier), ``url`` (the thread), and
any facts that ``rocmprobe explain --facts`` accepts. The exit of the program is not given, because a person
who pastes a log does not give it either. ``--fit`` searches for the calibration under which the correct
causes are the most likely. What was learned from labelled reports (``explain/learned.py``) takes no part,
because it knows the corpora.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from rocmprobe.explain.extraction import extract
from rocmprobe.explain.log_facts import facts_in, facts_of, merge_and_derive
from rocmprobe.explain.signatures import Calibration, calibration
from rocmprobe.explain.weighing import scores, weigh
from rocmprobe.knowledge import causes
from rocmprobe.model.results import BadInput
from rocmprobe.text import printing, reading
from rocmprobe.text.log import of_text

#: Fields of a record that are not facts.
_ASIDE = ("exit", "platform", "from_application", "stratum", "good_answer")
TIERS = ("decisive", "needs-facts", "partial", "indirect")
#: Bounds between the scores of the reliability table.
_BINS = (0.0, 0.3, 0.5, 0.7, 0.9, 1.01)
#: Values that a fit tries.
_SHARPNESS = [0.4 + 0.2 * step for step in range(8)]
_UNKNOWN = [0.4 * step for step in range(9)]


@dataclass(frozen=True)
class Record:
    """A labelled report with the points that its log and facts gave to each cause."""

    name: str
    thread: str
    tier: str
    cause: str
    points: Mapping[str, float]


def read(path: Path) -> list[Record]:
    """Return the records of a corpus. Raise BadInput with the line number if a line is not a record."""
    content = reading.read_bytes(path, "name a corpus of labelled reports")
    records = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            row = reading.json_line(line)
            label, tier, printed = row["cause"], row["log_quality"], row["log"]
            text = printed if isinstance(printed, str) else "\n".join(printed)
            given = facts_of({key: value for key, value in row.items() if key not in _ASIDE})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(
                f"{path}: line {number}: {error!r}; a record has log, cause and log_quality"
            ) from error
        log = of_text(text)
        points = weigh(log, merge_and_derive(given, facts_in(log)), extract(log)).points
        records.append(Record(str(row.get("id", number)), str(row.get("url", number)), tier, label, points))
    return records


def fitted(records: Sequence[Record]) -> Calibration:
    """Return the calibration, of those tried, under which the labels are the most likely.

    For a label without points, the share of ``unknown`` counts.
    """

    def surprise(by: Calibration) -> float:
        total = 0.0
        for record in records:
            shares = dict(scores(record.points, by))
            total -= math.log(shares.get(record.cause, shares["unknown"]))
        return total

    tried = [Calibration(sharpness, unknown) for sharpness in _SHARPNESS for unknown in _UNKNOWN]
    return min(tried, key=surprise)


def rank_of_label(record: Record, by: Calibration) -> int:
    """Return the rank of the correct cause, from 1, or 0 if the cause is not ranked."""
    names = [name for name, _ in scores(record.points, by)]
    return names.index(record.cause) + 1 if record.cause in names else 0


def _tier_table(
    records: Sequence[Record], left_out: Mapping[str, Calibration], by: Calibration
) -> Iterable[str]:
    yield f"{'tier':<12} {'records':>7} {'top-1':>12} {'top-3':>12} {'leave-one-out top-1':>20}"
    for tier in TIERS:
        of_tier = [record for record in records if record.tier == tier]
        if not of_tier:
            continue
        first = sum(rank_of_label(record, by) == 1 for record in of_tier)
        third = sum(1 <= rank_of_label(record, by) <= 3 for record in of_tier)
        without = sum(rank_of_label(record, left_out[record.thread]) == 1 for record in of_tier)
        yield (
            f"{tier:<12} {len(of_tier):>7} {_share(first, len(of_tier)):>12} "
            f"{_share(third, len(of_tier)):>12} {_share(without, len(of_tier)):>20}"
        )


def _share(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.1f} %)"


def _reliability(records: Sequence[Record], by: Calibration) -> Iterable[str]:
    """Yield a table of how many best causes are correct, by score and tier."""
    best = [(record, *scores(record.points, by)[0]) for record in records]
    yield f"{'score':<20} " + " ".join(f"{tier:>12}" for tier in (*TIERS, "all"))
    for low, high in zip(_BINS, _BINS[1:]):
        inside = [each for each in best if each[1] != "unknown" and low <= each[2] < high]
        yield f"{low:.1f} to {min(high, 1.0):.1f}           " + " ".join(
            f"{sum(record.cause == name for record, name, _ in part):>5} of {len(part):>3}"
            for part in _by_tier(inside)
        )
    silent = [each for each in best if each[1] == "unknown"]
    yield "not enough evidence  " + " ".join(f"{len(part):>12}" for part in _by_tier(silent))


def _groups(records: Sequence[Record], by: Calibration) -> Iterable[str]:
    """Yield the number of correct groups of causes, of the groups with a share of at least 0.7."""
    # Labels outside of the vocabulary belong to no group.
    group_of = {row.name: row.group for row in causes.causes()}
    named = [(record, *best_group(record, by)) for record in records]
    sure = [each for each in named if each[2] >= 0.7]
    yield f"{'group of causes':<20} " + " ".join(
        f"{sum(group_of.get(record.cause) == group for record, group, _ in part):>5} of {len(part):>3}"
        for part in _by_tier(sure)
    )


def best_group(record: Record, by: Calibration) -> tuple[str, float]:
    """Return the group of causes with the largest share, and its share, or ("", 0) if no cause has points."""
    found: dict[str, float] = defaultdict(float)
    for cause, share in scores(record.points, by):
        if cause != "unknown":
            found[causes.cause(cause).group] += share
    return max(found.items(), key=lambda pair: pair[1], default=("", 0.0))


def _by_tier(best: Sequence[tuple[Record, str, float]]) -> list[list[tuple[Record, str, float]]]:
    return [[each for each in best if tier in (each[0].tier, "all")] for tier in (*TIERS, "all")]


def _confusions(records: Sequence[Record], by: Calibration) -> Iterable[str]:
    wrong: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for record in records:
        name, score = scores(record.points, by)[0]
        if name != record.cause:
            wrong[record.tier, record.cause, name].append(f"{record.name} {score:.2f}")
    for key in sorted(wrong, key=lambda key: (TIERS.index(key[0]), key)):
        tier, label, predicted = key
        yield f"{tier:<12} {label} answered as {predicted}: {len(wrong[key])} ({', '.join(wrong[key])})"


def report(records: Sequence[Record]) -> Iterable[str]:
    """Yield the lines that the program prints."""
    by = calibration()
    threads = {record.thread for record in records}
    left_out = {
        thread: fitted([record for record in records if record.thread != thread]) for thread in threads
    }
    yield from _tier_table(records, left_out, by)
    benign = [record for record in records if record.cause == "benign-warning" and record.tier == "decisive"]
    failures = sum(scores(record.points, by)[0][0] not in ("benign-warning", "unknown") for record in benign)
    yield f"\nbenign warnings called a failure: {failures} of {len(benign)}"
    yield "\nbest causes by score, right of all"
    yield from _reliability(records, by)
    yield "\ngroups with 0.7 and more, right of all"
    yield from _groups(records, by)
    yield "\nconfusions (best cause, its score)"
    yield from _confusions(records, by)


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option("--fit", is_flag=True, help="Print the calibration that fits this corpus, and nothing else.")
def main(corpus: Path, fit: bool) -> None:
    """Score the diagnosis on labelled reports."""
    try:
        records = read(corpus)
    except BadInput as error:
        printing.print_stderr(error)
        sys.exit(2)
    if fit:
        found = fitted(records)
        printing.say(f"sharpness = {found.sharpness:.1f}\nunknown = {found.unknown:.1f}")
        return
    for line in report(records):
        printing.say(line)


if __name__ == "__main__":
    main()
