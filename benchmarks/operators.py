"""Test that the sweep of operators raises no false alarms on this CPU.

The benchmark runs the check ``operator`` on every operator of the installed torch's OpInfo database, in each
dtype, with other samples in each run. The CPU computes correctly, so every failure is a false alarm. Run it
from the project's root::

    python benchmarks/operators.py --runs 3 -o benchmarks/results/operators.json
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
import time
import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from figures import publish

from rocmprobe.backends import BACKENDS
from rocmprobe.checks.opinfo import DTYPES, operator, tested_operators
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable

#: Number of operators in the figures: those closest to their limit.
NEAREST = 20


@dataclass
class Seeded(CheckContext):
    """A CheckContext whose samples are drawn from a given seed."""

    number: int = 0

    def seed(self) -> int:
        # Run 0 has the samples of ``rocmprobe run``.
        return super().seed() + self.number


def tested(name: str, dtype: str, run: int) -> CheckResult:
    """Return the result of the check for one operator."""
    context = Seeded(
        dtype=getattr(torch, dtype), device="cpu", backend=BACKENDS["onednn"], problem=None, direction=None,
        apply_setting=nullcontext, report_phase=lambda phase: None, seconds=0.0, exact=True, bypass=False,
        operator=name, number=run,
    )  # fmt: skip
    try:
        return operator(context)
    except NotApplicable as reason:
        return CheckResult("n/a", str(reason))
    except DeviceFailure as failure:
        return CheckResult("error", str(failure.__cause__))


def swept(task: tuple[int, str]) -> list[tuple[str, CheckResult]]:
    """Return the result of each operator in one run and dtype."""
    run, dtype = task
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    return [(name, tested(name, dtype, run)) for name in tested_operators("cpu")[dtype]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first run, which decides its samples"
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    states: Counter[str] = Counter()
    shares: dict[str, float] = {}
    alarms: list[dict[str, Any]] = []
    reasons: dict[str, str] = {}
    tasks = list(product(range(options.first, options.first + options.runs), DTYPES))
    with multiprocessing.get_context("spawn").Pool(len(DTYPES)) as pool:
        for (run, dtype), answers in zip(tasks, pool.imap(swept, tasks)):
            for name, answer in answers:
                states[f"{dtype}: {answer.state}"] += 1
                key = f"{name} {dtype}"
                if answer.state == "n/a":
                    reasons[key] = answer.message
                elif answer.state != "pass":
                    alarms.append({"operator": name, "dtype": dtype, "run": run, "message": answer.message})
                if "max_error" in answer.numerics:
                    share = answer.numerics["max_error"] / answer.numerics["max_error_limit"]
                    shares[key] = max(shares.get(key, 0.0), share)
            print(
                f"run {run}, {dtype}: {len(answers)} results, {len(alarms)} false alarms so far", flush=True
            )
    nearest = sorted(shares, key=shares.__getitem__, reverse=True)[:NEAREST]
    figures = {
        "torch": torch.__version__, "machine": platform.machine(), "runs": options.runs,
        "first_run": options.first,
        "operators": {dtype: len(names) for dtype, names in tested_operators("cpu").items()},
        "seconds": round(time.perf_counter() - started), "states": dict(sorted(states.items())),
        "largest_share_of_limit": {key: round(shares[key], 3) for key in nearest},
        "not_judged": reasons, "false_alarms": alarms,
    }  # fmt: skip
    print(f"{sum(states.values())} results, {len(alarms)} false alarms, {figures['seconds']} s")
    publish(figures, options.output)


if __name__ == "__main__":
    main()
