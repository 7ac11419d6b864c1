"""Timing of `rocmprobe explain` as a whole process: an ordinary log, and 100 MB each of four kinds of log.

The logs are made up: an ordinary log of 40 lines; one line repeated; MIOPEN_LOG_LEVEL=6 with changing
numbers; random words, no two lines alike; and random bytes, which are not text. One line in the middle of
each large log reports a failure. The benchmark fails if `explain` does not find that line::

    python benchmarks/explain.py -o benchmarks/results/explain.md
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from figures import heading, publish, table

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="of a large log; an ordinary one ten times so often"
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.txt")
        log.write_bytes(ordinary())
        asked(log)
        rows.append(timed("ordinary", log, 10 * options.repeats))
        for name, kind in KINDS.items():
            with log.open("wb") as file:
                file.writelines(blocks(kind))
            rows.append(timed(name, log, options.repeats))
    # ``ru_maxrss`` is in KiB on Linux, and belongs to the largest child.
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    lines = [
        *heading("`rocmprobe explain`", f"python benchmarks/explain.py --repeats {options.repeats}"),
        f"Seconds of the whole process. It needs at most {memory} MB of memory.",
        "",
        *table(("log", "size", "repeats", "median, s", "slowest, s"), rows),
    ]
    publish(lines, options.output)


if __name__ == "__main__":
    main()
