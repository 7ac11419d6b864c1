"""Benchmark of the bypass against native convolution, the vendor library switched off, and im2col.

The im2col patch is the usual one: ``F.unfold`` of the whole batch and a product, with a loop over groups.
Every round runs the variants in a new random order, so that other load affects all variants. Figures are
medians. Run it on an otherwise idle machine::

    python benchmarks/bypass.py -o benchmarks/results/bypass.md
"""

from __future__ import annotations

import argparse
import math
import random
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Callable

import torch
import torch.nn.functional as F
from figures import heading, publish, table

from rocmprobe import bypass
from rocmprobe.backends import BACKENDS
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS
from rocmprobe.text.tables import toml

BATCH = 4
WORKSPACE_MB = 256
#: Algorithms that are a matrix product of the problem's own sizes. Their rate is compared with torch.mm.
GEMM_BASED = ("pointwise", "im2col", "shift", "col2im", "aten")
#: A variant slower than this many times native runs in fewer rounds.
SLOW = 20
#: The form of a convolution in ``networks.toml``.
FORM = re.compile(r"(\d+)x(\d+)([kt])(\d+)(?:s(\d+))?(?:g(\d+))?@(\d+)")
#: Ratios of the summary: the variant and what it is compared with.
RATIOS = (
    ("bypass", "native"), ("naive", "native"), ("off", "native"), ("naive", "bypass"), ("off", "bypass"),
    ("compiled", "bypass"),
)  # fmt: skip

Convolve = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Variant = tuple[Convolve, Callable[[], AbstractContextManager[Any]]]


def network_problems(device_type: str, names: Sequence[str]) -> Iterator[tuple[str, Problem]]:
    """Yield network and fp32 problem, each problem once, with the first network that has it.

    The sides are those of the device type. Raise SystemExit for an unknown network.
    """
    networks = toml(Path(__file__).with_name("networks.toml").read_text("utf-8"))["network"]
    unknown = set(names) - {row["name"] for row in networks}
    if unknown:
        known = ", ".join(row["name"] for row in networks)
        raise SystemExit(f"no network {', '.join(unknown)}; there are {known}")
    seen = set()
    for row in networks:
        if names and row["name"] not in names:
            continue
        shrink = row["image"] // row["cpu"] if device_type == "cpu" else 1
        for word in row["problems"].split():
            problem = parse_problem(problem_text(word, shrink))
            if problem.text not in seen:
                seen.add(problem.text)
                yield row["name"], problem


def problem_text(word: str, shrink: int) -> str:
    match = FORM.fullmatch(word)
    assert match is not None, word
    channels, filters, form, kernel, stride, groups, side = match.groups()
    kind = "conv2d" if form == "k" else "conv_transpose2d"
    size = int(side) // shrink
    text = f"{kind}-fp32-n{BATCH}-c{channels}-i{size}x{size}-k{filters}-f{kernel}x{kernel}"
    if stride:
        text += f"-s{stride}"
    if form == "k" and int(kernel) > 1:
        text += f"-p{int(kernel) // 2}"
    return text + (f"-g{groups}" if groups else "")


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


def measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the figures of each problem, and print its times."""
    device = torch.device(arguments.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    random.seed(0)
    rows = []
    for network, problem in network_problems(device.type, arguments.networks):
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
        print(problem.text, *times_of(row), flush=True)
    return rows


def times_of(row: Mapping[str, Any]) -> list[str]:
    """Return native's milliseconds, and the times of the other variants as multiples of it."""
    seconds = {name: times["fwd_bwd"] for name, times in row["seconds"].items() if name != "compilation"}
    native = seconds.pop("native")
    return [f"{1e3 * native:.2f}", *(f"{each / native:.2f}" for each in seconds.values())]


def mean_ratio(rows: Sequence[Mapping[str, Any]], kind: str, over: str, under: str) -> str:
    """Return the geometric mean of the time ratio over ``rows``."""
    ratios = [row["seconds"][over][kind] / row["seconds"][under][kind] for row in rows]
    return f"{statistics.geometric_mean(ratios):.2f}"


def summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the ratios of all problems and of each network, the rate of the products, and the memory."""
    ratios = [(over, under) for over, under in RATIOS if over in rows[0]["seconds"]]
    groups = {"all": rows}
    for row in rows:
        groups[row["network"]] = [*groups.get(row["network"], ()), row]
    yield from ("Time ratios, geometric means, forward and backward (in brackets: forward):", "")
    yield from table(
        ("problems", *(f"{over} / {under}" for over, under in ratios)),
        (
            (
                f"{name} ({len(group)})",
                *(
                    f"{mean_ratio(group, 'fwd_bwd', *pair)} ({mean_ratio(group, 'fwd', *pair)})"
                    for pair in ratios
                ),
            )
            for name, group in groups.items()
        ),
    )
    shares = [each["mm"] / each["bypass"] for row in rows for each in row["gemm"].values()]
    memory = [row["memory"] for row in rows]
    other = sum(each["bypass"]["kept"] != each["native"]["kept"] for each in memory)
    peak = max(each["bypass"]["peak"] - each["native"]["peak"] for each in memory)
    yield from (
        "",
        "- native: PyTorch's convolution. off: the vendor library switched off. "
        "naive: `F.unfold` of the whole batch, a product, a loop over groups.",
        "- Share of the rate of `torch.mm` with the same m, n and k: "
        f"median {statistics.median(shares):.0%}, least {min(shares):.0%}, "
        f"below 60 % in {sum(share < 0.6 for share in shares)} of {len(shares)} directions.",
        f"- Bytes kept for backward: other than native's in {other} of {len(rows)} problems.",
        f"- Largest peak above native's: {peak / (1 << 20):.0f} MiB, of {WORKSPACE_MB} MiB allowed.",
    )
    compilations = [row["seconds"]["compilation"] for row in rows if "compilation" in row["seconds"]]
    if compilations:
        yield f"- Compilation by `torch.compile`: {statistics.median(compilations):.1f} s (median)."


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--compile", action="store_true", help="a column for torch.compile of the bypass")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args(words)
    rows = measured(arguments)
    names = [name for name in rows[0]["seconds"] if name not in ("native", "compilation")]
    command = f"python benchmarks/bypass.py --device {arguments.device} --rounds {arguments.rounds}"
    lines = [
        *heading("The bypass", command),
        f"Convolutions of `networks.toml` in fp32, batch {BATCH}, {torch.get_num_threads()} threads.",
        *summary(rows),
        "",
        "Each problem: native's time for forward and backward, and multiples of it.",
        "",
        *table(
            ("problem", *DIRECTIONS, "native, ms", *names),
            (
                (row["problem"], *(row["algorithms"][each] for each in DIRECTIONS), *times_of(row))
                for row in rows
            ),
            texts=1 + len(DIRECTIONS),
        ),
    ]
    publish(lines, arguments.output)


if __name__ == "__main__":
    main()
