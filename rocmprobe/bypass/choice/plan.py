"""Plans for a problem, and the choice of the fastest plan by the cost model."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace

from rocmprobe.bypass.algorithms import ALGORITHMS, Operands, Plan
from rocmprobe.bypass.algorithms.base import ELEMENT_BYTES
from rocmprobe.bypass.choice.rates import USUAL
from rocmprobe.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry, geometry

DEFAULT_WORKSPACE_MB = 256
_WORDS = ("auto", *ALGORITHMS)
MEGABYTE = 1 << 20
WORKSPACE_VARIABLE = "ROCMPROBE_BYPASS_WORKSPACE_MB"
ALGORITHM_VARIABLE = "ROCMPROBE_BYPASS_ALGORITHM"


def plan(
    direction: str,
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool = False,
    output_padding: Sequence[int] | None = None,
    groups: int = 1,
    dtype: str = "float32",
    device_type: str = "cpu",
    channels_last: bool = False,
    dense: bool = True,
    workspace_mb: float = DEFAULT_WORKSPACE_MB,
    algorithm: str = "auto",
) -> Plan:
    """Return the plan of the bypass for one direction of a problem.

    Args:
        direction: "fwd", "bwd-data" or "bwd-weights".
        input_shape: ``(N, C, *spatial)``, also for the backward directions.
        weight_shape: shape in PyTorch's layout. A transposed problem has ``(C, K / groups, *kernel)``.
        stride, padding, dilation, output_padding: one entry for each spatial dimension.
        dtype: "float16", "bfloat16", "float32" or "float64".
        channels_last: True if PyTorch returns the results in a channels-last layout.
        dense: False if an operand is neither contiguous nor channels-last (e.g. a slice).
        workspace_mb: maximum workspace in MiB. A plan exceeds the maximum only if even its smallest step
            needs more.
        algorithm: "auto" for the fastest algorithm by the cost model, or the name of an algorithm to use if
            it applies.

    Raises:
        ValueError: if an argument is invalid, PyTorch would reject the problem, or the output is empty.
    """
    check(dtype, device_type, algorithm)
    plain = plain_form(
        input_shape,
        weight_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=output_padding,
        groups=groups,
    )
    operands = Operands(dtype, device_type, channels_last, dense)
    cap = int(workspace_mb * MEGABYTE)
    found = eligible(plain_direction(direction, transposed), plain, operands, cap, algorithm)
    return by_model(found, device_type)


def check(dtype: str, device_type: str, algorithm: str) -> None:
    """Raise ValueError if the dtype, device type or algorithm is unknown."""
    for value, known, what in (
        (dtype, ELEMENT_BYTES, "dtype"),
        (device_type, USUAL, "device type"),
        (algorithm, _WORDS, "algorithm"),
    ):
        _check_known(value, known, what)


def _check_known(value: str, known: Collection[str], what: str) -> None:
    if value not in known:
        raise ValueError(f"no {what} {value!r}; there are {', '.join(known)}")


def workspace_or_default(workspace_mb: float | None) -> float:
    """Return ``workspace_mb``, or the default in MiB if it is None.

    The default is the environment variable ROCMPROBE_BYPASS_WORKSPACE_MB, or 256 if it is not set.

    Raises:
        ValueError: if the workspace is not a positive number.
    """
    if workspace_mb is not None:
        if not workspace_mb > 0:
            raise ValueError(f"workspace_mb must be a positive number of MiB, not {workspace_mb!r}")
        return workspace_mb
    text = os.environ.get(WORKSPACE_VARIABLE) or str(DEFAULT_WORKSPACE_MB)
    try:
        return workspace_or_default(float(text))
    except ValueError:
        raise ValueError(f"{WORKSPACE_VARIABLE}={text}: set a positive number of MiB") from None


def algorithm_or_default(algorithm: str | None) -> str:
    """Return ``algorithm``, or the default if it is None.

    The default is the environment variable ROCMPROBE_BYPASS_ALGORITHM, or "auto" if it is not set.

    Raises:
        ValueError: if the algorithm is unknown.
    """
    if algorithm is not None:
        _check_known(algorithm, _WORDS, "algorithm")
        return algorithm
    text = os.environ.get(ALGORITHM_VARIABLE) or "auto"
    if text not in _WORDS:
        raise ValueError(f"{ALGORITHM_VARIABLE}={text}: there are {', '.join(_WORDS)}")
    return text


def plain_form(
    input_shape: Sequence[int],
    weight_shape: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int] | None,
    groups: int,
) -> Geometry:
    """Return the sizes of the plain (not transposed) convolution that computes a problem.

    A 1-d problem becomes a 2-d problem of height 1.

    Raises:
        ValueError: if PyTorch would reject the problem, or if the output is empty.
    """
    if len(weight_shape) == 3:
        input_shape, weight_shape = ((*shape[:2], 1, *shape[2:]) for shape in (input_shape, weight_shape))
        stride, dilation, padding = (1, *stride), (1, *dilation), (0, *padding)
        output_padding = None if output_padding is None else (0, *output_padding)
    return geometry(
        input_shape,
        weight_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=output_padding,
        groups=groups,
    )


def plain_direction(direction: str, transposed: bool) -> str:
    """Return ``direction``, with fwd and bwd-data swapped if the convolution is ``transposed``."""
    if direction not in (FWD, BWD_DATA, BWD_WEIGHTS):
        raise ValueError(f"no such direction: {direction!r}")
    return {FWD: BWD_DATA, BWD_DATA: FWD}.get(direction, direction) if transposed else direction


def candidates(direction: str, plain: Geometry, operands: Operands, cap: int) -> list[Plan]:
    """Return all plans for one direction, each with at most ``cap`` bytes of workspace if possible.

    The list is never empty.
    """
    found = [plan for each in ALGORITHMS.values() for plan in each.plans(direction, plain, operands, cap)]
    if direction == BWD_DATA and set(plain.stride) == {1}:
        flipped, turned = plain.flipped(), plain.filters * plain.depth * operands.wide
        direct = {each.algorithm for each in found}
        found += [
            replace(plan, flipped=True, workspace_bytes=plan.workspace_bytes + turned)
            for name, each in ALGORITHMS.items()
            if name not in direct
            for plan in each.plans(FWD, flipped, operands, cap - turned)
        ]
    return found


def eligible(direction: str, plain: Geometry, operands: Operands, cap: int, algorithm: str) -> list[Plan]:
    """Return the plans of ``algorithm`` if it applies, else the plans of all algorithms."""
    found = candidates(direction, plain, operands, cap)
    named = [each for each in found if each.algorithm == algorithm]
    return named or [each for each in found if each.workspace_bytes <= cap] or found


def by_model(plans: Sequence[Plan], device_type: str) -> Plan:
    """Return the plan that the cost model ranks fastest on a typical device of ``device_type``."""
    return min(plans, key=USUAL[device_type].seconds)


def problem_key(direction: str, plain: Geometry, operands: Operands, cap: int, algorithm: str) -> str:
    """Return the key for the plan file, e.g. "fwd float32 first-dense n8 ..."."""
    # Plans are measured and stored only for ``auto`` and for rocmprobe's own kernels. Any other algorithm has
    # only one plan, so its key is not used.
    kernel = algorithm in ALGORITHMS and ALGORITHMS[algorithm].own_kernel
    policy = algorithm if kernel else "auto"
    sizes = (
        f"{letter}{'x'.join(map(str, values))}"
        for letter, values in (
            ("i", plain.image), ("o", plain.feature), ("f", plain.kernel), ("s", plain.stride),
            ("p", plain.padding), ("d", plain.dilation),
        )
    )  # fmt: skip
    layout = f"{'last' if operands.channels_last else 'first'}-{'dense' if operands.dense else 'strided'}"
    kernels = " own-kernels" if operands.own_kernels else ""
    return (
        f"{direction} {operands.dtype} {layout} n{plain.batch} c{plain.channels} k{plain.filters} "
        f"g{plain.groups} {' '.join(sizes)} w{cap} {policy}{kernels}"
    )
