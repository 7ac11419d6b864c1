"""Tables of a GPU's work for a convolution, by the bypass's own kernels and by other ways.

The counts of ``results/kernel_work.json`` were taken on AMD's emulator of a gfx1010 with added counters. They
are executed instructions and requested bytes, and say nothing about time. ``before`` has the counts of the
own kernels before their last change. This command makes the tables::

    python benchmarks/kernel_work.py benchmarks/results/kernel_work.json -o benchmarks/results/kernel_work.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Optional

from rocmprobe.model.problems import Problem, parse_problem

Row = Mapping[str, Any]
Rows = Sequence[Row]
OURS = "kernels"
OTHERS = ("bypass", "PyTorch", "MIOpen")
DIRECTIONS = ("fwd", "bwd-data", "bwd-weights")
#: Aims: the own kernels as a share of the bypass without them. The aim of bwd-weights is for all problems
#: except depthwise ones.
DEPTHWISE_BYTES = 1 / 5
GEMM_BYTES, GEMM_VECTOR, WEIGHTS_BYTES = 0.7, 1.1, 0.75
GEMM_FILTERS = (64, 256)
COLUMNS = ("vector instructions", "bytes asked for", "different bytes")
#: From this share of the bytes on, packed weights are given as a reason.
PACKED_SHARE = 0.01
#: Algorithms of the bypass with im2col and rocBLAS. Other rows have the algorithm that its cost model would
#: choose.
IM2COL = ("im2col", "col2im", "pointwise")


def requested(row: Row) -> int:
    """Return the bytes of vector loads, stores and atomics: active lanes times their size."""
    return int(row["load_bytes"] + row["store_bytes"] + row["atomic_bytes"])


def chosen(rows: Rows, problem: str, direction: str, path: str) -> Optional[Row]:
    """Return the row of a path, or None if the path was not counted.

    Of the own kernels, choose the variant that is offered first. Of the other paths, choose the row with the
    fewest vector instructions. Of the bypass, prefer im2col and rocBLAS unless the problem is depthwise.
    """
    found = _rows_of(rows, problem, direction, path)
    if path == OURS:
        return min(found, key=lambda row: int(row["option"]), default=None)
    if path == "bypass" and not _depthwise(problem):
        found = [row for row in found if row["algorithm"] in IM2COL] or found
    return min(found, key=lambda row: int(row["valu"]), default=None)


def _rows_of(rows: Rows, problem: str, direction: str, path: str) -> list[Row]:
    sought = (problem, direction, path)
    return [row for row in rows if (row["problem"], row["direction"], row["path"]) == sought]


def _depthwise(text: str) -> bool:
    problem = parse_problem(text)
    return problem.groups == problem.in_channels > 1


def text(figures: Mapping[str, Any]) -> str:
    rows = figures["rows"]
    lines = [
        f"{figures['what']} torch {figures['torch']}, HIP {figures['HIP']}, rocBLAS {figures['rocBLAS']}, "
        f"MIOpen {figures['MIOpen']}; {figures['dtype']}, batch {figures['batch']}. Every result was held "
        "against PyTorch's on a CPU. Made by `benchmarks/kernel_work.py`.",
        "",
        "Ratios are ours over theirs, below 1 is less work: vector instructions / bytes that loads and "
        "stores ask for / different bytes, each launch beginning with empty caches. bypass: by im2col, "
        "col2im or a plain product with rocBLAS, and by its own algorithms where depthwise; PyTorch: its "
        "own kernels, MIOpen off; MIOpen: what it takes by itself. Ours: the "
        "variant that is offered first; all that were counted are at the end. After a mean the number of "
        "problems.",
    ]
    for direction in DIRECTIONS:
        table = list(_table(rows, direction))
        if table:
            lines += [
                "", f"## {direction}", "",
                "| problem | ours | vector instructions, M | of them FMA | MB asked for | different MB | "
                "/ bypass | / PyTorch | / MIOpen |",
                "|---|---|---:|---:|---:|---:|---:|---:|---:|", *table,
            ]  # fmt: skip
    lines += [
        "", "## Geometric means", "", "| problems | direction | / bypass | / PyTorch | / MIOpen |",
        "|---|---|---:|---:|---:|", *_means(rows),
    ]  # fmt: skip
    lines += ["", "## The aims", "", "| problem | direction | aim | ours over the bypass | |"]
    lines += ["|---|---|---|---:|---|", *_aims(rows)]
    lines += [
        "", "## Before and after", "",
        "Of the variant that is offered first: launches, vector instructions, bytes.", "",
        "| problem | direction | ours before | ours | launches | vector instructions, M | MB asked for | "
        "different MB |",
        "|---|---|---|---|---:|---:|---:|---:|", *_changes(rows, figures["before"]),
    ]  # fmt: skip
    lines += [
        "", "## Ratios above 1.0", "",
        "All of them, to two digits, with what ours does that the other way need not do.", "",
        "| problem | direction | over | of | ratio | reason |", "|---|---|---|---|---:|---|", *_above(rows),
    ]  # fmt: skip
    lines += ["", "## All ways", "", *_ways(rows)]
    return "\n".join(lines) + "\n"


def _problems(rows: Rows) -> dict[str, str]:
    return {row["problem"]: row["network"] for row in rows}


def _table(rows: Rows, direction: str) -> Iterator[str]:
    for problem, network in _problems(rows).items():
        ours = chosen(rows, problem, direction, OURS)
        if ours is None:
            continue
        others = [_ratio(ours, chosen(rows, problem, direction, path)) for path in OTHERS]
        yield (
            f"| {network} `{problem}` | {ours['algorithm']} | {ours['valu'] / 1e6:.2f} | "
            f"{ours['fma'] / ours['valu']:.0%} | {requested(ours) / 1e6:.2f} | "
            f"{ours['distinct_bytes'] / 1e6:.2f} | {' | '.join(others)} |"
        )


def _ratio(ours: Row, theirs: Optional[Row]) -> str:
    return "not counted" if theirs is None else " / ".join(f"{each:.2f}" for each in _ratios(ours, theirs))


def _ratios(ours: Row, theirs: Row) -> tuple[float, float, float]:
    """Return the ratios of vector instructions, requested bytes and different bytes."""
    return (
        ours["valu"] / theirs["valu"],
        requested(ours) / requested(theirs),
        ours["distinct_bytes"] / theirs["distinct_bytes"],
    )


def _means(rows: Rows) -> Iterator[str]:
    groups = {
        "depthwise": _depthwise,
        f"3x3, {GEMM_FILTERS[0]} to {GEMM_FILTERS[1]} filters": lambda text: _aimed_at(parse_problem(text)),
        "the others": lambda text: not _depthwise(text) and not _aimed_at(parse_problem(text)),
    }
    for name, belongs in groups.items():
        problems = [problem for problem in _problems(rows) if belongs(problem)]
        for direction in DIRECTIONS:
            cells = []
            for path in OTHERS:
                both = (
                    (chosen(rows, problem, direction, OURS), chosen(rows, problem, direction, path))
                    for problem in problems
                )
                found = [_ratios(ours, theirs) for ours, theirs in both if ours and theirs]
                means = " / ".join(f"{geometric_mean(each):.2f}" for each in zip(*found))
                cells.append(f"{means} ({len(found)})" if found else "not counted")
            yield f"| {name} | {direction} | {' | '.join(cells)} |"


def _aimed_at(problem: Problem) -> bool:
    """Return True for a 3x3 convolution without groups whose number of filters is within the aim."""
    least, most = GEMM_FILTERS
    return problem.kernel == (3, 3) and problem.groups == 1 and least <= problem.out_channels <= most


def _aims(rows: Rows) -> Iterator[str]:
    for text in _problems(rows):
        for direction in DIRECTIONS:
            ours, theirs = (chosen(rows, text, direction, path) for path in (OURS, "bypass"))
            aims = _aims_of(text, direction)
            if ours is None or theirs is None or not aims:
                continue
            others = [
                row["algorithm"]
                for row in _rows_of(rows, text, direction, OURS)
                if all(share <= aim for _, share, aim in _shares(row, theirs, aims))
            ]
            for what, share, aim in _shares(ours, theirs, aims):
                verdict = "reached" if share <= aim else f"**missed**: {share / aim:.2f} times the aim"
                if share > aim and others:
                    verdict += f"; {others[0]} reaches every aim"
                yield f"| `{text}` | {direction} | {what}: at most {aim:g} | {share:.2f} | {verdict} |"


def _aims_of(text: str, direction: str) -> Mapping[str, float]:
    """Return the aims for "bytes" and "vector instructions", or {} if no aim covers the problem."""
    if _depthwise(text):
        return {"bytes": DEPTHWISE_BYTES}
    if direction == "bwd-weights":
        return {"bytes": WEIGHTS_BYTES, "vector instructions": GEMM_VECTOR}
    if _aimed_at(parse_problem(text)):
        return {"bytes": GEMM_BYTES, "vector instructions": GEMM_VECTOR}
    return {}


def _changes(rows: Rows, before: Rows) -> Iterator[str]:
    for problem in _problems(rows):
        for direction in DIRECTIONS:
            old, new = (chosen(each, problem, direction, OURS) for each in (before, rows))
            if old is None or new is None:
                continue
            pairs = (
                f"{old['launches']} → {new['launches']}",
                *(
                    f"{count(old) / 1e6:.2f} → {count(new) / 1e6:.2f}"
                    for count in (_vector, requested, lambda row: int(row["distinct_bytes"]))
                ),
            )
            names = f"{old['algorithm']} | {new['algorithm']}"
            yield f"| `{problem}` | {direction} | {names} | {' | '.join(pairs)} |"


def _above(rows: Rows) -> Iterator[str]:
    for problem in _problems(rows):
        for direction in DIRECTIONS:
            ours = chosen(rows, problem, direction, OURS)
            for path in OTHERS:
                theirs = chosen(rows, problem, direction, path)
                if ours is None or theirs is None:
                    continue
                for what, ratio in zip(COLUMNS, _ratios(ours, theirs)):
                    if round(ratio, 2) > 1:
                        cells = f"{path} | {what} | {ratio:.2f} | {_reason(ours)}"
                        yield f"| `{problem}` | {direction} | {cells} |"


def _reason(ours: Row) -> str:
    """Return the work that the own kernels do and another way does not need."""
    moved = {kernel["kernel"]: kernel["bytes"] / 1e6 for kernel in ours["kernels"]}
    reasons = []
    if "sum_splits" in moved:
        parts = int(ours["algorithm"].rpartition("/")[2]) if "/" in ours["algorithm"] else 0
        through = f", {2 * moved['sum_splits'] * parts / (parts + 1):.1f} MB" if parts else ""
        reasons.append(
            f"the parts of the sums go through the workspace{through}: without them few blocks run"
        )
    if moved.get("gather_pack", 0) > PACKED_SHARE * requested(ours) / 1e6:
        reasons.append(f"the weights are packed in every call, {moved['gather_pack']:.1f} MB")
    if _depthwise(ours["problem"]):
        share = ours["fma"] / ours["valu"]
        reasons.append(f"addresses, borders and sums over the threads of a block: {share:.0%} are products")
    return "; ".join(reasons) or "unknown"


def _shares(ours: Row, theirs: Row, aims: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """Yield each quantity of the aims, its share of the other way, and the aim."""
    for what, aim in aims.items():
        count = requested if what == "bytes" else _vector
        yield what, count(ours) / count(theirs), aim


def _vector(row: Row) -> int:
    return int(row["valu"])


def _ways(rows: Rows) -> Iterator[str]:
    yield (
        "| problem | direction | way | launches | vector, M | FMA, M | scalar, M | LDS, M | loads, M "
        "| stores, M | MB loaded | MB stored | different MB | kernels |"
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    for row in rows:
        way = row["path"] + (f": {row['algorithm']}" if "algorithm" in row else "")
        counts = (row[name] / 1e6 for name in ("valu", "fma", "salu", "lds", "loads", "stores"))
        moved = (row[name] / 1e6 for name in ("load_bytes", "store_bytes", "distinct_bytes"))
        kernels = ", ".join(dict.fromkeys(kernel["kernel"] for kernel in row["kernels"]))
        cells = (row["launches"], *(f"{value:.2f}" for value in (*counts, *moved)), kernels)
        yield f"| `{row['problem']}` | {row['direction']} | {way} | {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("counts", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    shown = text(json.loads(arguments.counts.read_text("utf-8")))
    print(shown)
    if arguments.output:
        arguments.output.write_text(shown, "utf-8")


if __name__ == "__main__":
    main()
