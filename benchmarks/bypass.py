"""Benchmark of the bypass against native convolution, the vendor library switched off, and unfold.

The variant "unfold" is what one writes by hand: the columns of the whole batch, and one batched product.
Every round runs the variants in a new random order, so that other load affects all of them. Figures are
medians.
Run it on an otherwise idle machine (about ten minutes on two cores)::

    python benchmarks/bypass.py -o benchmarks/results/bypass.md
    python benchmarks/bypass.py --calls  # only the cost of a call in Python
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from figures import heading, publish, table
from torch.utils._python_dispatch import TorchDispatchMode

from rocmprobe import bypass
from rocmprobe.backends import BACKENDS
from rocmprobe.bypass import dispatch, registration
from rocmprobe.model.problems import Problem, parse_problem

ROUNDS = 9
#: Problems by network. The last row has problems whose time is mostly the call.
PROBLEMS = {
    "ResNet-50": (
        "n1-c3-i224x224-k64-f7x7-s2-p3", "n8-c64-i56x56-k64-f3x3-p1", "n8-c256-i56x56-k128-f1x1",
        "n8-c128-i56x56-k128-f3x3-s2-p1", "n8-c512-i28x28-k1024-f1x1-s2", "n32-c512-i7x7-k512-f3x3-p1",
    ),
    "ResNeXt-50 32x4d": ("n8-c128-i56x56-k128-f3x3-p1-g32", "n8-c512-i14x14-k512-f3x3-p1-g32"),
    "ResNeXt-101 32x8d": ("n1-c256-i56x56-k256-f3x3-p1-g32", "n8-c1024-i14x14-k1024-f3x3-p1-g32"),
    "MobileNetV2": (
        "n8-c32-i112x112-k32-f3x3-p1-g32", "n8-c144-i56x56-k144-f3x3-s2-p1-g144",
        "n32-c576-i14x14-k576-f3x3-p1-g576",
    ),
    "EfficientNet": ("n8-c240-i28x28-k240-f5x5-s2-p2-g240", "n8-c672-i14x14-k672-f5x5-p2-g672"),
    "ConvNeXt": (
        "n8-c96-i56x56-k96-f7x7-p3-g96", "n8-c384-i14x14-k384-f7x7-p3-g384", "n8-c3-i224x224-k96-f4x4-s4",
    ),
    "U-Net": (
        "n1-c64-i256x256-k64-f3x3-p1", "n1-c256-i64x64-k256-f3x3-p1", "n1-c512-i32x32-k512-f3x3-p1",
        "n1-c128-i128x128-k64-f3x3-p1",
    ),
    "YOLOv8n": (
        "n1-c3-i640x640-k16-f3x3-s2-p1", "n1-c16-i160x160-k16-f3x3-p1", "n8-c64-i40x40-k64-f3x3-p1",
        "n8-c128-i20x20-k256-f3x3-s2-p1",
    ),
    "video": ("3d n1-c3-i16x56x56-k64-f3x7x7-s1x2x2-p1x3x3", "3d n1-c64-i8x28x28-k64-f3x3x3-p1"),
    "audio": ("1d n8-c1-i16000-k64-f80-s4", "1d n8-c64-i4000-k128-f3-p1"),
    "transposed": (
        "t n8-c64-i14x14-k64-f4x4-s2-p1", "t n1-c256-i32x32-k128-f2x2-s2", "t n8-c32-i28x28-k32-f3x3-p1",
    ),
    "dilated": ("n1-c256-i32x32-k256-f3x3-p2-d2", "n1-c64-i64x64-k64-f3x3-p4-d4"),
    "tiny": (
        "n1-c8-i12x12-k8-f3x3-p1", "n1-c16-i8x8-k16-f1x1", "n1-c16-i8x8-k16-f3x3-p1-g16",
        "n8-c4-i6x6-k4-f3x3-p1", "n1-c2-i4x4-k2-f3x3-s2-p1",
    ),
}  # fmt: skip

Convolve = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Variant = tuple[Convolve, Callable[[], AbstractContextManager[Any]]]


def problems() -> Iterator[tuple[str, Problem]]:
    """Yield network and fp32 problem."""
    for network, texts in PROBLEMS.items():
        for text in texts:
            kind, _, sizes = text.rpartition(" ")
            name = {"t": "conv_transpose2d"}.get(kind, f"conv{kind or '2d'}")
            batch, _, rest = sizes.partition("-")
            yield network, parse_problem(f"{name}-fp32-{batch}-{rest}")


def native(problem: Problem) -> Convolve:
    options = {
        "stride": problem.stride, "padding": problem.padding, "dilation": problem.dilation,
        "groups": problem.groups,
    }  # fmt: skip
    return partial(getattr(F, problem.kind), **options)


def unfold(problem: Problem) -> Convolve:
    """Return a function that convolves by the columns of the whole batch and one batched product."""
    groups, batch, taps = problem.groups, problem.batch, math.prod(problem.kernel)
    output = (batch, problem.out_channels, *problem.output_size)

    def columns(input: torch.Tensor) -> torch.Tensor:
        """Return ``(batch, groups, depth, windows)``."""
        if problem.rank == 2:
            found = F.unfold(input, problem.kernel, problem.dilation, problem.padding, problem.stride)
        else:
            found = F.pad(input, [side for p in reversed(problem.padding) for side in (p, p)])
            for dimension, (k, s) in enumerate(zip(problem.kernel, problem.stride), 2):
                found = found.unfold(dimension, k, s)
            ranks = range(2, 2 + problem.rank)
            found = found.permute(0, 1, *(each + problem.rank for each in ranks), *ranks)
        return found.reshape(batch, groups, problem.in_channels // groups * taps, -1)

    def convolve(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        filters = weight.view(groups, problem.out_channels // groups, -1)
        return (filters @ columns(input)).view(output)

    def convolve_transposed(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        filters = weight.view(groups, problem.in_channels // groups, -1).transpose(1, 2)
        positions = input.view(batch, groups, problem.in_channels // groups, -1)
        window = (problem.kernel, problem.dilation, problem.padding, problem.stride)
        return F.fold((filters @ positions).flatten(1, 2), problem.output_size, *window)

    return convolve_transposed if problem.transposed else convolve


class Bench:
    """One problem on one device, with its operands in fp32."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        self.problem = problem
        self.device = device
        self.backend = BACKENDS["cudnn" if device.type == "cuda" else "onednn"]
        torch.manual_seed(0)
        self.input = torch.randn(problem.input_shape, device=device).requires_grad_()
        self.weight = torch.randn(problem.weight_shape, device=device).requires_grad_()
        self.gradient = torch.randn(problem.output_shape, device=device)

    def variants(self) -> dict[str, Variant]:
        plain = native(self.problem)
        return {
            "native": (plain, nullcontext),
            "off": (plain, self.backend.vendor_library_off),
            "unfold": (unfold(self.problem), nullcontext),
            "bypass": (plain, partial(installed, self.device)),
        }

    def forward(self, convolve: Convolve) -> None:
        with torch.no_grad():
            convolve(self.input, self.weight)

    def training(self, convolve: Convolve) -> None:
        torch.autograd.grad(convolve(self.input, self.weight), (self.input, self.weight), self.gradient)

    def seconds(self, call: Callable[[], Any]) -> float:
        self.backend.synchronize(str(self.device))
        started = time.perf_counter()
        call()
        self.backend.synchronize(str(self.device))
        return time.perf_counter() - started

    def timings(self) -> dict[str, dict[str, float]]:
        """Return the median seconds of each variant, "forward" and "training"."""
        variants = self.variants()
        expected = None
        for convolve, context in variants.values():
            with context():
                output = convolve(self.input, self.weight).detach()
                expected = output if expected is None else expected
                torch.testing.assert_close(output, expected, rtol=1e-3, atol=1e-3)
                for _ in range(2):
                    self.training(convolve)
                    self.forward(convolve)
        # A short call is repeated, because the clock and other processes would disturb a single call.
        repeats = max(1, int(0.002 / self.seconds(lambda: self.forward(variants["unfold"][0]))))
        times: dict[str, dict[str, list[float]]] = {
            name: {"forward": [], "training": []} for name in variants
        }
        names = list(variants)
        for _ in range(ROUNDS):
            random.shuffle(names)
            for name in names:
                convolve, context = variants[name]
                with context():
                    for kind, run in (("forward", self.forward), ("training", self.training)):

                        def call(
                            run: Callable[[Convolve], None] = run, convolve: Convolve = convolve
                        ) -> None:
                            for _ in range(repeats):
                                run(convolve)

                        times[name][kind].append(self.seconds(call) / repeats)
        return {
            name: {kind: statistics.median(values) for kind, values in each.items()}
            for name, each in times.items()
        }

    def peaks(self) -> dict[str, int]:
        """Return the peak bytes of training above the operands, by variant."""
        found = {}
        for name, (convolve, context) in self.variants().items():
            with context():
                self.training(convolve)
                with self.backend.meter(str(self.device)) as meter:
                    self.training(convolve)
            found[name] = meter.peak_bytes
        return found


