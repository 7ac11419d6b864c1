"""Time of `rocmprobe explain`, or its answers on labelled reports.

Time of the whole process, for an ordinary log and for 100 MB each of four kinds of log::

    python benchmarks/explain.py -o benchmarks/results/explain.md

The logs are made up: an ordinary log of 40 lines; one line repeated; MIOPEN_LOG_LEVEL=6 with changing
numbers; random words, no two lines alike; and random bytes, which are not text. One line in the middle of
each large log reports a failure. The benchmark fails if `explain` does not find that line.

Answers on the reports in one or more files::

    python benchmarks/explain.py reports.jsonl

A file has one JSON object per line: ``log``, ``cause``, ``layer``, and any fact that ``rocmprobe explain
--facts`` accepts. The exit of the program is not used, because a person who pastes a log does not state it.
``--full N`` prints N answers in full, chosen by ``--seed``.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import heading, publish, table

from rocmprobe.explain.explain import Explanation, diagnose, explain
from rocmprobe.explain.facts import facts_in, facts_of, merge_and_derive
from rocmprobe.model.results import BadInput
from rocmprobe.report.terminal.explanation import render_explanation
from rocmprobe.text import reading
from rocmprobe.text.console import Console
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
#: Labels outside of the vocabulary, and the causes that they mean.
_MEANS = {
    "other:igpu-selected": "integrated-gpu-first",
    "other:missing-windows-runtime-dll": "runtime-library-missing",
    "other:rocm-version-mix": "rocm-versions-mixed",
    "other:userspace-version-mismatch": "wsl-adapter-mismatch",
    "other:wsl-foreign-adapter": "wsl-adapter-mismatch",
}


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
    if not any("TensileLibrary.dat" in line for line in json.loads(done.stdout)["why"]):
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
    """A labelled report with its answer, and the signature that decided."""

    name: str
    cause: str
    layer: str
    answer: Explanation
    signature: str

    @property
    def result(self) -> str:
        """Kind of the answer, and whether it agrees with the label."""
        kind = self.answer.answer
        if kind == "known":
            return f"known {'right' if self.answer.cause == self.cause else 'wrong'}"
        if kind == "located":
            right = self.layer.startswith(self.answer.layer) and bool(self.answer.layer)
            return f"located {'right' if right else 'wrong'}"
        return kind


def read(path: Path) -> Iterator[Report]:
    """Yield the reports of a file. Raise BadInput with the line number if a line is not a report."""
    content = reading.read_bytes(path, "name a file of labelled reports")
    for number, line in enumerate(content.splitlines(), 1):
        try:
            row = reading.json_line(line)
            cause, layer, printed = row["cause"], row["layer"], row["log"]
            text = printed if isinstance(printed, str) else "\n".join(printed)
            given = facts_of({key: value for key, value in row.items() if key not in _ASIDE})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{path}: line {number}: {error!r}; a report has log, cause and layer") from error
        log = of_text(text)
        facts = merge_and_derive(given, facts_in(log))
        hit = diagnose(log.lines, facts).hit
        answer = explain(log, facts)
        name = str(row.get("id", number))
        yield Report(name, _MEANS.get(cause, cause), layer, answer, hit.signature.name if hit else "")


def score(reports: Sequence[Report]) -> Iterator[str]:
    """Yield the lines of the result: answers by kind, precision by signature, and wrong answers."""
    counts = Counter(report.result for report in reports)
    yield from table(("answer", "reports"), sorted(counts.items()))
    yield ""
    precision: dict[str, list[bool]] = defaultdict(list)
    for report in reports:
        if report.answer.answer == "known":
            precision[report.signature].append(report.result == "known right")
    rows = ((name, f"{sum(right)} of {len(right)}") for name, right in sorted(precision.items()))
    yield from table(("signature", "right"), rows)
    yield ""
    wrong = (
        (report.name, report.cause, report.answer.cause or report.answer.layer, report.result)
        for report in reports
        if report.result != "known right"
    )
    yield from table(
        ("report", "label", "answer", "result"), sorted(wrong, key=lambda row: (row[3], row[2], row[1]))
    )


def in_full(reports: Sequence[Report], number: int, seed: int) -> Iterator[str]:
    """Yield answers as `rocmprobe explain` prints them."""
    for report in random.Random(seed).sample(list(reports), number):  # noqa: S311 - the same reports every time
        console = Console(width=80, record=True, file=io.StringIO())
        render_explanation(report.answer, console)
        yield f"{report.name} (label {report.cause})"
        yield from (f"    {line}" for line in console.export_text().splitlines())
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="*", type=Path, help="files of labelled reports")
    parser.add_argument("--full", type=int, default=0, metavar="N", help="print N answers in full")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of answers")
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
    lines = in_full(reports, options.full, options.seed) if options.full else score(reports)
    publish(lines, options.output)


if __name__ == "__main__":
    main()
