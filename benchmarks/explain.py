"""Time of `rocmprobe explain`, or its score on labelled reports.

Time of the whole process, for an ordinary log and for 100 MB each of four kinds of log::

    python benchmarks/explain.py -o benchmarks/results/explain.md

The logs are made up: an ordinary log of 40 lines; one line repeated; MIOPEN_LOG_LEVEL=6 with changing
numbers; random words, no two lines alike; and random bytes, which are not text. One line in the middle of
each large log reports a failure. The benchmark fails if `explain` does not find that line.

Score on the reports in one or more files::

    python benchmarks/explain.py reports.jsonl

A file has one JSON object per line: ``log``, ``cause``, ``log_quality`` (the tier), and any fact that
``rocmprobe explain --facts`` accepts. The exit of the program is not used, because a person who pastes a log
does not state it. ``--fit`` prints the calibration under which the labels are the most likely.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import heading, publish, table

from rocmprobe.explain.extraction import extract
from rocmprobe.explain.log_facts import facts_in, facts_of, merge_and_derive
from rocmprobe.explain.signatures import Calibration, calibration
from rocmprobe.explain.weighing import scores, weigh
from rocmprobe.model.results import BadInput
from rocmprobe.text import reading
from rocmprobe.text.log import of_text

_MEGABYTES = 100
_BLOCK = 1_000_000
FATAL = b"rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek\n"
_WARNING = (
    b"MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <GemmFwdRest>, workspace required: "
    b"25657344, provided ptr: 0 size: 0\n"
)
_LEVEL_6 = (
    "MIOpen(HIP): Info2 [GetSolutions] gfx1030 conv_{} took {:.5f} ms, workspace {} at 0x{:x}\n"
    "MIOpen(HIP): Info2 [SearchForCompatible] /tmp/comgr-{:06x}/input/conv.cpp: solver {} of {}, is {}\n"
)


#: Fields of a report that are not facts.
_ASIDE = ("exit", "platform", "from_application", "stratum", "good_answer")
TIERS = ("decisive", "needs-facts", "partial", "indirect")
#: Bounds between the scores of the table of scores.
_BOUNDS = (0.0, 0.3, 0.5, 0.7, 0.9, 1.01)
#: Values that a fit tries.
_SHARPNESS = [0.4 + 0.2 * step for step in range(8)]
_UNKNOWN = [0.4 * step for step in range(9)]


def ordinary() -> bytes:
    lines = [f"Epoch {epoch}: loss {1 / (1 + epoch):.3f}\n" for epoch in range(38)]
    return "".join(lines).encode() + FATAL + b"Aborted (core dumped)\n"


def repeated(_: random.Random) -> bytes:
    return _WARNING * (_BLOCK // len(_WARNING))


def level_6(chance: random.Random) -> bytes:
    def some() -> str:
        number = chance.randrange
        return _LEVEL_6.format(
            number(99),
            chance.random(),
            number(2**31),
            number(2**47),
            number(2**24),
            number(99),
            number(99),
            number(9),
        )

    return "".join(some() for _ in range(_BLOCK // 190)).encode()


def words(chance: random.Random) -> bytes:
    letters = chance.choices("abcdefghijklmnopqrstuvwxyz ABCDEF 0123456789", k=_BLOCK)
    letters[99::100] = "\n" * len(letters[99::100])
    return "".join(letters).encode()


def noise(chance: random.Random) -> bytes:
    return chance.randbytes(_BLOCK)


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "one line repeated": repeated,
    "MIOPEN_LOG_LEVEL=6": level_6,
    "words by chance": words,
    "bytes by chance": noise,
}


def blocks(kind: Callable[[random.Random], bytes]) -> Iterator[bytes]:
    chance = random.Random(8)  # noqa: S311 - the same logs every time
    for number in range(_MEGABYTES):
        yield kind(chance)
        if number == _MEGABYTES // 2:
            yield b"\n" + FATAL


def asked(log: Path) -> float:
    """Return the seconds of the whole process. Raise SystemExit if it misses the failure."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "rocmprobe", "explain", "--json", str(log)], capture_output=True, check=True
    )
    seconds = time.perf_counter() - started
    causes = json.loads(done.stdout)["causes"]
    if not any("TensileLibrary.dat" in line for cause in causes for line in cause["evidence"]):
        raise SystemExit(f"the failure in {log.name} was not found")
    return seconds


def timed(name: str, log: Path, repeats: int) -> tuple[str, str, int, str, str]:
    """Return the row of a log: size, median and slowest seconds."""
    seconds = [asked(log) for _ in range(repeats)]
    size = f"{log.stat().st_size / 1e6:.3g} MB"
    return name, size, repeats, f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"