@contextmanager
def installed(device: torch.device, algorithm: str = "auto") -> Iterator[None]:
    bypass.install(device, algorithm=algorithm)
    try:
        yield
    finally:
        bypass.uninstall(device)


def measured(device: torch.device) -> list[dict[str, Any]]:
    """Return the figures of each problem with one and two threads, and print the ratios."""
    rows = []
    for network, problem in problems():
        for threads in (1, 2) if device.type == "cpu" else (torch.get_num_threads(),):
            torch.set_num_threads(threads)
            bench = Bench(problem, device)
            row = {
                "network": network, "problem": problem.text, "threads": threads,
                "seconds": bench.timings(), "peak": bench.peaks(),
            }  # fmt: skip
            rows.append(row)
            ratios = (f"{ratio(row, kind, 'unfold'):.2f}" for kind in ("forward", "training"))
            print(problem.text, threads, *ratios, file=sys.stderr, flush=True)
    return rows


def ratio(row: Mapping[str, Any], kind: str, other: str) -> float:
    """Return the time of the bypass as a multiple of another variant's."""
    return float(row["seconds"]["bypass"][kind] / row["seconds"][other][kind])


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the mean ratios, the problems above the limits, and the memory."""
    kinds, others = ("forward", "training"), ("unfold", "off", "native")
    yield from ("Time of the bypass as a multiple of another variant's, geometric means:", "")
    groups = {"all": list(rows)}
    for row in rows:
        groups.setdefault(row["network"], []).append(row)
    yield from table(
        ("problems", *(f"{kind} / {other}" for other in others for kind in kinds)),
        (
            (
                f"{name} ({len({row['problem'] for row in group})})",
                *(
                    f"{statistics.geometric_mean(ratio(row, kind, other) for row in group):.2f}"
                    for other in others
                    for kind in kinds
                ),
            )
            for name, group in groups.items()
        ),
    )
    slower = [
        f"  - `{row['problem']}`, {row['threads']} threads, {kind}: {ratio(row, kind, 'unfold'):.2f}"
        for row in rows
        for kind in kinds
        if ratio(row, kind, "unfold") > 1.05
    ]
    larger = [row for row in rows if row["peak"]["bypass"] > 1.1 * row["peak"]["native"]]
    most = max(row["peak"]["bypass"] - row["peak"]["native"] for row in rows)
    yield from (
        "",
        "- native: PyTorch's convolution. off: the vendor library switched off. unfold: columns of the whole "
        "batch and one batched product.",
        f"- Peak memory of training more than 10 % above native's: {len(larger)} of {len(rows)}. "
        f"Largest difference: {most / (1 << 20):.0f} MiB.",
        f"- More than 1.05 times the time of unfold: {len(slower)} of {2 * len(rows)}.",
        *slower,
    )


class Recording(TorchDispatchMode):
    """Recorder of the operators that run below."""

    def __init__(self, operators: list[tuple[Any, Any, Any]]) -> None:
        super().__init__()
        self._operators = operators

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._operators.append((function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))


class Recorder(dispatch.Interceptor):
    """Interceptor that records the operators inside convolutions."""

    name = "recorder"
    rank = 3

    def __init__(self) -> None:
        self.operators: list[tuple[Any, Any, Any]] = []

    def convolution(self, call: Any, proceed: Callable[[Any], Any]) -> Any:
        with Recording(self.operators):
            return proceed(call)

    convolution_backward = convolution


def call_costs() -> Iterator[Sequence[str]]:
    """Yield what a small call costs: algorithm, direction, functions, operators, microseconds above them."""
    os.environ["ROCMPROBE_BYPASS_MEASURE"] = "0"
    torch.set_num_threads(1)
    for algorithm, text in {
        "pointwise": "n1-c2-i4x4-k2-f1x1", "im2col": "n1-c2-i4x4-k2-f3x3-p1",
        "slow_conv2d": "n1-c2-i4x4-k2-f3x3-p1", "native": "n1-c2-i4x4-k2-f3x3-p1",
    }.items():  # fmt: skip
        bench = Bench(parse_problem(f"conv2d-fp32-{text}"), torch.device("cpu"))
        input, weight = bench.input.detach(), bench.weight.detach()
        settings = ([1, 1], list(bench.problem.padding), [1, 1], False, [0, 0], 1)
        forward = partial(torch.ops.aten.convolution, input, weight, None, *settings)
        backward = partial(
            torch.ops.aten.convolution_backward, bench.gradient, input, weight, None, *settings
        )
        for direction, call in {
            "fwd": forward, "bwd-data": partial(backward, [True, False, False]),
            "bwd-weights": partial(backward, [False, True, False]),
        }.items():  # fmt: skip
            with nullcontext() if algorithm == "native" else installed(torch.device("cpu"), algorithm):
                call()
                recorder = Recorder()
                if algorithm != "native":
                    registration.add_interceptor(recorder, "cpu")
                    call()
                    registration.remove_interceptor(recorder, "cpu")
                whole, below = shortest(call), shortest(partial(replayed, recorder.operators))
                yield (
                    algorithm, direction, str(functions_in(call)), str(len(recorder.operators)),
                    f"{whole:.0f}", f"{whole - below:.0f}",
                )  # fmt: skip


def replayed(operators: Sequence[tuple[Any, Any, Any]]) -> None:
    for function, args, kwargs in operators:
        function(*args, **kwargs)


def shortest(call: Callable[[], Any]) -> float:
    """Return the microseconds of a call: the least of 30 means over 200 calls."""
    means = []
    for _ in range(30):
        started = time.perf_counter()
        for _ in range(200):
            call()
        means.append((time.perf_counter() - started) / 200)
    return 1e6 * min(means)


def functions_in(call: Callable[[], Any]) -> int:
    """Return the number of Python functions that a call enters."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    call()
    sys.setprofile(None)
    return count


