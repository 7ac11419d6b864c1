"""Value of each algorithm of the bypass: the bypass without the algorithm, and the value of measuring.

The benchmark measures every algorithm in every direction of the problem matrix and of the networks, in fp32
and half precision. The rest is arithmetic on these figures. In each round the medians of the other rounds
choose the algorithm, and this round's times count, so that a lucky measurement gains nothing. An interval
contains 95 % of resamplings of the rounds. Algorithms are removed one at a time, the least useful first. Run
it on an otherwise idle machine::

    python benchmarks/leave_one_out.py -o benchmarks/results/leave_one_out.json
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Optional

import torch
from bypass import BATCH, WORKSPACE_MB, processor
from networks import network_problems

from rocmprobe import bypass
from rocmprobe.bypass.algorithms import Operands
from rocmprobe.bypass.choice.plan import by_model, candidates, plain_direction, plain_form
from rocmprobe.model.problem_matrix import problem_matrix
from rocmprobe.model.problems import Problem, parse_problem

DTYPES = ("fp32", "fp16")
#: Most operations of one direction. Larger problems would take most of the measuring time.
MOST_FLOPS = 600_000_000
#: An algorithm slower than this many times the fastest after two rounds is not measured again.
HOPELESS = 3
#: An algorithm stays if the bypass without it takes more than this many times as long: over all problems, or
#: in a class.
WORTH, WORTH_IN_A_CLASS = 1.03, 1.15
#: These algorithms always stay. im2col computes almost everything. pointwise needs no workspace, and in fwd
#: on a GPU it moves 2.5 times fewer bytes than aten (``results/kernel_work.json``, 64 to 256 channels).
STAY = frozenset({"im2col", "pointwise"})
#: Workspace caps in MiB, to find directions where only one algorithm stays within the cap.
CAPS = (1, 8, WORKSPACE_MB)
RESAMPLINGS = 2000

#: Seconds of each round, keyed by "native" or algorithm.
Times = Mapping[str, Sequence[float]]


def problems() -> Iterator[tuple[str, Problem]]:
    """Yield source and problem: each size once, in every dtype."""
    matrix = (("problem matrix", each) for each in problem_matrix("standard"))
    seen = set()
    for source, problem in (*matrix, *network_problems("cpu", (), BATCH)):
        # Every algorithm adds a bias afterwards and first makes operands contiguous, so both are left out.
        plain = replace(problem, bias=False, noncontiguous=False)
        kind, _, sizes = plain.text.split("-", 2)
        if (kind, sizes) not in seen and plain.flops <= MOST_FLOPS:
            seen.add((kind, sizes))
            for dtype in DTYPES:
                yield source, parse_problem(f"{kind}-{dtype}-{sizes}")


def classes(problem: Problem) -> list[str]:
    groups, channels = problem.groups, problem.in_channels
    kinds = {
        "depthwise": groups == channels > 1,
        "small groups": 1 < groups < channels and channels // groups <= 16,
        "stride 2": max(problem.stride) >= 2, "1x1": max(problem.kernel) == 1,
        "transposed": problem.transposed, "long filters": max(problem.kernel) >= 7,
    }  # fmt: skip
    return [name for name, holds in kinds.items() if holds]


def calls(problem: Problem) -> dict[str, Callable[[], Any]]:
    """Return a call for each direction by PyTorch's operator for it, without autograd."""
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, problem.dtype)
    layout = torch.contiguous_format
    if problem.channels_last:
        layout = torch.channels_last if problem.rank == 2 else torch.channels_last_3d
    input, weight, gradient = (
        torch.randn(shape, generator=generator).to(dtype).contiguous(memory_format=layout)
        for shape in (problem.input_shape, problem.weight_shape, problem.output_shape)
    )
    settings = (
        None, list(problem.stride), list(problem.padding), list(problem.dilation), problem.transposed,
        list(problem.output_padding), problem.groups,
    )  # fmt: skip
    convolution, backward = torch.ops.aten.convolution, torch.ops.aten.convolution_backward
    return {
        "fwd": lambda: convolution(input, weight, *settings),
        "bwd-data": lambda: backward(gradient, input, weight, *settings, [True, False, False]),
        "bwd-weights": lambda: backward(gradient, input, weight, *settings, [False, True, False]),
    }


def plans(problem: Problem, direction: str, workspace_mb: int) -> dict[str, bypass.Plan]:
    """Return the best plan of each algorithm by the cost model."""
    plain = plain_form(
        problem.input_shape, problem.weight_shape, stride=problem.stride, padding=problem.padding,
        dilation=problem.dilation, transposed=problem.transposed,
        output_padding=problem.output_padding if problem.transposed else None, groups=problem.groups,
    )  # fmt: skip
    operands = Operands(problem.dtype, "cpu", problem.channels_last, dense=True)
    found: dict[str, Any] = {}
    cap = workspace_mb << 20
    for plan in candidates(plain_direction(direction, problem.transposed), plain, operands, cap):
        rivals = [plan, *([found[plan.algorithm]] if plan.algorithm in found else [])]
        found[plan.algorithm] = by_model(rivals, "cpu")
    return found


