"""A registry of faulty convolutions: bugs that the checks are run against, since each must find them all.

What a bug is and where it exists is here, what it computes in ``simulate/faulty_kernels.py``. A
fault of a simulated machine has one by name (``docs/catalogue.md``); ``planted-NAME`` is the machine with
this one alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Callable, Optional

from rocmprobe.model.problems import DTYPES, SHORT_DTYPES, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS

#: The sums over which every bug must be found: products in one element of a result.
TERMS = (27, 144, 576, 2304, 4608, 18432)
_PREFIX = "planted-"
_HALVES = ("float16", "bfloat16")


def reads(problem: Problem, axis: int, dilation: Optional[int] = None) -> frozenset[tuple[int, int, int]]:
    """(position, tap, pixel) along one spatial axis: which pixel of the image each tap of the filter meets at
    each position, padding left out. The image is the input, of a transposed convolution the output; the
    positions are those of the other side. ``dilation`` replaces the problem's own."""
    image, positions = problem.input_size[axis], problem.output_size[axis]
    if problem.transposed:
        image, positions = positions, image
    step = problem.dilation[axis] if dilation is None else dilation
    return frozenset(
        (position, tap, pixel)
        for position, tap in product(range(positions), range(problem.kernel[axis]))
        for pixel in [position * problem.stride[axis] - problem.padding[axis] + tap * step]
        if 0 <= pixel < image
    )


def clamped_axis(problem: Problem) -> Optional[int]:
    """The last spatial axis that has padding."""
    return max((axis for axis, padding in enumerate(problem.padding) if padding), default=None)


def unreached(problem: Problem, axis: int) -> frozenset[int]:
    """Pixels of the image along an axis that no tap of the filter meets."""
    image = problem.output_size if problem.transposed else problem.input_size
    return frozenset(range(image[axis])) - {pixel for _, _, pixel in reads(problem, axis)}


def square_block(problem: Problem) -> bool:
    """Whether a group has as many output channels as input channels, and more than one."""
    return problem.in_channels == problem.out_channels > problem.groups


def _axes(problem: Problem) -> range:
    return range(problem.rank)


def _multiplies(problem: Problem, direction: str) -> bool:
    """Whether anything but padding is multiplied."""
    return all(reads(problem, axis) for axis in _axes(problem))


def _has_result(problem: Problem, direction: str) -> bool:
    return _multiplies(problem, direction) or (problem.bias and direction == "fwd")


def _sums(problem: Problem, direction: str) -> bool:
    """Whether some element sums two products, those with padding left out."""
    if direction == "bwd-weights":
        of_tap = [Counter(tap for _, tap, _ in reads(problem, axis)) for axis in _axes(problem)]
        return problem.batch * prod(max(each.values(), default=0) for each in of_tap) > 1
    # The element is a position where the image is read, or a pixel of the image.
    index = 0 if (direction == "fwd") != problem.transposed else 2
    of_element = [Counter(read[index] for read in reads(problem, axis)) for axis in _axes(problem)]
    channels = problem.terms(direction) // prod(problem.kernel)
    return channels * prod(max(each.values(), default=0) for each in of_element) > 1


def _meets_padding(problem: Problem, direction: str) -> bool:
    clamped = clamped_axis(problem)
    return clamped is not None and all(reads(problem, axis) for axis in _axes(problem) if axis != clamped)


def _dilations_differ(problem: Problem, direction: str) -> bool:
    right = [reads(problem, axis) for axis in _axes(problem)]
    swapped = [reads(problem, axis, problem.dilation[-1 - axis]) for axis in _axes(problem)]
    return right != swapped and (all(right) or all(swapped))


def _transposable(problem: Problem, direction: str) -> bool:
    if square_block(problem):
        return _multiplies(problem, direction)
    if problem.rank < 2 or problem.kernel[-1] != problem.kernel[-2]:
        return False
    taps = [{tap for _, tap, _ in reads(problem, axis)} for axis in _axes(problem)]
    return all(taps) and (taps[-1] != taps[-2] or len(taps[-1]) > 1)