def timing(repeats: int) -> Iterator[str]:
    """Time every log, and yield the lines of the result."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.txt")
        log.write_bytes(ordinary())
        asked(log)
        rows.append(timed("ordinary", log, 10 * repeats))
        for name, kind in KINDS.items():
            with log.open("wb") as file:
                file.writelines(blocks(kind))
            rows.append(timed(name, log, repeats))
    # ``ru_maxrss`` is in KiB on Linux, and belongs to the largest child.
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    yield from heading("`rocmprobe explain`", f"python benchmarks/explain.py --repeats {repeats}")
    yield f"Seconds of the whole process. It needs at most {memory} MB of memory."
    yield ""
    yield from table(("log", "size", "repeats", "median, s", "slowest, s"), rows)


@dataclass(frozen=True)
class Report:
    """A labelled report with the points that its log and facts give to each cause."""

    name: str
    tier: str
    cause: str
    points: Mapping[str, float]

    def ranked(self) -> list[tuple[str, float]]:
        """Return (cause, score) pairs, the largest score first."""
        return scores(self.points, calibration())

    def rank_of_label(self) -> int:
        """Return the rank of the correct cause, from 1, or 0 if the cause is not ranked."""
        names = [name for name, _ in self.ranked()]
        return names.index(self.cause) + 1 if self.cause in names else 0


def read(path: Path) -> Iterator[Report]:
    """Yield the reports of a file. Raise BadInput with the line number if a line is not a report."""
    content = reading.read_bytes(path, "name a file of labelled reports")
    for number, line in enumerate(content.splitlines(), 1):
        try:
            row = reading.json_line(line)
            label, tier, printed = row["cause"], row["log_quality"], row["log"]
            text = printed if isinstance(printed, str) else "\n".join(printed)
            given = facts_of({key: value for key, value in row.items() if key not in _ASIDE})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(
                f"{path}: line {number}: {error!r}; a report has log, cause and log_quality"
            ) from error
        log = of_text(text)
        points = weigh(log, merge_and_derive(given, facts_in(log)), extract(log)).points
        yield Report(str(row.get("id", number)), tier, label, points)


def fitted(reports: Sequence[Report]) -> Calibration:
    """Return the calibration, of those tried, under which the labels are the most likely.

    For a label without points, the share of ``unknown`` counts.
    """

    def surprise(by: Calibration) -> float:
        total = 0.0
        for report in reports:
            shares = dict(scores(report.points, by))
            total -= math.log(shares.get(report.cause, shares["unknown"]))
        return total

    tried = [Calibration(sharpness, unknown) for sharpness in _SHARPNESS for unknown in _UNKNOWN]
    return min(tried, key=surprise)


def score(reports: Sequence[Report]) -> Iterator[str]:
    """Yield the lines of the result: correct causes by tier and by score, and the confusions."""
    tiers = [tier for tier in TIERS if any(report.tier == tier for report in reports)]
    ranks = {tier: [each.rank_of_label() for each in reports if each.tier == tier] for tier in tiers}
    rows = [
        (tier, len(found), _share(found, 1), _share(found, 3))
        for tier, found in (*ranks.items(), ("all", [rank for found in ranks.values() for rank in found]))
    ]
    yield from table(("tier", "reports", "correct cause first", "among the first three"), rows)
    yield ""
    benign = [each for each in reports if each.cause == "benign-warning" and each.tier == "decisive"]
    failures = sum(each.ranked()[0][0] not in ("benign-warning", "unknown") for each in benign)
    yield f"Benign warnings called a failure: {failures} of {len(benign)}."
    yield ""
    yield from table(("score of the first cause", *tiers, "all"), _by_score(reports, tiers))
    yield ""
    yield from table(("tier", "label", "first cause", "reports"), _confusions(reports), 4)


def _share(ranks: Sequence[int], most: int) -> str:
    count = sum(1 <= rank <= most for rank in ranks)
    return f"{count} ({100 * count / len(ranks):.1f} %)"


def _by_score(reports: Sequence[Report], tiers: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield rows with the number of correct first causes, by score."""
    first = [(each, *each.ranked()[0]) for each in reports]
    for low, high in zip(_BOUNDS, _BOUNDS[1:]):
        inside = [(each, name) for each, name, share in first if name != "unknown" and low <= share < high]
        parts = [[each for each in inside if tier in (each[0].tier, "all")] for tier in (*tiers, "all")]
        yield (
            f"{low:.1f} to {min(high, 1.0):.1f}",
            *(f"{sum(each.cause == name for each, name in part)} of {len(part)}" for part in parts),
        )


def _confusions(reports: Sequence[Report]) -> Iterable[Sequence[str]]:
    wrong: dict[tuple[int, str, str], list[str]] = {}
    for report in reports:
        name, share = report.ranked()[0]
        if name != report.cause:
            key = (TIERS.index(report.tier), report.cause, name)
            wrong.setdefault(key, []).append(f"{report.name} {share:.2f}")
    for (tier, label, name), found in sorted(wrong.items()):
        yield TIERS[tier], label, name, ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="*", type=Path, help="files of labelled reports")
    parser.add_argument("--fit", action="store_true", help="print the calibration that fits the reports")
    parser.add_argument(
        "--repeats", type=int, default=3, help="of a large log; an ordinary one ten times so often"
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if not options.reports:
        publish(timing(options.repeats), options.output)
        return
    try:
        reports = [report for path in options.reports for report in read(path)]
        if not reports:
            raise BadInput("no reports; name a file with one labelled report per line")
    except BadInput as error:
        parser.exit(2, f"{error}\n")
    if options.fit:
        found = fitted(reports)
        print(f"sharpness = {found.sharpness:.1f}\nunknown = {found.unknown:.1f}")
    else:
        publish(score(reports), options.output)


if __name__ == "__main__":
    main()
