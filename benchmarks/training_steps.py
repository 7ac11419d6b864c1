"""Training steps of torchvision's models on random images, in pairs of native and bypass.

Run it on an otherwise idle machine::

    python benchmarks/training_steps.py mobilenet_v2 regnet_y_400mf

torchvision is not a dependency of rocmprobe. Install the version for your torch.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from bypass import BATCH, WORKSPACE_MB, processor
from figures import publish

from rocmprobe import bypass


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
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    steps = [training_steps(name, device, arguments.rounds) for name in arguments.models]
    heading = {"device": processor(device), "threads": torch.get_num_threads(), "torch": torch.__version__}
    publish({**heading, "rounds": arguments.rounds, "steps": steps}, arguments.output)


if __name__ == "__main__":
    main()
