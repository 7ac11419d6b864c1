"""Every algorithm of the bypass in every direction that it computes, against native: what wins where.

Each one takes its turns in an order that is shuffled anew in every round; figures are the least of the
rounds. Give it a machine that does nothing else::

    python benchmarks/bypass_directions.py -o benchmarks/results/bypass_directions_cpu.json
    python benchmarks/bypass_directions.py --networks grouped --models mobilenet_v2 regnet_y_400mf

``--models`` also compares training steps of torchvision's models, in pairs of native and bypass. torchvision
is not a dependency of rocmprobe: install the version for your torch.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from bypass import BATCH, WORKSPACE_MB, Bench, processor
from figures import publish
from networks import network_problems

from rocmprobe import bypass
from rocmprobe.bypass import ALGORITHMS

#: What takes so many times the quickest in its first turn has no other one.
HOPELESS = 4


def directions(bench: Bench, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds by direction and by "native" or the algorithm."""
    found = {}
    for direction, call in bench.calls().items():
        plans = bypass.explain(bench.problem, bench.device, WORKSPACE_MB, "fast")[direction].alternatives
        names = ["native", *(plan.algorithm for plan in plans)]
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(rounds + 1):
            random.shuffle(names)
            for name in names:
                times[name].append(_seconds(bench, name, call))
            least = min(min(some) for some in times.values())
            names = [name for name in names if min(times[name]) < HOPELESS * least or name == "native"]
        found[direction] = {name: min(some[1:] or some) for name, some in times.items()}
    return found


def _seconds(bench: Bench, name: str, call: Callable[[], Any]) -> float:
    context = nullcontext() if name == "native" else bypass.enabled(bench.device, WORKSPACE_MB, name)
    with torch.no_grad(), context:
        return bench.seconds(call)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    wins: Counter[str] = Counter()
    wins_of_all: Counter[str] = Counter()
    best, best_of_all, modelled = [], [], []
    for row in rows:
        for direction, seconds in row["seconds"].items():
            native = seconds["native"]
            ours = {name: some for name, some in seconds.items() if name != "native"}
            exact = {name: some for name, some in ours.items() if ALGORITHMS[name].exact}
            wins[min(exact, key=lambda name, ours=ours: ours[name])] += 1
            wins_of_all[min(ours, key=lambda name, ours=ours: ours[name])] += 1
            best.append(min(exact.values()) / native)
            best_of_all.append(min(ours.values()) / native)
            modelled.append(exact[row["modelled"][direction]] / native)
    return {
        "directions": len(best),
        "times native, geometric means": {
            "the quickest that sums plain products": statistics.geometric_mean(best),
            "the quickest of all": statistics.geometric_mean(best_of_all),
            "the one that the cost model takes": statistics.geometric_mean(modelled),
        },
        "quickest that sums plain products": dict(wins.most_common()),
        "quickest of all": dict(wins_of_all.most_common()),
    }


def training_steps(name: str, device: torch.device, rounds: int) -> dict[str, Any]:
    """Compare steps of SGD on random 224x224 images, each native step with the bypass step after it.

    Raises:
        SystemExit: if torchvision is missing or does not fit this torch.
    """
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:
        raise SystemExit(f"--models needs torchvision for torch {torch.__version__}: {error}") from None
    torch.manual_seed(0)
    model = models.get_model(name, num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images = torch.randn(BATCH, 3, 224, 224, device=device)
    labels = torch.randint(10, (BATCH,), device=device)

    def seconds() -> float:
        started = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    pairs = []
    for _ in range(rounds + 2):
        native = seconds()
        with bypass.enabled(device, WORKSPACE_MB):
            pairs.append((native, seconds()))
    # The first steps choose the algorithms.
    pairs = pairs[2:]
    return {
        "model": name, "native seconds": statistics.median(native for native, _ in pairs),
        "times native, median": statistics.median(ours / native for native, ours in pairs),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="*", default=[])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    random.seed(0)
    steps = [training_steps(name, device, arguments.rounds) for name in arguments.models]
    rows = []
    for network, problem in network_problems(device.type, tuple(arguments.networks), BATCH):
        explained = bypass.explain(problem, device, WORKSPACE_MB)
        rows.append(
            {
                "network": network, "problem": problem.text,
                "modelled": {name: each.alternatives[0].algorithm for name, each in explained.items()},
                "seconds": directions(Bench(problem, device), arguments.rounds),
            }
        )  # fmt: skip
        print(problem.text, flush=True)
    heading = {"device": processor(device), "threads": torch.get_num_threads(), "torch": torch.__version__}
    figures = {"summary": summary(rows), "steps": steps, "rows": rows}
    publish({**heading, "rounds": arguments.rounds, **figures}, arguments.output)


if __name__ == "__main__":
    main()
