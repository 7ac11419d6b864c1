"""Checks of MIOpen's tensor operations, bias and fused operators, with small integers as operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import add, mul
from typing import Any

from rocmprobe.backends.capi import reference
from rocmprobe.backends.capi.batch_norm import EPSILON
from rocmprobe.backends.capi.convolution import convolution
from rocmprobe.backends.capi.fusion import fusion_plan
from rocmprobe.backends.capi.miopen import SPATIAL, MiopenLibrary
from rocmprobe.backends.capi.tensor_operations import TensorOperations, tensor_operations
from rocmprobe.kernels.exact import channels_last, contiguous, encode
from rocmprobe.model.numerics import TRANSFORMS, exact_fill
from rocmprobe.model.problems import Problem, parse_problem
from rocmprobe.runtimes.calls import releasing
from rocmprobe.runtimes.hip import Hip


@dataclass(frozen=True)
class Part:
    """A computation by the library, and the expected result."""

    compute: Callable[[Hip, MiopenLibrary], list[float]]
    expected: Sequence[float]


@dataclass(frozen=True)
class OperatorCheck:
    """A check of an operator. ``parts`` are computations, keyed by name.

    Each element of a result is a sum of ``terms`` products. If ``exact`` is True, results must equal the
    expected values.
    """

    parts: Mapping[str, Part]
    terms: int = 1
    exact: bool = True


_SHAPE = (2, 3, 4, 5)
#: Strides in elements: packed, channels-last, with gaps after each row, and with gaps after each channel.
_PACKED, _LAST = contiguous(_SHAPE), channels_last(_SHAPE)
_ROWS_APART, _CHANNELS_APART = (96, 32, 8, 1), (75, 25, 5, 1)
#: Value with which the result's memory is filled before the call. Gaps between elements must still have this
#: value after the call.
_FILLER = 9
_FUNCTIONS: Mapping[str, Callable[[Any, Any], float]] = {"add": add, "mul": mul, "min": min, "max": max}
#: Shapes of the second operand. MIOpen broadcasts the smaller shapes.
_SECOND = {
    "equal shapes": _SHAPE, "per channel": (1, 3, 1, 1), "per position": (1, 1, 4, 5), "scalar": (1, 1, 1, 1),
}  # fmt: skip
_SCALES = (2, -3, 1)
#: Problems of the fused checks, the same as in the checks through PyTorch.
_FUSED = {"float32": "conv2d-fp32-n2-c4-i8x8-k6-f3x3-p1", "float16": "conv2d-fp16-n2-c4-i8x8-k6-f3x3-p1"}
_NORMALIZED = (4, 16, 14, 14)


def tensor_op(dtype: str) -> OperatorCheck:
    parts = {
        f"{operation} {words}": _operation(dtype, operation, _SHAPE, second)
        for operation in _FUNCTIONS
        for words, second in _SECOND.items()
    }
    parts["add per channel 3-d"] = _operation(dtype, "add", (2, 3, 7), (1, 3, 1))
    parts["add per channel 5-d"] = _operation(dtype, "add", (2, 3, 4, 2, 3), (1, 3, 1, 1, 1))
    parts["add scaled"] = _operation(dtype, "add", _SHAPE, (1, 3, 1, 1), _SCALES)
    return OperatorCheck(parts)


def _operation(
    dtype: str,
    operation: str,
    shape: Sequence[int],
    second: Sequence[int],
    scales: Sequence[float] = (1, 1, 0),
) -> Part:
    a = reference.integers(prod(shape), 5, seed=7)
    b = reference.integers(prod(second), 5, seed=8)

    def compute(on_device: TensorOperations) -> list[float]:
        c = on_device.tensor(shape, [_FILLER] * len(a))
        on_device.operate(operation, on_device.tensor(shape, a), on_device.tensor(second, b), c, scales)
        return on_device.read(c)

    pairs = zip(a, reference.broadcast(b, second, shape))
    function = _FUNCTIONS[operation]
    expected = [function(scales[0] * x, scales[1] * y) + scales[2] * _FILLER for x, y in pairs]
    return _part(dtype, compute, expected)


def tensor_transform(dtype: str) -> OperatorCheck:
    layouts = {
        "packed": (_PACKED, _PACKED), "to channels-last": (_PACKED, _LAST),
        "from channels-last": (_LAST, _PACKED), "rows to channels apart": (_ROWS_APART, _CHANNELS_APART),
    }  # fmt: skip
    copies = {words: _copy(dtype, *strides, TensorOperations.transform) for words, strides in layouts.items()}
    return OperatorCheck(copies)


def tensor_copy(dtype: str) -> OperatorCheck:
    """Return a check of the copy function that MIOpen's RNN uses."""
    layouts = {
        "packed": (_PACKED, _PACKED), "to a slice": (_PACKED, _ROWS_APART),
        "from a slice": (_CHANNELS_APART, _PACKED), "between slices": (_ROWS_APART, _CHANNELS_APART),
    }  # fmt: skip
    return OperatorCheck(
        {words: _copy(dtype, *strides, TensorOperations.copy) for words, strides in layouts.items()}
    )


