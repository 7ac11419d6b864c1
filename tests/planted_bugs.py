"""Bugs that make the results of a convolution wrong, and problems that trigger them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocmprobe.model.problems import DTYPES, SHORT_DTYPES, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS

_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class PlantedBug:
    """A bug that makes the results of a convolution wrong.

    ``filter`` (e.g. "3x3") and ``tokens`` (e.g. "p1") are parts of the name of a problem that triggers the
    bug.
    """

    name: str
    summary: str
    directions: tuple[str, ...] = DIRECTIONS
    dtypes: tuple[str, ...] = tuple(DTYPES.values())
    filter: str = "3x3"
    tokens: tuple[str, ...] = ()
    source: str = ""


_BUGS = (
    PlantedBug("doubled-channel", "the first channel of the result is twice the correct value"),
    PlantedBug(
        "lost-term",
        "every sum lacks one product: the last tap of the last channel (in the gradient of the weights: the "
        "last position of the last sample)",
    ),
    PlantedBug("zeroed-row", "the last channel (in the gradient of the weights: the last filter) is zero"),
    PlantedBug("doubled-tile", "16 neighbouring elements in the middle are twice the correct values"),
    PlantedBug(
        "wrong-padding-edge", "the padding before the first pixel has that pixel's value instead of zero",
        tokens=("p1",),
    ),
    PlantedBug(
        "swapped-dilation", "the dilations of the axes are used in reverse order", tokens=("d1x2",),
    ),
    PlantedBug(
        "stale-buffer", "from the second call on, the result is that of the previous call of the same shape",
        source="https://github.com/ROCm/MIOpen/pull/3377: kernels that do not write all of their result",
    ),
    PlantedBug(
        "uncleared-result", "the sums are added to the result of the previous call with the same shape",
        source="https://github.com/ROCm/MIOpen/pull/1104: atomic additions to weights that were not cleared",
    ),
    PlantedBug("untouched-output", "nothing is written: the result is the old content of its memory"),
    PlantedBug(
        "unwritten-gaps", "pixels that no tap reaches are not set to 0: they contain 1",
        directions=("bwd-data",), filter="1x1", tokens=("s2",),
        source="https://github.com/ROCm/composable_kernel/pull/132: bwd-data of 1x1 with stride 2",
    ),
    PlantedBug(
        "half-accumulation", "the running sum is rounded to the dtype after every product", dtypes=_HALVES,
    ),
    PlantedBug(
        "reduced-precision",
        "operands are rounded before they are multiplied: fp64 to fp32, fp32 to TF32, fp16 to bf16",
        dtypes=("float64", "float32", "float16"),
        source="https://pytorch.org/docs/stable/notes/numerical_accuracy.html: bf16 for fp16 on MI200",
    ),
    PlantedBug("random-element", "one random element is off by the root mean square of the result"),
    PlantedBug("nan-lane", "the middle element is NaN"),
    PlantedBug(
        "bias-gradient", "the gradient of the bias leaves out the last position of the last sample",
        directions=("bwd-weights",), tokens=("bias",),
    ),
    PlantedBug(
        "transposed-weights",
        "two axes of the last group's weights are swapped: the input and output channels if both axes have "
        "the same size, else the last two axes of the filter",
        tokens=("g2",),
    ),
    PlantedBug(
        "mixed-up-layout", "an operand in channels-last order is read as if it were in channels-first",
        tokens=("nhwc",),
        source="https://github.com/ROCm/MIOpen/issues/2860: NHWC read as NCHW",
    ),
)  # fmt: skip
BUGS: Mapping[str, PlantedBug] = {bug.name: bug for bug in _BUGS}


def problem_with(bug: PlantedBug, dtype: str, direction: str, terms: int) -> Problem:
    """Return a small 2-d problem that triggers the bug in ``direction``.

    Each element of the result is a sum of ``terms`` products. ``terms`` must be a multiple of the number of
    filter taps.
    """
    groups = 2 if "g2" in bug.tokens else 1
    taps = 9 if bug.filter == "3x3" else 1
    # Use different numbers of input and output channels, so that swapping the two gives another shape.
    channels = {"c": 4 * groups, "k": 6 * groups}
    batch, side = 2, 4
    if direction == "bwd-weights":
        # A few large images cost less than many small images.
        side = next(side for side in range(48, 0, -1) if terms % (side * side) == 0)
        batch = terms // (side * side)
    else:
        channels["c" if direction == "fwd" else "k"] = terms // taps * groups
    size = "x".join(str(_image(side, taps > 1, bug.tokens, axis)) for axis in range(2))
    parts = [
        "conv2d", SHORT_DTYPES[dtype], f"n{batch}", f"c{channels['c']}", f"i{size}", f"k{channels['k']}",
        f"f{bug.filter}", *bug.tokens,
    ]  # fmt: skip
    return parse_problem("-".join(parts))


def _image(side: int, wide: bool, tokens: tuple[str, ...], axis: int) -> int:
    """Return the size of the input along ``axis`` for which the size of the output is ``side``."""
    stride, padding = 2 if "s2" in tokens else 1, 1 if "p1" in tokens else 0
    dilation = 2 if "d1x2" in tokens and axis == 1 else 1
    # At stride 2, the size includes a last pixel that the filter does not reach.
    return side * stride + 2 * dilation * wide - 2 * padding
