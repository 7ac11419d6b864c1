"""MIOpen's functions for tensor operations (e.g. copy, addition) and for the bias of a convolution."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Optional

from rocmprobe.backends.capi.convolution import MARGIN
from rocmprobe.backends.capi.miopen import CAST_TENSOR, COPY_TENSOR, MiopenLibrary, Tensor
from rocmprobe.backends.capi.reference import decode
from rocmprobe.kernels.exact import encode
from rocmprobe.runtimes.calls import releasing
from rocmprobe.runtimes.hip import Hip

#: Numbers of the operations (``miopenTensorOp_t``).
OPERATIONS = {"add": 0, "mul": 1, "min": 2, "max": 3}


class StrayWrites(Exception):
    """Raised if a kernel wrote outside of its result."""


class TensorOperations:
    """MIOpen's operations on tensors, made by ``tensor_operations``."""

    def __init__(self, hip: Hip, miopen: MiopenLibrary, dtype: str, stack: ExitStack) -> None:
        self.miopen = miopen
        self._hip = hip
        self._dtype = dtype
        self._stack = stack

    def tensor(
        self,
        shape: Sequence[int],
        memory: Sequence[float],
        strides: Optional[Sequence[int]] = None,
        dtype: Optional[str] = None,
    ) -> Tensor:
        """Copy ``memory``, a whole buffer including gaps between elements, to a tensor on the device."""
        descriptor = self.miopen.tensor_descriptor(dtype or self._dtype, shape, strides=strides)
        self._stack.enter_context(releasing(partial(self.miopen.destroy_tensor_descriptor, descriptor)))
        content = encode(memory, dtype or self._dtype)
        buffer = self._stack.enter_context(self._hip.allocate(len(content), MARGIN))
        buffer.write(content)
        return Tensor(descriptor, buffer)

    def read(self, tensor: Tensor, dtype: Optional[str] = None) -> list[float]:
        """Return the whole buffer of ``tensor``, including gaps between elements.

        Raise StrayWrites if a kernel wrote outside of the buffer.
        """
        self._hip.synchronize()
        content = tensor.buffer.read()
        stray = tensor.buffer.stray_writes()
        if stray:
            raise StrayWrites(f"{stray} bytes outside the result were written")
        return decode(content, dtype or self._dtype)

    def operate(
        self, operation: str, a: Tensor, b: Tensor, c: Tensor, scales: Sequence[float] = (1, 1, 0)
    ) -> None:
        """Compute c = operation(scales[0] * a, scales[1] * broadcast b) + scales[2] * c."""
        first, second, third = (ctypes.byref(ctypes.c_float(scale)) for scale in scales)
        self._call("miopenOpTensor", OPERATIONS[operation], first, *_of(a), second, *_of(b), third, *_of(c))

    def transform(self, source: Tensor, target: Tensor) -> None:
        """Copy between tensors of equal shape with ``miopenTransformTensor``."""
        self._call("miopenTransformTensor", _ONE, *_of(source), _ZERO, *_of(target))

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copy between tensors of equal shape with the function that MIOpen's RNN uses.

        A failure aborts the process.
        """
        function = self._exported(COPY_TENSOR)
        forced = (False,) if function == COPY_TENSOR[0] else ()
        self.miopen.library.call_procedure(
            function, self.miopen.handle, *_of(source), *_of(target), 0, 0, *forced
        )

    def cast(self, source: Tensor, target: Tensor) -> None:
        """Convert ``source`` to the dtype of ``target``. A failure aborts the process."""
        function = self._exported(CAST_TENSOR)
        clamps = (False,) if function == CAST_TENSOR[0] else ()
        self.miopen.library.call_procedure(
            function, self.miopen.handle, _ONE, *clamps, *_of(source), *_of(target), 0, 0
        )

    def set_all(self, tensor: Tensor, value: float) -> None:
        """Set every element to ``value``."""
        self._call("miopenSetTensor", *_of(tensor), encode([value], self._dtype))

    def scale(self, tensor: Tensor, factor: float) -> None:
        """Multiply every element by ``factor``."""
        self._call("miopenScaleTensor", *_of(tensor), encode([factor], self._dtype))

    def add_bias(self, bias: Tensor, y: Tensor) -> None:
        """Add ``bias`` (1, C, 1, ...) to y (N, C, ...)."""
        self._call("miopenConvolutionForwardBias", _ONE, *_of(bias), _ZERO, *_of(y))

    def bias_gradient(self, dy: Tensor, gradient: Tensor) -> None:
        """Sum each channel of dy (N, C, ...), and write the sums to ``gradient``."""
        self._call("miopenConvolutionBackwardBias", _ONE, *_of(dy), _ZERO, *_of(gradient))

    def _call(self, function: str, *arguments: Any) -> None:
        self.miopen.library.call(function, self.miopen.handle, *arguments)

    def _exported(self, functions: Sequence[str]) -> str:
        return next(filter(self.miopen.library.has, functions), functions[0])


_ONE = ctypes.byref(ctypes.c_float(1))
_ZERO = ctypes.byref(ctypes.c_float(0))


def _of(tensor: Tensor) -> tuple[int, int]:
    return tensor.descriptor.address, tensor.buffer.address


@contextmanager
def tensor_operations(hip: Hip, miopen: MiopenLibrary, dtype: str) -> Iterator[TensorOperations]:
    """Yield the operations for tensors of ``dtype``."""
    with ExitStack() as stack:
        yield TensorOperations(hip, miopen, dtype, stack)