def _copy(
    dtype: str,
    source: Sequence[int],
    target: Sequence[int],
    call: Callable[[TensorOperations, Any, Any], None],
) -> Part:
    values = reference.integers(prod(_SHAPE), 5, seed=9)
    expected = reference.scattered(values, _SHAPE, target, _FILLER)

    def compute(on_device: TensorOperations) -> list[float]:
        x = on_device.tensor(_SHAPE, reference.scattered(values, _SHAPE, source, 0), source)
        y = on_device.tensor(_SHAPE, [_FILLER] * len(expected), target)
        call(on_device, x, y)
        return on_device.read(y)

    return _part(dtype, compute, expected)


def tensor_cast(dtype: str) -> OperatorCheck:
    """Return a check of the conversion from float32 to ``dtype``."""
    values = reference.integers(prod(_SHAPE), 5, seed=10)

    def compute(on_device: TensorOperations) -> list[float]:
        y = on_device.tensor(_SHAPE, [_FILLER] * len(values))
        on_device.cast(on_device.tensor(_SHAPE, values, dtype="float32"), y)
        return on_device.read(y)

    return OperatorCheck({"from float32": _part(dtype, compute, values)})


def tensor_set(dtype: str) -> OperatorCheck:
    return _in_place(dtype, lambda on_device, y: on_device.set_all(y, 3), lambda value: 3)


def tensor_scale(dtype: str) -> OperatorCheck:
    return _in_place(dtype, lambda on_device, y: on_device.scale(y, 3), lambda value: 3 * value)


def _in_place(
    dtype: str, call: Callable[[TensorOperations, Any], None], right: Callable[[float], float]
) -> OperatorCheck:
    values = reference.integers(prod(_SHAPE), 5, seed=11)

    def compute(strides: Sequence[int], on_device: TensorOperations) -> list[float]:
        y = on_device.tensor(_SHAPE, reference.scattered(values, _SHAPE, strides, _FILLER), strides)
        call(on_device, y)
        return on_device.read(y)

    layouts = {"packed": _PACKED, "channels-last": _LAST, "rows apart": _ROWS_APART}
    wanted = list(map(right, values))
    return OperatorCheck(
        {
            words: _part(
                dtype, partial(compute, strides), reference.scattered(wanted, _SHAPE, strides, _FILLER)
            )
            for words, strides in layouts.items()
        }
    )


