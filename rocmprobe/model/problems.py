"""Convolution problems.

Example of a problem's text form, which reports print and ``--problem`` accepts::

    conv2d-fp16-n4-c64-i56x56-k128-f3x3-s2-p1-g2-bias-nhwc

The parts are kind, dtype, batch, input channels, input sizes, output channels and filter sizes. Other options
(docs/how-it-decides.md) follow only if they differ from the default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from rocmprobe.model.results import BadInput
from rocmprobe.text.plain_text import quoted
from rocmprobe.text.tables import table

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
SHORT_DTYPES = {name: short for short, name in DTYPES.items()}
KINDS = {
    "conv1d": 1, "conv2d": 2, "conv3d": 3,
    "conv_transpose1d": 1, "conv_transpose2d": 2, "conv_transpose3d": 3,
}  # fmt: skip
LEVELS = ("quick", "standard", "long")
#: Purposes of problems: the tables of ``data/problems.toml``.
PURPOSES = ("native", "sizes", "kinds", "gradients", "gradient-flow", "memory", "throughput", "start-up")
_FLAGS = ("bias", "nhwc", "noncontiguous")


@dataclass(frozen=True)
class Problem:
    """The arguments of a convolution in PyTorch.

    If ``noncontiguous`` is True, input, weight and output gradient have gaps between the elements.
    """

    kind: str
    dtype: str
    batch: int
    in_channels: int
    input_size: tuple[int, ...]
    out_channels: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int = 1
    bias: bool = False
    channels_last: bool = False
    noncontiguous: bool = False

    @property
    def rank(self) -> int:
        return KINDS[self.kind]

    @property
    def transposed(self) -> bool:
        return "transpose" in self.kind

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.batch, self.in_channels, *self.input_size)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Shape in PyTorch's layout: (K, C/groups, ...), or (C, K/groups, ...) if transposed."""
        if self.transposed:
            return (self.in_channels, self.out_channels // self.groups, *self.kernel)
        return (self.out_channels, self.in_channels // self.groups, *self.kernel)

    @property
    def output_size(self) -> tuple[int, ...]:
        sizes = zip(
            self.input_size, self.kernel, self.stride, self.padding, self.dilation, self.output_padding
        )
        if self.transposed:
            return tuple((i - 1) * s - 2 * p + d * (k - 1) + o + 1 for i, k, s, p, d, o in sizes)
        return tuple((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d, _ in sizes)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.batch, self.out_channels, *self.output_size)

    @property
    def largest_tensor_bytes(self) -> int:
        """Size of the largest of input, weight and output."""
        bits = int(SHORT_DTYPES[self.dtype][2:])
        return max(map(prod, (self.input_shape, self.weight_shape, self.output_shape))) * bits // 8

    @property
    def flops(self) -> int:
        """Number of multiplications and additions in one direction."""
        positions = prod(self.input_size if self.transposed else self.output_size)
        return 2 * self.batch * positions * prod(self.weight_shape)

    def terms(self, direction: str) -> int:
        """Return the number of products in the sum for one element of the result (K of a GEMM)."""
        weights = prod(self.kernel)
        forward = weights * self.in_channels // self.groups
        backward = weights * self.out_channels // self.groups
        if direction == "fwd":
            return forward
        if direction == "bwd-data":
            return backward
        return self.batch * prod(self.input_size if self.transposed else self.output_size)

    def parts(self, direction: str) -> int:
        """Return the number of partial sums that PyTorch's own kernels round to the dtype before adding.

        - "bwd-weights": the batch size
        - "fwd" of a transposed convolution, "bwd-data" of other convolutions: the number of filter taps
          (col2im)
        - otherwise: 1

        In "fwd", a bias adds 1.
        """
        if direction == "bwd-weights":
            return self.batch
        taps = prod(self.kernel) if (direction == "fwd") == self.transposed else 1
        return taps + (self.bias and direction == "fwd")

    @property
    def text(self) -> str:
        image, kernel = _sizes(self.input_size, keep=True), _sizes(self.kernel, keep=True)
        channels = f"c{self.in_channels}-i{image}-k{self.out_channels}"
        parts = [f"{self.kind}-{SHORT_DTYPES[self.dtype]}-n{self.batch}-{channels}-f{kernel}"]
        others = {"s": (self.stride, 1), "p": (self.padding, 0)}
        others |= {"o": (self.output_padding, 0), "d": (self.dilation, 1)}
        parts += [
            letter + _sizes(values) for letter, (values, usual) in others.items() if set(values) != {usual}
        ]
        if self.groups != 1:
            parts.append(f"g{self.groups}")
        flags = zip(_FLAGS, (self.bias, self.channels_last, self.noncontiguous))
        return "-".join([*parts, *(flag for flag, holds in flags if holds)])

    @property
    def words(self) -> str:
        """Description for people, e.g. "3x3, 32 to 64 channels, 56x56, batch 4, fp32"."""
        shape = ("depthwise " if self.groups > 1 and self.groups == self.in_channels else "") + (
            "transposed " if self.transposed else ""
        )
        parts = [
            f"{shape}{_sizes(self.kernel, keep=True)}",
            f"{self.in_channels} to {self.out_channels} channels",
            _sizes(self.input_size, keep=True),
            f"batch {self.batch}",
            SHORT_DTYPES[self.dtype],
        ]
        for word, values, default in (("stride", self.stride, 1), ("dilation", self.dilation, 1)):
            if set(values) != {default}:
                parts.append(f"{word} {_sizes(values)}")
        if self.groups > 1 and self.groups != self.in_channels:
            parts.append(f"{self.groups} groups")
        flags = {"bias": self.bias, "channels last": self.channels_last, "non-contiguous": self.noncontiguous}
        return ", ".join([*parts, *(word for word, holds in flags.items() if holds)])

    def as_json(self) -> dict[str, object]:
        """Return the problem as an entry of ``results.json``."""
        return {
            "id": self.text,
            "kind": self.kind,
            "dtype": self.dtype,
            "input": list(self.input_shape),
            "weight": list(self.weight_shape),
            "output": list(self.output_shape),
            "stride": list(self.stride),
            "padding": list(self.padding),
            "output_padding": list(self.output_padding),
            "dilation": list(self.dilation),
            "groups": self.groups,
            "bias": self.bias,
            "channels_last": self.channels_last,
            "noncontiguous": self.noncontiguous,
            "flops": self.flops,
        }


def _sizes(values: tuple[int, ...], keep: bool = False) -> str:
    if not keep and len(set(values)) == 1:
        return str(values[0])
    return "x".join(map(str, values))


# Accept at most nine digits, which is below the limit of int().
_TOKEN = re.compile(r"([ncikfspodg])([0-9]{1,9}(?:x[0-9]{1,9}){0,2})")


def parse_problem(text: str) -> Problem:
    """Return the problem with the text form ``text``.

    Raise BadInput if the text is malformed, if PyTorch would reject the problem, or if the output is empty.
    """

    def bad(what: str) -> BadInput:
        return BadInput(
            f"problem {quoted(text)}: {what}; write it like conv2d-fp32-n1-c16-i28x28-k32-f3x3-s1-p1"
        )

    tokens = text.strip().split("-")
    if tokens[0] not in KINDS:
        raise bad(f"{quoted(tokens[0])} is not a kind (one of {', '.join(KINDS)})")
    if len(tokens) < 2 or tokens[1] not in DTYPES:
        raise bad(f"the second part must be a dtype (one of {', '.join(DTYPES)})")
    rank = KINDS[tokens[0]]
    numbers: dict[str, tuple[int, ...]] = {}
    flags = set()
    for token in tokens[2:]:
        match = _TOKEN.fullmatch(token)
        if token in _FLAGS and token not in flags:
            flags.add(token)
        elif match and match[1] not in numbers:
            numbers[match[1]] = tuple(int(number) for number in match[2].split("x"))
        else:
            raise bad(f"{quoted(token)} is not understood, or appears twice")

    def one(letter: str, default: int | None = None) -> int:
        values = numbers.get(letter, () if default is None else (default,))
        if len(values) != 1:
            raise bad(f"{letter!r} needs one number")
        return values[0]

    def spatial(letter: str, default: int | None = None) -> tuple[int, ...]:
        values = numbers.get(letter, () if default is None else (default,))
        if len(values) == 1:
            values *= rank
        if len(values) != rank:
            raise bad(f"{letter!r} needs {rank} number(s)")
        return values

    problem = Problem(
        kind=tokens[0],
        dtype=DTYPES[tokens[1]],
        batch=one("n"),
        in_channels=one("c"),
        input_size=spatial("i"),
        out_channels=one("k"),
        kernel=spatial("f"),
        stride=spatial("s", 1),
        padding=spatial("p", 0),
        dilation=spatial("d", 1),
        output_padding=spatial("o", 0),
        groups=one("g", 1),
        bias="bias" in flags,
        channels_last="nhwc" in flags,
        noncontiguous="noncontiguous" in flags,
    )
    for letter in "ncikfsdg":
        if 0 in numbers.get(letter, ()):
            raise bad(f"{letter!r} must be at least 1")
    if problem.in_channels % problem.groups or problem.out_channels % problem.groups:
        raise bad("groups must divide the input and the output channels")
    if not problem.transposed and any(problem.output_padding):
        raise bad("'o' (output padding) is only valid for transposed convolution")
    if any(o and o >= max(s, d) for o, s, d in zip(problem.output_padding, problem.stride, problem.dilation)):
        raise bad("'o' (output padding) must be smaller than the stride or the dilation")
    if problem.channels_last and problem.rank != 2:
        raise bad("'nhwc' is only valid for 2-d convolution")
    if problem.channels_last and problem.noncontiguous:
        raise bad("'nhwc' and 'noncontiguous' exclude each other")
    if min(problem.output_size) < 1:
        raise bad("the output has no elements")
    return problem


def problem_words(text: str) -> str:
    """Return ``Problem.words`` of the problem ``text``. Return invalid text unchanged."""
    try:
        return parse_problem(text).words
    except BadInput:
        return text


def problems(level: str, purpose: str) -> tuple[Problem, ...]:
    """Return the problems that ``level`` and the lower levels test for ``purpose``."""
    wanted = LEVELS[: LEVELS.index(level) + 1]
    rows = table("problems")[purpose]
    return tuple(parse_problem(row["problem"]) for row in rows if row["level"] in wanted)