def _mixed_up(problem: Problem, direction: str) -> bool:
    channels, size = problem.in_channels, problem.input_size
    if direction == "bwd-data":
        channels, size = problem.out_channels, problem.output_size
    return problem.channels_last and channels > 1 and max(size) > 1 and _multiplies(problem, direction)


def _has_gaps(problem: Problem, direction: str) -> bool:
    # Of a transposed convolution that is the forward direction.
    gaps = any(unreached(problem, axis) for axis in _axes(problem))
    return gaps and direction == ("fwd" if problem.transposed else "bwd-data")


@dataclass(frozen=True)
class PlantedBug:
    """A way in which a convolution goes wrong. ``needs`` says of a problem and direction whether the result
    differs from the right one; ``filter`` and ``tokens`` are of a problem that has what the bug needs, in the
    words of a problem's text. ``source`` is a report of a real one, where one is known."""

    name: str
    summary: str
    needs: Callable[[Problem, str], bool] = _has_result
    directions: tuple[str, ...] = DIRECTIONS
    dtypes: tuple[str, ...] = tuple(DTYPES.values())
    filter: str = "3x3"
    tokens: tuple[str, ...] = ()
    source: str = ""

    def exists_in(self, problem: Problem, direction: str) -> bool:
        """Whether it changes the result of this problem and direction, for operands without zeros."""
        return (
            direction in self.directions and problem.dtype in self.dtypes and self.needs(problem, direction)
        )


_BUGS = (
    PlantedBug("doubled-channel", "the first channel of the result is twice what it should be"),
    PlantedBug(
        "lost-term",
        "one of the products in every sum is left out: the last tap of the last channel, or of the weights' "
        "gradient the last position of the last sample",
        _multiplies,
    ),
    PlantedBug("zeroed-row", "the last channel is zero, or in the gradient of the weights the last filter"),
    PlantedBug("doubled-tile", "16 neighbouring elements in the middle are twice what they should be"),
    PlantedBug(
        "wrong-padding-edge", "the padding before the first pixel holds that pixel instead of zero",
        _meets_padding, tokens=("p1",),
    ),
    PlantedBug(
        "swapped-dilation", "the dilations of the axes are taken in reverse order", _dilations_differ,
        tokens=("d1x2",),
    ),
    PlantedBug(
        "stale-buffer", "from the second call on, the result is that of the former call of the same shape",
        source="https://github.com/ROCm/MIOpen/pull/3377: kernels that do not write all of their result",
    ),
    PlantedBug(
        "uncleared-result", "the sums are added to what the former call of the same shape left",
        source="https://github.com/ROCm/MIOpen/pull/1104: atomic additions to weights that nobody cleared",
    ),
    PlantedBug("untouched-output", "nothing is written: the result is what its memory held"),
    PlantedBug(
        "unwritten-gaps", "pixels that no tap reaches are not written and hold 1",
        _has_gaps, filter="1x1", tokens=("s2",),
        source="https://github.com/ROCm/composable_kernel/pull/132: bwd-data of 1x1 with stride 2",
    ),
    PlantedBug(
        "half-accumulation", "the running sum is rounded to the dtype after every product", _sums,
        dtypes=_HALVES,
    ),
    PlantedBug(
        "reduced-precision",
        "operands are rounded before they are multiplied: fp64 to fp32, fp32 to TF32, fp16 to bf16",
        _multiplies, dtypes=("float64", "float32", "float16"),
        source="https://pytorch.org/docs/stable/notes/numerical_accuracy.html: bf16 for fp16 on MI200",
    ),
    PlantedBug("random-element", "one random element is off by the root mean square of the result"),
    PlantedBug("nan-lane", "the middle element is NaN", lambda problem, direction: True),
    PlantedBug(
        "bias-gradient", "the gradient of the bias leaves out the last position of the last sample",
        lambda problem, direction: problem.bias, directions=("bwd-weights",), tokens=("bias",),
    ),
    PlantedBug(
        "transposed-weights",
        "in the last group the weights are transposed: input and output channels where they are as many, or "
        "else the last two axes of the filter",
        _transposable, tokens=("g2",),
    ),
    PlantedBug(
        "mixed-up-layout", "an operand in channels-last order is read as if it were in channels-first",
        _mixed_up, tokens=("nhwc",),
        source="https://github.com/ROCm/MIOpen/issues/2860: NHWC taken for NCHW",
    ),
)  # fmt: skip
BUGS: Mapping[str, PlantedBug] = {bug.name: bug for bug in _BUGS}
DEFAULT = "doubled-channel"


