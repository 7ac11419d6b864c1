"""Is every planted bug found in every dtype and direction where it exists, and by which tier?

Runs the check ``convolution`` on this CPU with each bug of ``simulate/generated.py`` in place, over sums
of 27 to 18432 products, and judges it by each rule of what kernels owe (``numerics.SUMS``, ``PARTS`` for half
precision, ``TRANSFORMS``). Prints a table in Markdown, and writes it with the figures::

    python benchmarks/planted_bugs.py -o benchmarks/results/planted_bugs.json

Right kernels are judged on the same problems: "right", with half precision accumulated in fp32 as on a GPU,
and "right-here", this CPU's own, which sum half precision in parts. The random element comes in every call:
one that came in a share r of a check's calls (``Fault.chance``), of which there are four where plain sums are
owed, would be met with a chance of 1 - (1 - r)^4.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rocmprobe.backends import BACKENDS
from rocmprobe.checks.convolution import convolution
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.model.numerics import PARTS, SUMS, TRANSFORMS
from rocmprobe.model.problems import SHORT_DTYPES
from rocmprobe.simulate.generated import BUGS
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

#: Right kernels, which no tier may find fault with.
RIGHT = ("right", "right-here")
#: By what is owed: whose kernels those are, and whether integer sums must be exact.
RULES = {
    SUMS: (SimulatedMiopen(load_machine("healthy-gfx1100")), True),
    PARTS: (BACKENDS["onednn"], True),
    TRANSFORMS: (SimulatedMiopen(load_machine("healthy-gfx1100")), False),
}
MEASURES = ("rms_range", "max_ratio", "bound_ratio")
_EXACT = {"exact": "plain integers", "cancelling": "cancelling integers"}
#: Words of ``numerics.judge_float``.
_GUARDS = ("not finite", "all zero", "are equal")


def judged(
    owed: str, combination: Combination, under: Callable[[], AbstractContextManager[None]]
) -> CheckResult:
    """What the check says, asked as the driver torch asks."""
    backend, exact = RULES[owed]
    return convolution(
        CheckContext(
            dtype=getattr(torch, combination.problem.dtype), device="cpu", backend=backend,
            problem=combination.problem, direction=combination.direction, under=under,
            report_phase=lambda phase: None, seconds=0.0, exact=exact, bypass=False,
        )
    )  # fmt: skip


def rules(name: str, dtype: str) -> list[str]:
    """Those by which a kernel is judged: sums in parts are owed in half precision alone."""
    if name == "right-here":
        return [PARTS]
    return [owed for owed in RULES if owed != PARTS or dtype in ("float16", "bfloat16")]


def kernels(name: str) -> Callable[[], AbstractContextManager[None]]:
    """The context in which convolutions have the bug ``name``, or are right."""
    if name == "right-here":
        return nullcontext
    layer = CorrectKernel() if name == "right" else FaultyKernel(name)
    return partial(planted, layer)


def signals(numerics: Mapping[str, Any]) -> dict[str, float]:
    """The measures of the float tier as shares of their limits: above 1 is over. What is not finite counts as
    1e99, since JSON has no infinity."""
    # The bound's ratio is a share as it is.
    shares = {
        name: numerics[name] / numerics.get(f"{name}_limit", 1.0) for name in MEASURES if name in numerics
    }
    return {name: share if math.isfinite(share) else 1e99 for name, share in shares.items()}


def tiers(answer: CheckResult) -> list[str]:
    """What in the answer speaks against the result, whether or not it was made the reason."""
    numerics = answer.numerics
    found = [tier for name, tier in _EXACT.items() if not numerics.get(name, True)]
    found += [name for name, share in signals(numerics).items() if not share <= 1]
    if any(words in answer.message for words in _GUARDS):
        found.append("guard")
    if not numerics["repeatable"]:
        found.append("differs when repeated")
    return found


def measured(name: str, combination: Combination) -> dict[str, Any]:
    """One row of the figures."""
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


#: What the figures hold of a row: the state by each rule, and by the first the tiers and the largest signal.
COLUMNS = (
    "bug",
    "dtype",
    "direction",
    "terms",
    "problem",
    *RULES,
    "found by",
    "largest float signal / limit",
)


def kept(row: Mapping[str, Any]) -> list[Any]:
    """``row`` in the order of ``COLUMNS``; null for a rule that does not apply."""
    first = next(iter(row["judged"].values()))
    states = [row["judged"].get(owed, {}).get("state") for owed in RULES]
    signal = float(f"{largest_signal(first):.3g}")
    return [*(row[name] for name in COLUMNS[:5]), *states, first["found_by"], signal]


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """For each bug and dtype: how many combinations are judged wrong, and which tiers find how many."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["bug"], row["dtype"]].append(row)
    lines = [f"| bug | dtype | {' | '.join(RULES)} | found by | smallest float signal / limit |"]
    lines.append(f"|---|---|{'---:|' * len(RULES)}---|---:|")
    for (bug, dtype), group in groups.items():
        first = rules(bug, dtype)[0]
        counts = []
        for owed in RULES:
            states = [row["judged"][owed]["state"] for row in group if owed in row["judged"]]
            counts.append(f"{states.count('wrong')} of {len(states)}" if states else "")
        by = Counter(tier for row in group for tier in row["judged"][first]["found_by"])
        found_by = ", ".join(f"{tier} {count}" for tier, count in sorted(by.items()))
        smallest = min(largest_signal(row["judged"][first]) for row in group)
        lines.append(
            f"| {bug} | {SHORT_DTYPES[dtype]} | {' | '.join(counts)} | {found_by} | {smallest:.2g} |"
        )
    return "\n".join(lines)


def misjudged(rows: Iterable[Mapping[str, Any]], owed: str) -> list[str]:
    """The combinations whose verdict is not the right one."""
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
    started = time.perf_counter()
    rows = [
        measured(name, each)
        for name in names
        # A right kernel is tried on what the first bug, which is everywhere, is tried on.
        for each in combinations(BUGS.get(name, next(iter(BUGS.values()))), sums)
    ]
    printed = table(rows) + "\n"
    for owed in RULES:
        asked = sum(owed in row["judged"] for row in rows)
        wrongly = misjudged(rows, owed)
        heading = f"{owed}: {len(wrongly)} of {asked} verdicts are not the right one"
        printed += "\n" + "\n- ".join([heading, *wrongly]) + "\n"
    print(printed, f"{time.perf_counter() - started:.0f} s", sep="\n")
    if options.output:
        written = ",\n".join(json.dumps(kept(row)) for row in rows)
        head = {"torch": torch.__version__, "machine": platform.machine(), "columns": COLUMNS}
        text = f'{json.dumps(head)[:-1]}, "rows": [\n{written}\n]}}\n'
        options.output.write_text(text, "utf-8")
        options.output.with_suffix(".md").write_text(printed, "utf-8")


if __name__ == "__main__":
    main()
