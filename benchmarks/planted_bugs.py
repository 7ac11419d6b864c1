"""Test that every planted bug is found in every dtype and direction where it exists, and by which tier.

The benchmark runs the check ``convolution`` on this CPU with each bug of ``tests/planted_bugs.py``, over sums
of 27 to 18432 products. It judges the result by each rule for kernels (``numerics.SUMS``, ``PARTS`` for half
precision, ``TRANSFORMS``)::

    python benchmarks/planted_bugs.py -o benchmarks/results/planted_bugs.md

Correct kernels are judged on the same problems. "right" accumulates half precision in fp32 as on a GPU.
"right-here" is this CPU's own, which sums half precision in parts.

The random element occurs in every call. A check makes four calls where plain sums are required. If the
element occurred in a share r of these calls, the check would find it with a probability of
1 - (1 - r)^4.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from figures import heading, publish, table

from rocmprobe.backends import BACKENDS
from rocmprobe.checks.convolution import convolution
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.model.numerics import PARTS, SUMS, TRANSFORMS
from rocmprobe.model.problems import SHORT_DTYPES
from rocmprobe.simulate.libraries import SimulatedMiopen
from rocmprobe.simulate.machines import load_machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from faulty_convolutions import (
    TERMS,
    Combination,
    CorrectKernel,
    FaultyKernel,
    combinations,
    planted,
)
from planted_bugs import BUGS

#: Correct kernels. A tier that finds a fault in them is wrong.
RIGHT = ("right", "right-here")
#: For each rule, the backend of its kernels, and True if integer sums must be exact.
RULES = {
    SUMS: (SimulatedMiopen(load_machine("healthy-gfx1100")), True),
    PARTS: (BACKENDS["onednn"], True),
    TRANSFORMS: (SimulatedMiopen(load_machine("healthy-gfx1100")), False),
}
MEASURES = ("rms_range", "max_ratio", "bound_ratio")
_EXACT = {"exact": "plain integers", "cancelling": "cancelling integers"}
#: Phrases in the messages of ``numerics.judge_float``.
_GUARDS = ("not finite", "all zero", "are equal")


def judged(
    owed: str, combination: Combination, apply_setting: Callable[[], AbstractContextManager[None]]
) -> CheckResult:
    """Return the result of the check, run as the driver torch runs it."""
    backend, exact = RULES[owed]
    return convolution(
        CheckContext(
            dtype=getattr(torch, combination.problem.dtype), device="cpu", backend=backend,
            problem=combination.problem, direction=combination.direction, apply_setting=apply_setting,
            report_phase=lambda phase: None, seconds=0.0, exact=exact, bypass=False,
        )
    )  # fmt: skip


def rules(name: str, dtype: str) -> list[str]:
    """Return the rules for a kernel. This CPU's own kernel has only ``PARTS``, which others have only in
    half precision."""
    if name == "right-here":
        return [PARTS]
    return [owed for owed in RULES if owed != PARTS or dtype in ("float16", "bfloat16")]


def kernels(name: str) -> Callable[[], AbstractContextManager[None]]:
    """Return the context in which convolutions have the bug ``name``, or are correct."""
    if name == "right-here":
        return nullcontext
    layer = CorrectKernel() if name == "right" else FaultyKernel(name)
    return partial(planted, layer)


def signals(numerics: Mapping[str, Any]) -> dict[str, float]:
    """Return the float measures as shares of their limits. A share above 1 fails, and NaN becomes inf."""
    # ``bound_ratio`` without a limit is already a share.
    shares = {
        name: numerics[name] / numerics.get(f"{name}_limit", 1.0) for name in MEASURES if name in numerics
    }
    return {name: math.inf if math.isnan(share) else share for name, share in shares.items()}


def tiers(answer: CheckResult) -> list[str]:
    """Return every tier that finds a fault, even if it is not the reason for the state."""
    numerics = answer.numerics
    found = [tier for name, tier in _EXACT.items() if not numerics.get(name, True)]
    found += [name for name, share in signals(numerics).items() if not share <= 1]
    if any(words in answer.message for words in _GUARDS):
        found.append("guard")
    if not numerics["repeatable"]:
        found.append("differs when repeated")
    return found


def measured(name: str, combination: Combination) -> dict[str, Any]:
    """Return one row of the figures."""
    row: dict[str, Any] = {
        "bug": name, "dtype": combination.problem.dtype, "direction": combination.direction,
        "terms": combination.terms, "problem": combination.problem.text, "judged": {},
    }  # fmt: skip
    for owed in rules(name, combination.problem.dtype):
        answer = judged(owed, combination, kernels(name))
        row["judged"][owed] = {
            "state": answer.state, "message": answer.message, "found_by": tiers(answer),
            "signals": signals(answer.numerics),
        }  # fmt: skip
    return row


def largest_signal(verdict: Mapping[str, Any]) -> float:
    return max(verdict["signals"].values())


def by_bug(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table by bug and dtype of the combinations judged wrong, and of the tiers that find them."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["bug"], row["dtype"]].append(row)
    shown = []
    for (bug, dtype), group in groups.items():
        first = rules(bug, dtype)[0]
        counts = []
        for owed in RULES:
            states = [row["judged"][owed]["state"] for row in group if owed in row["judged"]]
            counts.append(f"{states.count('wrong')} of {len(states)}" if states else "")
        by = Counter(tier for row in group for tier in row["judged"][first]["found_by"])
        found_by = ", ".join(f"{tier} {count}" for tier, count in sorted(by.items()))
        smallest = min(largest_signal(row["judged"][first]) for row in group)
        shown.append((bug, SHORT_DTYPES[dtype], found_by, *counts, f"{smallest:.2g}"))
    return table(("bug", "dtype", "found by", *RULES, "smallest float signal / limit"), shown, texts=3)


def misjudged(rows: Iterable[Mapping[str, Any]], owed: str) -> list[str]:
    """Return the combinations with an incorrect verdict."""
    return [
        f"{row['bug']} {SHORT_DTYPES[row['dtype']]} {row['direction']} {row['terms']}: {verdict['state']}, "
        f"{largest_signal(verdict):.2g} of the limit"
        for row in rows
        for verdict in [row["judged"].get(owed)]
        if verdict and (verdict["state"] == "wrong") == (row["bug"] in RIGHT)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bug", action="append", choices=[*BUGS, *RIGHT], help="only this one")
    parser.add_argument("--terms", action="append", type=int, choices=TERMS, help="only these sums")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    names, sums = options.bug or [*RIGHT, *BUGS], tuple(options.terms or TERMS)
    rows = [
        measured(name, each)
        for name in names
        # A correct kernel runs on the problems of the first bug, which exists everywhere.
        for each in combinations(BUGS.get(name, next(iter(BUGS.values()))), sums)
    ]
    lines = [*heading("Planted bugs", "python benchmarks/planted_bugs.py"), *by_bug(rows)]
    for owed in RULES:
        asked = sum(owed in row["judged"] for row in rows)
        wrongly = misjudged(rows, owed)
        lines += ["", f"{owed}: {len(wrongly)} of {asked} verdicts are incorrect"]
        lines += [f"- {each}" for each in wrongly]
    publish(lines, options.output)


if __name__ == "__main__":
    main()
