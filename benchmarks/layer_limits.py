"""Deviation of correct layers and training steps from fp64, as the basis of their limits.

The benchmark runs the checks on this CPU with many seeds, and writes the largest error of each check by
dtype, with its limit::

    python benchmarks/layer_limits.py --seeds 100 -o benchmarks/results/layer_limits.json
"""

from __future__ import annotations

import argparse
import json
import platform
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from figures import publish

from rocmprobe import bypass
from rocmprobe.backends import BACKENDS
from rocmprobe.checks import CHECKS
from rocmprobe.checks.gradients import GRADIENT_LIMITS
from rocmprobe.checks.tools.context import CheckContext
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.checks.training import AUTOCAST_LIMITS
from rocmprobe.model.numerics import BATCH_NORM_LIMITS, LAYER_LIMITS
from rocmprobe.model.problems import PURPOSES, Problem, problems

#: Checks with exact or random results.
OTHERS = (
    "selection", "sorting", "scans", "scatter-and-gather", "reductions", "embedding", "padding", "dropout",
)  # fmt: skip
LAYERS = tuple(
    name for name, check in CHECKS.items() if (check.rung == "controls" or check.layer) and name not in OTHERS
)
#: Checks and their limits, by dtype.
LIMITS = {
    **dict.fromkeys(LAYERS, LAYER_LIMITS),
    "batch-norm": BATCH_NORM_LIMITS,
    "training-step": {"float32": LAYER_LIMITS["float32"]},
    "autocast-step": AUTOCAST_LIMITS,
    "gradient-flow": {dtype: GRADIENT_LIMITS[dtype] for dtype in ("float32", "float16", "bfloat16")},
}


@dataclass
class Seeded(CheckContext):
    """A CheckContext whose inputs are drawn from a given seed."""

    number: int = 0

    def seed(self) -> int:
        return self.number


def context(dtype: str, number: int, problem: Problem | None = None) -> Seeded:
    return Seeded(
        dtype=getattr(torch, dtype), device="cpu", backend=BACKENDS["onednn"], problem=problem,
        direction=None, apply_setting=nullcontext, report_phase=lambda phase: None, seconds=0.0, exact=True,
        bypass=False, number=number,
    )  # fmt: skip


def largest(check: str, dtype: str, seeds: int) -> dict[str, Any]:
    """Return the largest error of a check over ``seeds`` seeds, with and without the vendor library.

    Checks with convolution problems also run under the bypass. Raise SystemExit if a result is not "pass".
    """
    errors = []
    contexts = [nullcontext, BACKENDS["onednn"].vendor_library_off]
    of_check: list[Problem | None] = [None]
    if check in PURPOSES:
        contexts.append(bypass.enabled)
        of_check = [each for each in problems("long", check) if each.dtype == dtype]
    for number, under, problem in product(range(seeds), contexts, of_check):
        with under():
            answer = CHECKS[check].function(context(dtype, number, problem))
        if answer.state != "pass":
            raise SystemExit(f"{check} in {dtype} fails for the seed {number}: {answer.message}")
        errors.append(float(answer.numerics["max_error"]))
    return {"largest_error": max(errors), "limit": LIMITS[check][dtype]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument(
        "--check", action="append", choices=LIMITS, help="only this one; keep the others of -o"
    )
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    if options.check and options.output:
        found = json.loads(options.output.read_text("utf-8"))["checks"]
    for check, limits in LIMITS.items():
        if options.check and check not in options.check:
            continue
        for dtype in limits:
            try:
                found.setdefault(check, {})[dtype] = largest(check, dtype, options.seeds)
            except NotApplicable as reason:
                found[check][dtype] = str(reason)
    figures = {
        "seeds": options.seeds,
        "checks": found,
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    publish(figures, options.output)


if __name__ == "__main__":
    main()
