"""Benchmark of the bypass against native convolution, the vendor library switched off, and im2col.

The im2col patch is the usual one: ``F.unfold`` of the whole batch and a product, with a loop over groups.
Every round runs the variants in a new random order, so that other load affects all variants. Figures are
medians. Run it on an otherwise idle machine::

    python benchmarks/bypass.py --rounds 9 -o benchmarks/results/bypass_cpu.json
    python benchmarks/bypass.py --show benchmarks/results/bypass_cpu.json     # the table and the plot from it
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from bypass_shown import summary, write_plot, write_table
from networks import network_problems

from rocmprobe import bypass
from rocmprobe.backends import BACKENDS
from rocmprobe.model.problems import Problem

BATCH = 4
WORKSPACE_MB = 256
#: Algorithms that are a matrix product of the problem's own sizes. Their rate is compared with torch.mm.
GEMM_BASED = ("pointwise", "im2col", "shift", "col2im", "aten")
#: A variant slower than this many times native runs in fewer rounds.
SLOW = 20

Convolve = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Variant = tuple[Convolve, Callable[[], AbstractContextManager[Any]]]


def native(problem: Problem) -> Convolve:
    function = getattr(F, problem.kind)
    options = {"stride": problem.stride, "padding": problem.padding, "groups": problem.groups}
    return lambda input, weight: function(input, weight, **options)


def naive(problem: Problem) -> Convolve:
    """Return a function that convolves as the usual patch of ``nn.Conv2d`` does."""
    groups, size = problem.groups, problem.output_size
    window = (problem.kernel, problem.dilation, problem.padding, problem.stride)

    def convolve(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        columns = F.unfold(input, *window).chunk(groups, 1)
        filters = weight.flatten(1).chunk(groups, 0)
        outputs = [one @ some for one, some in zip(filters, columns)]
        return torch.cat(outputs, 1).view(problem.batch, -1, *size)

    def convolve_transposed(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        positions = input.flatten(2).chunk(groups, 1)
        filters = weight.flatten(1).chunk(groups, 0)
        images = [F.fold(one.t() @ some, size, *window) for one, some in zip(filters, positions)]
        return torch.cat(images, 1)

    return convolve_transposed if problem.transposed else convolve


class Bench:
    """One problem on one device, with its operands in fp32."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        self.problem = problem
        self.device = device
        self.backend = BACKENDS["cudnn" if device.type == "cuda" else "onednn"]
        generator = torch.Generator().manual_seed(0)
        shapes = (problem.input_shape, problem.weight_shape)
        output = (problem.batch, problem.out_channels, *problem.output_size)
        self.input, self.weight = (
            torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in shapes
        )
        self.gradient = torch.randn(output, generator=generator).to(device)

    def variants(self, compiled: bool) -> dict[str, Variant]:
        within = bypass.enabled
        plain = native(self.problem)
        found: dict[str, Variant] = {
            "native": (plain, nullcontext),
            "off": (plain, self.backend.vendor_library_off),
            "naive": (naive(self.problem), nullcontext),
            "bypass": (plain, lambda: within(self.device, WORKSPACE_MB)),
        }
        if compiled:
            import torch._inductor.config

            torch._dynamo.reset()
            # Caches are off, because code from an earlier run would shorten the compilation.
            torch._inductor.config.force_disable_caches = True
            traced = torch.compile(native(self.problem))
            found["compiled"] = (traced, lambda: within(self.device, WORKSPACE_MB))
        return found

    def seconds(self, call: Callable[[], Any]) -> float:
        self.wait()
        started = time.perf_counter()
        call()
        self.wait()
        return time.perf_counter() - started

    def wait(self) -> None:
        self.backend.synchronize(str(self.device))

    def forward(self, convolve: Convolve) -> None:
        with torch.no_grad():
            convolve(self.input, self.weight)

    def both(self, convolve: Convolve) -> None:
        torch.autograd.grad(convolve(self.input, self.weight), (self.input, self.weight), self.gradient)

    def timings(self, rounds: int, compiled: bool) -> dict[str, Any]:
        """Return the median seconds of each variant, "fwd" and "fwd_bwd", and the seconds of the
        compilation."""
        variants = self.variants(compiled)
        found: dict[str, Any] = {name: {"fwd": [], "fwd_bwd": []} for name in variants}
        for name, (convolve, context) in variants.items():
            with context():
                first = self.seconds(lambda convolve=convolve: self.both(convolve))
                if name == "compiled":
                    found["compilation"] = first
                # The forward pass without autograd can have a slow first call too.
                for _ in range(3):
                    self.both(convolve)
                    self.forward(convolve)
        names = list(variants)
        for number in range(rounds):
            random.shuffle(names)
            for name in names:
                convolve, context = variants[name]
                times = found[name]
                slow = number > 2 and times["fwd"] and times["fwd"][0] > SLOW * found["native"]["fwd"][0]
                if slow:
                    continue
                with context():
                    times["fwd"].append(self.seconds(lambda convolve=convolve: self.forward(convolve)))
                    times["fwd_bwd"].append(self.seconds(lambda convolve=convolve: self.both(convolve)))
        for name in names:
            found[name] = {kind: statistics.median(times) for kind, times in found[name].items()}
        return found

    def memory(self) -> dict[str, dict[str, int]]:
        """Return the bytes kept for backward and the peak above the operands, for native and for the
        bypass."""
        found = {}
        for name, (convolve, context) in self.variants(compiled=False).items():
            if name not in ("native", "bypass"):
                continue
            kept: dict[int, int] = {}

            def keep(tensor: torch.Tensor, kept: dict[int, int] = kept) -> torch.Tensor:
                kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
                return tensor

            with context(), self.backend.meter(str(self.device)) as peak:
                with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                    output = convolve(self.input, self.weight)
                torch.autograd.grad(output, (self.input, self.weight), self.gradient)
                del output
            found[name] = {"kept": sum(kept.values()), "peak": peak.peak_bytes}
        return found

    def calls(self) -> dict[str, Callable[[], Any]]:
        """Return a call for each direction by PyTorch's operator for it, without autograd."""
        problem = self.problem
        settings = (
            None, list(problem.stride), list(problem.padding), list(problem.dilation), problem.transposed,
            [0] * problem.rank, problem.groups,
        )  # fmt: skip
        input, weight = self.input.detach(), self.weight.detach()
        convolution, backward = torch.ops.aten.convolution, torch.ops.aten.convolution_backward

        def gradient_of(*mask: bool) -> Callable[[], Any]:
            return lambda: backward(self.gradient, input, weight, *settings, [*mask, False])

        return {
            "fwd": lambda: convolution(input, weight, *settings),
            "bwd-data": gradient_of(True, False),
            "bwd-weights": gradient_of(False, True),
        }

    def gemm(self, rounds: int) -> dict[str, Any]:
        """Return for each direction the time of the bypass, and of torch.mm with the same m, n and k.

        Directions whose algorithm is no matrix product are left out. Return {} for a problem with groups.
        """
        problem = self.problem
        if problem.groups > 1:
            return {}
        taps = math.prod(problem.kernel)
        sides = (problem.in_channels, problem.out_channels)
        few, many = reversed(sides) if problem.transposed else sides
        positions = math.prod(problem.input_size if problem.transposed else problem.output_size)
        depth, windows = few * taps, problem.batch * positions
        through, back = (many, depth, windows), (depth, many, windows)
        sizes = {
            "fwd": back if problem.transposed else through,
            "bwd-data": through if problem.transposed else back,
            "bwd-weights": (many, windows, depth),
        }
        calls, found = self.calls(), {}
        with torch.no_grad(), bypass.enabled(self.device, WORKSPACE_MB):
            explained = bypass.explain(problem, self.device, WORKSPACE_MB)
            for direction, (m, k, n) in sizes.items():
                if explained[direction].algorithm not in GEMM_BASED:
                    continue
                left = torch.randn(m, k, device=self.device)
                right = torch.randn(k, n, device=self.device)
                times: dict[str, list[float]] = {"bypass": [], "mm": []}
                for _ in range(max(3, rounds)):
                    times["bypass"].append(self.seconds(calls[direction]))
                    times["mm"].append(self.seconds(lambda left=left, right=right: torch.mm(left, right)))
                found[direction] = {
                    "algorithm": explained[direction].algorithm, "mkn": [m, k, n],
                    **{name: statistics.median(values[1:]) for name, values in times.items()},
                }  # fmt: skip
        return found


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(arguments.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    random.seed(0)
    rows = []
    for network, problem in network_problems(device.type, tuple(arguments.networks), BATCH):
        bench = Bench(problem, device)
        row = {
            "network": network, "problem": problem.text,
            "seconds": bench.timings(arguments.rounds, arguments.compile),
            "memory": bench.memory(), "gemm": bench.gemm(arguments.rounds),
            "algorithms": {
                direction: each.algorithm
                for direction, each in bypass.explain(problem, device, WORKSPACE_MB).items()
            },
        }  # fmt: skip
        rows.append(row)
        times = row["seconds"]
        line = " ".join(
            f"{name} {times[name]['fwd_bwd'] / times['native']['fwd_bwd']:.2f}"
            for name in times
            if name not in ("native", "compilation")
        )
        print(f"{problem.text}: native {1e3 * times['native']['fwd_bwd']:.2f} ms, {line}", flush=True)
    return {
        "device": processor(device), "threads": torch.get_num_threads(), "torch": torch.__version__,
        "rounds": arguments.rounds, "workspace_mb": WORKSPACE_MB, "summary": summary(rows), "rows": rows,
    }  # fmt: skip


def processor(device: torch.device) -> str:
    """Return the name of the GPU or the CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "CPU")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--compile", action="store_true", help="a column for torch.compile of the bypass")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--show", type=Path, help="write the table and the plot of these results again")
    arguments = parser.parse_args(words)
    if arguments.show:
        figures, output = json.loads(arguments.show.read_text("utf-8")), arguments.show
        figures["summary"] = summary(figures["rows"])
    else:
        figures, output = measured(arguments), arguments.output
    print(json.dumps(figures["summary"], indent=1))
    if output:
        output.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
        write_table(figures, output.with_suffix(".md"))
        write_plot(figures, output.with_suffix(".svg"))


if __name__ == "__main__":
    main()
