"""Deviation of correct and faulty trainings of the small networks from fp64, as the basis of their limits.

The benchmark trains every network on this CPU from many seeds with oneDNN, without it and with the bypass,
and writes the largest deviations by dtype. Then it trains once for each planted fault, in fp32 and from the
checks' own seed. The fault is in one convolution at a time, of which the smallest deviations are written, and
then in all convolutions::

    python benchmarks/model_limits.py --seeds 30 -o benchmarks/results/model_limits.json
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import torch
from figures import publish
from torch import nn

from rocmprobe import bypass
from rocmprobe.backends import BACKENDS
from rocmprobe.bypass import dispatch, registration
from rocmprobe.checks.networks import training
from rocmprobe.checks.networks.catalogue import NETWORKS
from rocmprobe.checks.networks.precision import Precision, autocast, plain

MEASURES = ("losses", "gradients", "ways")
WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "oneDNN": nullcontext,
    "PyTorch's own": BACKENDS["onednn"].vendor_library_off,
    "bypass": lambda: bypass.enabled("cpu"),
}
DTYPES: dict[str, Callable[[], Precision]] = {
    "float32": lambda: plain(torch.float32),
    "float16": lambda: autocast("cpu", torch.float16),
    "bfloat16": lambda: autocast("cpu", torch.bfloat16),
}


class Planted(dispatch.Interceptor):
    """A fault in a convolution of every forward pass.

    ``nth`` is its position among the ``count`` convolutions that can have the fault. If ``nth`` is None, all
    of them have the fault.
    """

    name = "planted"

    def __init__(self, kind: str, nth: Optional[int], count: int) -> None:
        self.kind, self.nth, self.count = kind, nth, count
        self.seen = 0

    def convolution(self, call: Any, proceed: Any) -> Any:
        has_taps = call.weight.shape[-1] > 1
        if self.kind == "zeroes a bias gradient" or (self.kind == "drops a tap" and not has_taps):
            return proceed(call)
        position = self.seen % self.count
        self.seen += 1
        if self.nth not in (None, position):
            return proceed(call)
        if self.kind == "drops a tap":
            weight = call.weight.clone()
            weight[..., 0, 0] = 0
            return proceed(replace(call, weight=weight))
        output = proceed(call).clone()
        output[:, 0] *= 2
        return output

    def convolution_backward(self, call: Any, proceed: Any) -> Any:
        data, weight, bias = proceed(call)
        if self.kind == "zeroes a bias gradient" and bias is not None:
            bias = torch.zeros_like(bias)
        return data, weight, bias


def deviations(name: str, seed: int, precision: Precision) -> dict[str, float]:
    trainer = training.Trainer(name, "cpu", precision, training.BATCH, seed)
    for _ in range(training.STEPS):
        trainer.step()
    found = training.deviation(trainer.trained(), training.reference(name, seed))
    return {measure: getattr(found, measure) for measure in MEASURES}


def most(found: Iterable[dict[str, float]], pick: Callable[[Iterable[float]], float]) -> dict[str, float]:
    rows = list(found)
    return {measure: pick([row[measure] for row in rows]) for measure in MEASURES}


def right(name: str, dtype: str, seeds: int) -> dict[str, float]:
    """Return the largest deviations over all seeds and ways of convolution."""
    found = []
    for way, context in WAYS.items():
        if (name, dtype, way) in (("lstm", "float16", "oneDNN"), ("lstm", "float16", "bypass")):
            # oneDNN does not support this on every CPU.
            continue
        for seed in range(seeds):
            with context():
                found.append(deviations(name, seed, DTYPES[dtype]()))
    return most(found, max)


def faulty(name: str) -> dict[str, Any]:
    """Return the smallest deviations with a fault in one convolution, and the deviations with a fault in
    all."""
    network = NETWORKS[name].build()
    layers = [each for each in network.modules() if isinstance(each, (nn.Conv2d, nn.ConvTranspose2d))]
    suffer = {
        "doubles a channel": len(layers),
        "drops a tap": sum(layer.kernel_size[0] > 1 for layer in layers),
    }
    found: dict[str, Any] = {}
    for kind, count in suffer.items():
        ones = [with_fault(name, Planted(kind, nth, count)) for nth in range(count)]
        found[kind] = {"in one": most(ones, min), "in all": with_fault(name, Planted(kind, None, count))}
    if any(layer.bias is not None for layer in layers):
        kind = "zeroes a bias gradient"
        found[kind] = {"in all": with_fault(name, Planted(kind, None, len(layers)))}
    return found


def with_fault(name: str, layer: dispatch.Interceptor) -> dict[str, float]:
    # The reference is cached here, so that the fault does not affect the reference.
    training.reference(name, training.SEED)
    registration.add_interceptor(layer, "cpu")
    try:
        return deviations(name, training.SEED, DTYPES["float32"]())
    finally:
        registration.remove_interceptor(layer, "cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    figures = {
        "seeds": options.seeds,
        "right": {name: {dtype: right(name, dtype, options.seeds) for dtype in DTYPES} for name in NETWORKS},
        "faulty": {name: faulty(name) for name in NETWORKS if name != "lstm"},
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    publish(figures, options.output)


if __name__ == "__main__":
    main()
