"""Check of the time that a new input size costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocmprobe.checks.check import Check, Requires
from rocmprobe.checks.tools.compare import check_errors
from rocmprobe.checks.tools.computation import uniform
from rocmprobe.checks.tools.context import CheckContext, CheckResult, deciles
from rocmprobe.model.numerics import LAYER_LIMITS

if TYPE_CHECKING:
    from torch import Tensor

#: (height, width) of the images. No other check uses these sizes, so a library cannot reuse the result of an
#: earlier search.
SIZES = tuple((17 + number, 21 + number * 7 % 24) for number in range(24))
_KNOWN = (16, 20)
#: Time limit for the first calls of all sizes, in multiples of the time for one throughput measurement, and
#: minimum number of sizes.
_MOST, _FEWEST = 10, 3
#: Number of calls with each size after the first call with this size.
_REPEATS = 3
_CHANNELS = (3, 8, 8)


def changing_sizes(context: CheckContext) -> CheckResult:
    """Time the first call and later calls of a small network for many input sizes."""
    import torch

    shapes: dict[str, tuple[int, ...]] = {
        f"filters {number}": (out, into, 3, 3)
        for number, (into, out) in enumerate(zip(_CHANNELS, _CHANNELS[1:]))
    }
    shapes["images"] = (1, _CHANNELS[0], max(h for h, _ in SIZES), max(w for _, w in SIZES))
    *weights, last = uniform(shapes, context.dtype, context.seed()).values()
    placed = context.placed(lambda: [weight.to(context.device, context.dtype) for weight in weights])

    def inputs(size: tuple[int, int]) -> Tensor:
        return last[:, :, : size[0], : size[1]].contiguous()

    def network(image: Tensor, filters: list[Tensor]) -> Tensor:
        with torch.no_grad():
            for weight in filters:
                fan_in = weight[0].numel()
                image = torch.relu(torch.nn.functional.conv2d(image, weight / fan_in**0.5, padding=1))
        return image

    def on_device(size: tuple[int, int]) -> Callable[[], Tensor]:
        image = context.placed(lambda: inputs(size).to(context.device, context.dtype))
        return lambda: network(image, placed)

    # This call starts the runtime and loads the library.
    context.first_call(on_device(_KNOWN))
    first, steady, outputs = [], [], []
    with context.measured():
        for size in SIZES:
            call = on_device(size)
            output, seconds = context.first_call(call)
            first.append(seconds)
            outputs.append(output)
            steady.append(statistics.median(context.steady_call(call)[1] for _ in range(_REPEATS)))
            if sum(first) > _MOST * context.seconds and len(first) >= _FEWEST:
                break
    answer = CheckResult(
        timings={
            "new_size": statistics.fmean(first),
            "new_size_median": statistics.median(first),
            **deciles("new_size", first),
            "new_size_max": max(first),
            "known_size": statistics.fmean(steady),
            "sizes": len(first),
        }
    )
    compared = [
        (f"{size[0]}x{size[1]}", output, network(inputs(size), weights))
        for size, output in zip(SIZES, outputs)
    ]
    return check_errors(compared, answer, LAYER_LIMITS[context.dtype_name])


CHECKS = (
    Check(
        name="changing-sizes",
        rung="conv",
        question="How much time does each new input size cost?",
        function=changing_sizes,
        requires=Requires(convolution="fwd"),
        process="measuring",
        seconds=0.7,
    ),
)
