"""Command lines for MIOpenDriver, MIOpen's own test program, in the form of ``MIOPEN_ENABLE_LOGGING_CMD``.

Sources: MIOpen's src/driver_arguments.cpp, driver/conv_driver.hpp and driver/bn_driver.hpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from rocmprobe.model.problems import Problem
from rocmprobe.text.versions import Release

_BASES = {"float32": "conv", "float16": "convfp16", "bfloat16": "convbfp16"}
_FORWARD, _BACKWARD_DATA, _BACKWARD_WEIGHTS = 1, 2, 4
_FLAGS = {"fwd": _FORWARD, "bwd-data": _BACKWARD_DATA, "bwd-weights": _BACKWARD_WEIGHTS}
#: Flags for transposed convolutions. PyTorch computes their forward pass as the backward-data pass of a plain
#: convolution, and vice versa.
_TRANSPOSED = {**_FLAGS, "fwd": _BACKWARD_DATA, "bwd-data": _FORWARD}


def batch_norm_line(dtype: str) -> tuple[str, str]:
    """Return (command line, "") for the forward pass of batch norm, or ("", reason why there is none)."""
    if dtype == "float16":
        return "", "no command is known for float16 with weights in float32, which PyTorch uses"
    if dtype != "float32":
        return "", "PyTorch does not send batch norm of this dtype to MIOpen"
    return "MIOpenDriver bnorm -n 4 -c 16 -H 14 -W 14 -m 1 -F 1 -t 1", ""


def convolution_line(
    problem: Problem, direction: str, torch: Optional[Release], immediate: bool
) -> tuple[str, str]:
    """Return (command line, "") for one direction of ``problem``, or ("", reason why there is none).

    ``torch`` is the version of PyTorch, or None if PyTorch was not used. If ``immediate``, MIOpen uses
    immediate mode instead of Find.
    """
    if torch is None and problem.dtype not in _BASES:
        return "", "the driver has no convolution of this dtype"
    if torch is not None and _kept_from_miopen(problem, direction, torch):
        return "", "PyTorch does not send this problem to MIOpen"
    if problem.transposed and _forward_size(problem) != problem.input_size:
        return "", "the driver has no option for this output padding"
    return " ".join(["MIOpenDriver", *_words(problem, direction), *(["-S 0"] if immediate else [])]), ""


def _kept_from_miopen(problem: Problem, direction: str, torch: Release) -> bool:
    """Return True if PyTorch does not send this problem to MIOpen.

    Source: use_miopen in aten/src/ATen/native/Convolution.cpp.
    """
    dilated = set(problem.dilation) != {1}
    old_bf16 = torch < (2, 2) and problem.dtype == "bfloat16" and problem.bias and direction == "fwd"
    return problem.dtype not in _BASES or (problem.groups > 1 and dilated) or old_bf16


def _forward_size(problem: Problem) -> tuple[int, ...]:
    """Return the output size of an ordinary convolution that is applied to the output of ``problem``.

    ``problem`` is a transposed convolution. The ordinary convolution has the same kernel, stride, padding and
    dilation.
    """
    sizes = zip(problem.output_size, problem.kernel, problem.stride, problem.padding, problem.dilation)
    return tuple((o + 2 * p - d * (k - 1) - 1) // s + 1 for o, k, s, p, d in sizes)


def _words(problem: Problem, direction: str) -> list[str]:
    flag = (_TRANSPOSED if problem.transposed else _FLAGS)[direction]
    channels, size, filters = problem.in_channels, problem.input_size, problem.out_channels
    if problem.transposed:
        channels, size, filters = problem.out_channels, problem.output_size, problem.in_channels
    layout = "NHWC" if problem.channels_last else ""
    return [
        f"{_BASES[problem.dtype]} -n {problem.batch} -c {channels}",
        *_sizes(("--in_d", "-H", "-W"), size, 1),
        f"-k {filters}",
        *_sizes(("--fil_d", "-y", "-x"), problem.kernel, 1),
        *_sizes(("--pad_d", "-p", "-q"), problem.padding, 0),
        *_sizes(("--conv_stride_d", "-u", "-v"), problem.stride, 1),
        *_sizes(("--dilation_d", "-l", "-j"), problem.dilation, 1),
        *(["--spatial_dim 3"] if problem.rank == 3 else []),
        *(f"--{tensor}_layout {layout}" for tensor in ("in", "fil", "out") if layout),
        f"-m conv -g {problem.groups} -F {flag} -t 1",
    ]


def _sizes(names: Sequence[str], values: Sequence[int], usual: int) -> list[str]:
    """Return one option for each value. For a 1-d convolution, add the value ``usual`` for the height."""
    values = (usual, *values) if len(values) == 1 else values
    return [f"{name} {value}" for name, value in zip(names[3 - len(values) :], values)]