def calls_table() -> Iterator[str]:
    yield from ("Cost of a call on a CPU, 4x4 pixels, one thread:", "")
    head = ("algorithm", "direction", "Python functions", "operators", "us", "us above the operators")
    yield from table(head, call_costs(), texts=2)
    yield from (
        "",
        "The operators are recorded once, and timed by calling them again in a loop. A difference below zero "
        "means that the recorded calls take longer than the calls of the bypass.",
    )


def figures_of(row: Mapping[str, Any]) -> Sequence[str]:
    kinds = ("forward", "training")
    times = (f"{1e3 * row['seconds']['bypass'][kind]:.2f}" for kind in kinds)
    ratios = (
        ", ".join(f"{ratio(row, kind, other):.2f}" for kind in kinds) for other in ("unfold", "off", "native")
    )
    peaks = (f"{row['peak'][name] / (1 << 20):.1f}" for name in ("bypass", "native"))
    return (f"`{row['problem']}`", str(row["threads"]), ", ".join(times), *ratios, " / ".join(peaks))


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--calls", action="store_true", help="only the cost of a call in Python")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args(words)
    if arguments.calls:
        publish(
            [*heading("Calls of the bypass", "python benchmarks/bypass.py --calls"), *calls_table()],
            arguments.output,
        )
        return
    random.seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows = measured(torch.device(arguments.device))
    lines = [
        *heading("The bypass", f"python benchmarks/bypass.py --device {arguments.device}"),
        f"{len({row['problem'] for row in rows})} convolutions in fp32, medians of {ROUNDS}.",
        "",
        *summary(rows),
        "",
        *calls_table(),
        "",
        "Each problem: milliseconds of the bypass, and multiples of the others' times (forward, training).",
        "",
        *table(
            ("problem", "threads", "ms", "/ unfold", "/ off", "/ native", "peak MiB, bypass / native"),
            map(figures_of, rows),
        ),
    ]
    publish(lines, arguments.output)


if __name__ == "__main__":
    main()
