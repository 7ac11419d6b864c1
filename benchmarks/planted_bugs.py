"""Is every planted bug found in every dtype and direction where it exists, and by which tier?

Runs the check ``convolution`` on this CPU with each bug of ``rocmprobe/planted_bugs.py`` in place, over sums
of 27 to 18432 products: once as a library is judged that owes exact integer sums, once as one that may choose
Winograd. Prints a table in Markdown and writes the figures::

    python benchmarks/planted_bugs.py -o benchmarks/results/planted_bugs.json

Right kernels are judged on the same problems: "right", with half precision accumulated in fp32 as on a GPU,
and "right-here", this CPU's own. The random element comes in every call: one that came in a share r of the n
calls of a check ("calls" in the figures; ``Fault.chance``) would be met with a chance of 1 - (1 - r)^n.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rocmprobe.backends import BACKENDS
from rocmprobe.planted_bugs import BUGS, TERMS, Combination, combinations
from rocmprobe.problems import SHORT_DTYPES
from rocmprobe.worker.ask import Answer, Ask, NotApplicable
from rocmprobe.worker.checks.convolution import convolution
from rocmprobe.worker.planted import PlantedLayer
from rocmprobe.worker.wide import WideLayer, in_place

#: Right kernels, which no tier may find fault with.
RIGHT = ("right", "right-here")


def judged(
    combination: Combination, under: Callable[[], AbstractContextManager[None]], exact: bool
) -> Answer:
    """What the check says, asked as the driver torch asks on a CPU."""
    return convolution(
        Ask(
            dtype=getattr(torch, combination.problem.dtype), device="cpu", backend=BACKENDS["onednn"],
            problem=combination.problem, direction=combination.direction, under=under,
            report_phase=lambda phase: None, seconds=0.0, exact=exact, bypass=False,
        )
    )  # fmt: skip


def kernels(name: str) -> Callable[[], AbstractContextManager[None]]:
    """The context in which convolutions have the bug ``name``, or are right."""
    if name == "right-here":
        return nullcontext
    layer = WideLayer() if name == "right" else PlantedLayer(name)
    return partial(in_place, layer)


def signals(numerics: Mapping[str, Any]) -> dict[str, float]:
    """The measures that have a limit, as shares of it: above 1 is over."""
    return {
        name: numerics[name] / numerics[f"{name}_limit"] for name in numerics if numerics.get(f"{name}_limit")
    }


def tiers(answer: Answer) -> list[str]:
    """What in the answer speaks against the result, whether or not it was made the reason."""
    numerics = answer.numerics
    found = [name for name, value in numerics.items() if name.startswith("exact") and value is False]
    found = [name for name in found if name != "exact_demanded"]
    found += [name for name, share in signals(numerics).items() if not share <= 1]
    if numerics.get("non_finite"):
        found.append("non_finite")
    if numerics.get("repeatable") is False:
        found.append("repeatable")
    return found


def measured(name: str, combination: Combination) -> dict[str, Any]:
    """One row of the figures."""
    row: dict[str, Any] = {
        "bug": name, "dtype": combination.problem.dtype, "direction": combination.direction,
        "terms": combination.terms, "problem": combination.problem.text,
    }  # fmt: skip
    for key, exact in (("owes_exactness", True), ("may_use_winograd", False)):
        try:
            answer = judged(combination, kernels(name), exact)
        except NotApplicable as reason:
            row[key] = {"state": "n/a", "message": str(reason)}
            continue
        row[key] = {
            "state": answer.state, "message": answer.message, "found_by": tiers(answer),
            "signals": signals(answer.numerics),
        }  # fmt: skip
    return row


def largest_signal(verdict: Mapping[str, Any]) -> float:
    return max(verdict.get("signals", {}).values(), default=0.0)


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """For each bug and dtype: how many combinations are found, by what, and those that are missed."""
    kept: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        kept[row["bug"], row["dtype"]].append(row)
    lines = [
        "| bug | dtype | judged wrong | by | smallest float signal / limit | if it may use Winograd |",
        "|---|---|---:|---|---:|---:|",
    ]
    for (bug, dtype), group in kept.items():
        counts = [
            f"{sum(row[key]['state'] == 'wrong' for row in group)} of {len(group)}"
            for key in ("owes_exactness", "may_use_winograd")
        ]
        by: dict[str, int] = defaultdict(int)
        for row in group:
            for tier in row["owes_exactness"].get("found_by", ()):
                by[tier] += 1
        found_by = ", ".join(f"{tier} {count}" for tier, count in sorted(by.items()))
        smallest = min(largest_signal(row["owes_exactness"]) for row in group)
        lines.append(
            f"| {bug} | {SHORT_DTYPES[dtype]} | {counts[0]} | {found_by} | {smallest:.2g} | {counts[1]} |"
        )
    return "\n".join(lines)


def missed(rows: Iterable[Mapping[str, Any]], key: str) -> list[str]:
    """The combinations whose verdict is not the right one."""
    return [
        f"{row['bug']} {SHORT_DTYPES[row['dtype']]} {row['direction']} {row['terms']}: {row[key]['state']}, "
        f"{largest_signal(row[key]):.2g} of the limit"
        for row in rows
        if (row[key]["state"] == "wrong") == (row["bug"] in RIGHT)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bug", action="append", choices=[*BUGS, *RIGHT], help="only this one")
    parser.add_argument("--terms", action="append", type=int, choices=TERMS, help="only these sums")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    names, sums = options.bug or [*RIGHT, *BUGS], tuple(options.terms or TERMS)
    started = time.perf_counter()
    rows = [
        measured(name, each)
        for name in names
        # A right kernel is tried on what the first bug, which is everywhere, is tried on.
        for each in combinations(BUGS.get(name, next(iter(BUGS.values()))), sums)
    ]
    print(table(rows))
    for key in ("owes_exactness", "may_use_winograd"):
        wrongly = missed(rows, key)
        print(f"\n{key}: {len(wrongly)} of {len(rows)} verdicts are not the right one", *wrongly, sep="\n- ")
    print(f"\n{time.perf_counter() - started:.0f} s")
    if options.output:
        figures = {"torch": torch.__version__, "machine": platform.machine(), "rows": rows}
        options.output.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