def bias(dtype: str) -> OperatorCheck:
    y = reference.integers(prod(_SHAPE), 5, seed=12)
    summand = reference.integers(_SHAPE[1], 5, seed=13)
    of_channel = (1, _SHAPE[1], 1, 1)

    def forward(on_device: TensorOperations) -> list[float]:
        result = on_device.tensor(_SHAPE, y)
        on_device.add_bias(on_device.tensor(of_channel, summand), result)
        return on_device.read(result)

    def gradient(on_device: TensorOperations) -> list[float]:
        result = on_device.tensor(of_channel, [_FILLER] * len(summand))
        on_device.bias_gradient(on_device.tensor(_SHAPE, y), result)
        return on_device.read(result)

    added = list(map(add, y, reference.broadcast(summand, of_channel, _SHAPE)))
    sums = reference.channel_sums(_SHAPE, y)
    parts = {"forward": _part(dtype, forward, added), "gradient": _part(dtype, gradient, sums)}
    return OperatorCheck(parts, terms=prod(_SHAPE) // _SHAPE[1])


def convolution_relu(dtype: str) -> OperatorCheck:
    problem = parse_problem(_FUSED[dtype])
    terms = problem.terms("fwd")
    inputs = reference.operands(problem, "fwd", exact_fill(dtype, terms, TRANSFORMS))
    summand = reference.integers(problem.out_channels, 4, seed=14)
    of_channel = (1, problem.out_channels, 1, 1)
    sums = reference.convolve(problem, "fwd", inputs)
    added = map(add, sums, reference.broadcast(summand, of_channel, problem.output_shape))
    compute = partial(_fused_convolution, problem, inputs, summand)
    return OperatorCheck({"output": Part(compute, _relu(added))}, terms, exact=False)


def _fused_convolution(
    problem: Problem,
    inputs: Mapping[str, Sequence[float]],
    summand: Sequence[float],
    hip: Hip,
    miopen: MiopenLibrary,
) -> list[float]:
    contents = {name: encode(values, problem.dtype) for name, values in inputs.items()}
    with ExitStack() as stack:
        on_device = stack.enter_context(tensor_operations(hip, miopen, problem.dtype))
        made = stack.enter_context(convolution(hip, miopen, problem, "fwd", contents))
        plan = stack.enter_context(fusion_plan(miopen, made.tensors["x"]))
        plan.add_convolution(made.descriptor, made.tensors["w"])
        plan.add_bias(on_device.tensor((1, len(summand), 1, 1), summand))
        plan.add_relu()
        plan.run(made.tensors["x"], made.tensors["y"])
        return on_device.read(made.tensors["y"])


def batch_norm_relu(dtype: str) -> OperatorCheck:
    channels = _NORMALIZED[1]
    x = reference.integers(prod(_NORMALIZED), 4, seed=15)
    scale, shift = reference.integers(channels, 2, seed=16), reference.integers(channels, 4, seed=17)
    mean, variance = reference.moments(_NORMALIZED, x)

    def compute(hip: Hip, miopen: MiopenLibrary) -> list[float]:
        with ExitStack() as stack:
            on_device = stack.enter_context(tensor_operations(hip, miopen, dtype))
            image = on_device.tensor(_NORMALIZED, x)
            # The result is filled with NaN to show elements that the kernel does not write.
            result = on_device.tensor(_NORMALIZED, [float("nan")] * len(x))
            derived = miopen.derived_descriptor(image.descriptor, SPATIAL)
            stack.enter_context(releasing(partial(miopen.destroy_tensor_descriptor, derived)))
            plan = stack.enter_context(fusion_plan(miopen, image))
            single = [
                on_device.tensor((1, channels, 1, 1), each, dtype="float32")
                for each in (scale, shift, mean, variance)
            ]
            plan.add_batch_norm(derived, *single)
            plan.add_relu()
            plan.run(image, result)
            return on_device.read(result)

    normed = reference.batch_norm(_NORMALIZED, x, scale, shift, mean, variance, EPSILON)
    terms = prod(_NORMALIZED) // channels
    return OperatorCheck({"output": Part(compute, _relu(normed))}, terms, exact=False)


def _relu(values: Any) -> list[float]:
    return [max(value, 0) for value in values]


def _part(dtype: str, call: Callable[[TensorOperations], list[float]], expected: Sequence[float]) -> Part:
    def compute(hip: Hip, miopen: MiopenLibrary) -> list[float]:
        with tensor_operations(hip, miopen, dtype) as on_device:
            return call(on_device)

    return Part(compute, expected)


OPERATOR_CHECKS: Mapping[str, Callable[[str], OperatorCheck]] = {
    "tensor-op": tensor_op,
    "tensor-transform": tensor_transform,
    "tensor-copy": tensor_copy,
    "tensor-cast": tensor_cast,
    "tensor-set": tensor_set,
    "tensor-scale": tensor_scale,
    "bias": bias,
    "convolution-relu": convolution_relu,
    "batch-norm-relu": batch_norm_relu,
}
