"""Batch norm through MIOpen in float32.

The arguments of MIOpen's functions come from include/miopen/miopen.h. They have not changed since ROCm 3.5
(MIOpen 2.4).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rocmprobe.backends.capi.miopen import SPATIAL, Descriptor, MiopenLibrary
from rocmprobe.backends.capi.reference import decode
from rocmprobe.kernels.exact import encode
from rocmprobe.runtimes.calls import releasing
from rocmprobe.runtimes.hip import Hip
from rocmprobe.runtimes.memory import Buffer

EPSILON = 1e-5


class BatchNorm:
    """Batch norm of an input x (N, C, ...), made by ``batch_norm``.

    Elements of results that MIOpen does not write are NaN.
    """

    def __init__(
        self, hip: Hip, miopen: MiopenLibrary, tensor: Descriptor, derived: Descriptor, x: Buffer
    ) -> None:
        self._hip = hip
        self._miopen = miopen
        self._tensor = tensor
        self._derived = derived
        self._x = x

    def training(self, scale: Sequence[float], bias: Sequence[float]) -> dict[str, list[float]]:
        """Normalize x with the batch's mean and variance. Return the result under the key ``output``."""
        # Like PyTorch, request mean and variance of the batch but no running statistics. With running
        # statistics, MIOpen would compile a different kernel.
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        with ExitStack() as stack:
            factors = self._uploaded(stack, scale, bias)
            y = self._empty(stack, self._x.size)
            saved = [self._empty(stack, factors[0].size) for _ in range(2)]
            self._miopen.library.call(
                "miopenBatchNormalizationForwardTraining", self._miopen.handle, SPATIAL,
                ctypes.byref(one), ctypes.byref(zero), *self._of(self._x), *self._of(y),
                self._derived.address, *_addresses(factors), 0.0, None, None, EPSILON, *_addresses(saved),
            )  # fmt: skip
            return self._read(output=y)

    def inference(
        self,
        scale: Sequence[float],
        bias: Sequence[float],
        mean: Sequence[float],
        variance: Sequence[float],
    ) -> dict[str, list[float]]:
        """Normalize x with the given mean and variance. Return the result under the key ``output``."""
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        with ExitStack() as stack:
            factors = self._uploaded(stack, scale, bias, mean, variance)
            y = self._empty(stack, self._x.size)
            self._miopen.library.call(
                "miopenBatchNormalizationForwardInference", self._miopen.handle, SPATIAL,
                ctypes.byref(one), ctypes.byref(zero), *self._of(self._x), *self._of(y),
                self._derived.address, *_addresses(factors), EPSILON,
            )  # fmt: skip
            return self._read(output=y)

    def backward(
        self,
        dy: Sequence[float],
        scale: Sequence[float],
        mean: Sequence[float],
        variance: Sequence[float],
    ) -> dict[str, list[float]]:
        """Return ``input gradient``, ``weight gradient`` and ``bias gradient`` of training."""
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        inverse = [1 / math.sqrt(value + EPSILON) for value in variance]
        with ExitStack() as stack:
            incoming, factors, *saved = self._uploaded(stack, dy, scale, mean, inverse)
            dx = self._empty(stack, self._x.size)
            gradients = [self._empty(stack, factors.size) for _ in range(2)]
            alpha_beta = [ctypes.byref(one), ctypes.byref(zero)]
            self._miopen.library.call(
                "miopenBatchNormalizationBackward", self._miopen.handle, SPATIAL, *alpha_beta, *alpha_beta,
                *self._of(self._x), *self._of(incoming), *self._of(dx), self._derived.address,
                factors.address, *_addresses(gradients), EPSILON, *_addresses(saved),
            )  # fmt: skip
            return self._read(
                **{"input gradient": dx, "weight gradient": gradients[0], "bias gradient": gradients[1]}
            )

    def _uploaded(self, stack: ExitStack, *contents: Sequence[float]) -> list[Buffer]:
        return [stack.enter_context(self._hip.upload(encode(values, "float32"))) for values in contents]

    def _empty(self, stack: ExitStack, size: int) -> Buffer:
        return stack.enter_context(self._hip.upload(b"\xff" * size))

    def _of(self, buffer: Buffer) -> list[int]:
        return [self._tensor.address, buffer.address]

    def _read(self, **buffers: Buffer) -> dict[str, list[float]]:
        self._hip.synchronize()
        return {name: decode(buffer.read(), "float32") for name, buffer in buffers.items()}


def _addresses(buffers: Sequence[Buffer]) -> list[int]:
    return [buffer.address for buffer in buffers]


@contextmanager
def batch_norm(
    hip: Hip, miopen: MiopenLibrary, shape: Sequence[int], x: Sequence[float]
) -> Iterator[BatchNorm]:
    """Copy ``x`` to the device, and yield a ``BatchNorm`` of it. ``shape`` is (N, C, ...)."""
    with ExitStack() as stack:
        tensor = miopen.tensor_descriptor("float32", shape)
        stack.enter_context(releasing(lambda: miopen.destroy_tensor_descriptor(tensor)))
        derived = miopen.derived_descriptor(tensor, SPATIAL)
        stack.enter_context(releasing(lambda: miopen.destroy_tensor_descriptor(derived)))
        buffer = stack.enter_context(hip.upload(encode(x, "float32")))
        yield BatchNorm(hip, miopen, tensor, derived, buffer)