def measured(problem: Problem, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each direction, with the seconds of each round and the plans."""
    for direction, call in calls(problem).items():
        planned = plans(problem, direction, WORKSPACE_MB)
        names = ["native", *planned]
        times: dict[str, list[float]] = {name: [] for name in names}
        for number in range(rounds):
            random.shuffle(names)
            for name in names:
                times[name].append(_seconds(name, call))
            if number == 1:
                least = min(min(some) for some in times.values())
                names = [name for name in names if min(times[name]) < HOPELESS * least or name == "native"]
        fit = {
            cap: [n for n, p in plans(problem, direction, cap).items() if p.workspace_bytes <= cap << 20]
            for cap in CAPS
        }
        yield {
            "direction": direction, "seconds": times, "fit": fit,
            "workspace": {name: plan.workspace_bytes for name, plan in planned.items()},
            "modelled": by_model(list(planned.values()), "cpu").algorithm,
        }  # fmt: skip


def _seconds(name: str, call: Callable[[], Any]) -> float:
    context = nullcontext() if name == "native" else bypass.enabled("cpu", WORKSPACE_MB, name)
    with torch.no_grad(), context:
        # The first call in a context includes the planning.
        call()
        started = time.perf_counter()
        call()
        return time.perf_counter() - started


class Direction:
    """The times of one direction of one problem. Rounds that an algorithm skipped have its median."""

    def __init__(self, row: Mapping[str, Any], rounds: int) -> None:
        self.classes = row["classes"]
        self.modelled = row["modelled"]
        self.workspace = row["workspace"]
        self.fit = {cap: set(names) for cap, names in row["fit"].items()}
        self.algorithms = [name for name in row["seconds"] if name != "native"]
        self._times = {
            name: [*times, *[statistics.median(times)] * (rounds - len(times))]
            for name, times in row["seconds"].items()
        }
        #: For each algorithm and round: the median of the other rounds.
        self._expected = {
            name: [statistics.median(times[:number] + times[number + 1 :]) for number in range(rounds)]
            for name, times in self._times.items()
        }

    def seconds(self, name: str, number: int) -> float:
        return self._times[name][number]

    def choice(self, allowed: frozenset[str], number: int) -> str:
        """Return the algorithm that is the fastest in the other rounds."""
        there = [name for name in self.algorithms if name in allowed]
        return min(there, key=lambda name: self._expected[name][number])


Rule = Callable[[Direction, int], float]


def native(direction: Direction, number: int) -> float:
    return direction.seconds("native", number)


def modelled(direction: Direction, number: int) -> float:
    return direction.seconds(direction.modelled, number)


def best_of(allowed: frozenset[str]) -> Rule:
    return lambda direction, number: direction.seconds(direction.choice(allowed, number), number)


def compared(directions: Sequence[Direction], first: Rule, second: Rule, rounds: int) -> dict[str, float]:
    """Return the time of ``first`` relative to ``second``: the geometric mean, with its interval over
    rounds."""
    logs = [
        statistics.fmean(math.log(first(each, number) / second(each, number)) for each in directions)
        for number in range(rounds)
    ]
    generator = random.Random(0)  # noqa: S311 - resampling, no secret
    means = sorted(statistics.fmean(generator.choices(logs, k=rounds)) for _ in range(RESAMPLINGS))
    ends = (means[int(0.025 * RESAMPLINGS)], means[int(0.975 * RESAMPLINGS)])
    ratio, low, high = (round(math.exp(each), 4) for each in (statistics.fmean(logs), *ends))
    return {"ratio": ratio, "low": low, "high": high}


@dataclass(frozen=True)
class Loss:
    """The loss of the bypass without an algorithm.

    ``times`` is the relative time over all problems ("all") and in each class. ``alone`` is the number of
    directions that no other algorithm computes, and ``alone_within`` the number within each cap of workspace
    in MiB. ``chosen`` is the number of directions in which the algorithm is the fastest.
    """

    times: dict[str, dict[str, float]]
    alone: int
    alone_within: dict[int, int]
    chosen: int

    def shown(self) -> bool:
        """Return True if the algorithm is worth keeping."""
        worth = {kind: WORTH if kind == "all" else WORTH_IN_A_CLASS for kind in self.times}
        return self.alone > 0 or any(each["low"] > worth[kind] for kind, each in self.times.items())


def loss(directions: Sequence[Direction], allowed: frozenset[str], name: str, rounds: int) -> Loss:
    rest = allowed - {name}
    others = [each for each in directions if rest & set(each.algorithms)]
    within = {
        cap: sum(name in each.fit[cap] and not rest & each.fit[cap] for each in directions) for cap in CAPS
    }
    kinds = {"all": others}
    for kind in sorted({kind for each in others for kind in each.classes}):
        kinds[kind] = [each for each in others if kind in each.classes]
    times = {kind: compared(some, best_of(rest), best_of(allowed), rounds) for kind, some in kinds.items()}
    chosen = sum(each.choice(allowed, 0) == name for each in directions)
    return Loss(times, len(directions) - len(others), within, chosen)


def stepwise(directions: Sequence[Direction], rounds: int) -> list[dict[str, Any]]:
    """Return the steps of removing the least useful algorithm until every remaining algorithm is worth
    keeping."""
    allowed = frozenset(name for each in directions for name in each.algorithms)
    steps = []
    while True:
        losses = {name: loss(directions, allowed, name, rounds) for name in sorted(allowed)}
        useless = [name for name in sorted(allowed - STAY) if not losses[name].shown()]
        removed = min(useless, key=lambda name: losses[name].times["all"]["ratio"], default=None)
        steps.append({"removed": removed, "losses": {name: asdict(each) for name, each in losses.items()}})
        if removed is None:
            return steps
        allowed -= {removed}


def summary(rows: Sequence[Mapping[str, Any]], rounds: int) -> dict[str, Any]:
    directions = [Direction(row, rounds) for row in rows]
    steps = stepwise(directions, rounds)
    every, kept = (frozenset(step["losses"]) for step in (steps[0], steps[-1]))
    return {
        "directions": len(directions),
        "kept": sorted(kept),
        "kept, times every algorithm": compared(directions, best_of(kept), best_of(every), rounds),
        "cost model, times measured choice": compared(directions, modelled, best_of(kept), rounds),
        "bytes of workspace, every algorithm": workspace(directions, every),
        "bytes of workspace, kept": workspace(directions, kept),
        "steps": steps,
    }


def workspace(directions: Sequence[Direction], allowed: frozenset[str]) -> int:
    """Return the geometric mean of the workspace, in bytes, of the chosen plans."""
    needed = (each.workspace[each.choice(allowed, 0)] for each in directions)
    return round(statistics.geometric_mean(count + 1 for count in needed))


def table(found: Mapping[str, Any]) -> str:
    """Return Markdown tables of the first step, with every algorithm, and of the last step."""
    lines = ["Times as long without it, geometric mean, with its 95 % interval over the rounds.", ""]
    for title, step in (("Every algorithm", found["steps"][0]), ("Those kept", found["steps"][-1])):
        kinds = sorted({kind for each in step["losses"].values() for kind in each["times"]} - {"all"})
        heads = [
            "without",
            "chosen",
            "nothing else",
            f"within {', '.join(map(str, CAPS))} MiB",
            "all",
            *kinds,
        ]
        lines += [f"## {title}", "", _row(heads), _row(["---"] * len(heads))]
        for name, each in step["losses"].items():
            within = ", ".join(str(each["alone_within"][cap]) for cap in CAPS)
            times = (_interval(each["times"].get(kind)) for kind in ("all", *kinds))
            lines.append(_row([name, each["chosen"], each["alone"], within, *times]))
        lines.append("")
    order = ", ".join(step["removed"] for step in found["steps"][:-1])
    return "\n".join([*lines, f"Removed in this order: {order or 'none'}.", ""])


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _interval(each: Optional[Mapping[str, float]]) -> str:
    return "{ratio:.3f} ({low:.3f} to {high:.3f})".format(**each) if each else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    random.seed(0)
    rows = []
    for source, problem in problems():
        for row in measured(problem, arguments.rounds):
            rows.append({"source": source, "problem": problem.text, "classes": classes(problem), **row})
        print(problem.text, flush=True)
    found = summary(rows, arguments.rounds)
    print(table(found))
    if arguments.output:
        figures = {
            "device": processor(torch.device("cpu")), "threads": torch.get_num_threads(),
            "torch": torch.__version__, "rounds": arguments.rounds, "summary": found,
            "microseconds, medians": [shown(row) for row in rows],
        }  # fmt: skip
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
        arguments.output.with_suffix(".md").write_text(table(found), "utf-8")


def shown(row: Mapping[str, Any]) -> str:
    times = (f"{name} {1e6 * statistics.median(some):.0f}" for name, some in row["seconds"].items())
    return f"{row['problem']} {row['direction']}: {', '.join(times)}"


if __name__ == "__main__":
    main()
