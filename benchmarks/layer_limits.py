"""How far right fp32 batch norm and training steps stray from fp64: the basis of their limit.

Runs both checks on this CPU with many seeds and writes the largest deviation of each::

    python benchmarks/layer_limits.py --seeds 100 -o benchmarks/results/layer_limits.json
"""

from __future__ import annotations

import argparse
import platform
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from figures import publish

from rocmprobe.backends import BACKENDS
from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.checks.layers import LAYER_LIMIT, batch_norm, training_step


@dataclass
class Seeded(Ask):
    """An Ask whose inputs are drawn from a given seed."""

    number: int = 0

    def seed(self) -> int:
        return self.number


def ask(number: int) -> Seeded:
    return Seeded(
        dtype=torch.float32, device="cpu", backend=BACKENDS["onednn"], problem=None, direction=None,
        under=nullcontext, report_phase=lambda phase: None, seconds=0.0, exact=True, bypass=False,
        number=number,
    )  # fmt: skip


def largest(check: Any, key: str, seeds: int) -> float:
    """The largest ``numerics[key]`` of a check over ``seeds`` seeds, all of which must pass."""
    answers: list[Answer] = [check(ask(number)) for number in range(seeds)]
    failed = [number for number, answer in enumerate(answers) if answer.state != "pass"]
    if failed:
        raise SystemExit(f"{check.__name__} fails for the seeds {failed[:10]}")
    return max(float(answer.numerics[key]) for answer in answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    figures = {
        "seeds": options.seeds,
        "limit": LAYER_LIMIT,
        "batch_norm_largest_error": largest(batch_norm, "max_error", options.seeds),
        "training_step_largest_drift": largest(training_step, "max_error", options.seeds),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    publish(figures, options.output)


if __name__ == "__main__":
    main()