def problem_with(bug: PlantedBug, dtype: str, direction: str, terms: int) -> Optional[Problem]:
    """A small 2-d problem in which ``bug`` exists in ``direction``, with ``terms`` products in one element of
    that direction's result (``Problem.terms``); None where no such problem has it. ``dtype`` is torch's name.

    Raises ValueError for terms that are no multiple of the filter's taps, which fwd and bwd-data need.
    """
    groups = 2 if "g2" in bug.tokens else 1
    taps = 9 if bug.filter == "3x3" else 1
    # Different numbers of input and output channels, so that a result that mixes them up has another shape.
    channels = {"c": 4 * groups, "k": 6 * groups}
    batch, side = 2, 4
    if direction == "bwd-weights":
        # A few large images cost less than many small ones.
        side = next(side for side in range(48, 0, -1) if terms % (side * side) == 0)
        batch = terms // (side * side)
    elif terms % taps:
        raise ValueError(f"{terms} is not a multiple of the {taps} taps of {bug.filter}")
    else:
        channels["c" if direction == "fwd" else "k"] = terms // taps * groups
    size = "x".join(str(_image(side, taps > 1, bug.tokens, axis)) for axis in range(2))
    parts = [
        "conv2d", SHORT_DTYPES[dtype], f"n{batch}", f"c{channels['c']}", f"i{size}", f"k{channels['k']}",
        f"f{bug.filter}", *bug.tokens,
    ]  # fmt: skip
    problem = parse_problem("-".join(parts))
    return problem if bug.exists_in(problem, direction) else None


@dataclass(frozen=True)
class Combination:
    """A bug in one direction of a problem whose sums there have ``terms`` products."""

    bug: PlantedBug
    direction: str
    terms: int
    problem: Problem


def combinations(bug: PlantedBug, sums: tuple[int, ...] = TERMS) -> Iterator[Combination]:
    """``bug`` in every dtype and direction where it exists, over ``sums``."""
    for dtype, direction, terms in product(bug.dtypes, bug.directions, sums):
        problem = problem_with(bug, dtype, direction, terms)
        if problem:
            yield Combination(bug, direction, terms, problem)


def _image(side: int, wide: bool, tokens: tuple[str, ...], axis: int) -> int:
    """Pixels along an axis for ``side`` positions, with one more than the last filter reaches at stride 2."""
    stride, padding = 2 if "s2" in tokens else 1, 1 if "p1" in tokens else 0
    dilation = 2 if "d1x2" in tokens and axis == 1 else 1
    return side * stride + 2 * dilation * wide - 2 * padding


def machine(bug: str) -> str:
    """The name of the machine that has this bug alone."""
    return _PREFIX + bug


def data(name: str) -> Optional[Mapping[str, Any]]:
    """The machine ``planted-NAME`` as its file would say it, or None for a name that is none of these."""
    bug = BUGS.get(name[len(_PREFIX) :]) if name.startswith(_PREFIX) else None
    if bug is None:
        return None
    source = bug.source or "made up: a bug to try the checks on"
    # PyTorch does not give MIOpen float64.
    problems = [
        each.problem
        for each in combinations(bug, (TERMS[0], TERMS[-1]))
        if each.problem.dtype in ("float32", "float16")
    ]
    return {
        "summary": f"MIOpen computes convolutions wrongly under its default: {bug.summary}",
        "source": source,
        "gpus": [{"name": "Radeon with a bug", "vendor": "amd", "pci_id": "0x731f", "native_isa": "gfx1010",
                  "effective_isa": "gfx1010"}],
        "facts": {"torch.version": "2.4.0+rocm6.1", "torch.kind": "rocm"},
        "problems": [problem.text for problem in problems],
        "faults": [{"library": "miopen", "effect": "wrong", "bug": bug.name, "settings": ["default"],
                    "source": source}],
    }  # fmt: skip
