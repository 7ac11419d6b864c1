"""Convolution by libMIOpen's Find interface, which PyTorch uses, too.

The values of enum constants come from include/miopen/miopen.h. The functions have had the same arguments from
ROCm 3.5 (MIOpen 2.4) to ROCm 6.3 (MIOpen 3.3).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Optional

from rocmprobe.knowledge.miopen_log import STATUSES
from rocmprobe.model.problems import Problem
from rocmprobe.runtimes.calls import INT, POINTER, SIZE, Observer, SharedLibrary, releasing
from rocmprobe.runtimes.hip import Hip
from rocmprobe.runtimes.memory import Buffer

#: (number in MIOpen, bytes of an element), keyed by dtype.
_DTYPES = {"float16": (0, 2), "float32": (1, 4), "bfloat16": (5, 2)}
#: Names of the algorithms, keyed by number (miopenConvAlgorithm_t). Algorithm 4 exists only for bwd-data.
_ALGORITHMS = {0: "GEMM", 1: "Direct", 2: "FFT", 3: "Winograd", 4: "TransposeGEMM", 5: "ImplicitGEMM"}
_FIND = (
    POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER,
    INT, POINTER, POINTER, POINTER, SIZE, ctypes.c_bool,
)  # fmt: skip
_RUN = (
    POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, INT,
    POINTER, POINTER, POINTER, POINTER, SIZE,
)  # fmt: skip
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "miopenCreate": (POINTER,),
    "miopenCreateTensorDescriptor": (POINTER,),
    "miopenSetTensorDescriptor": (POINTER, INT, INT, POINTER, POINTER),
    "miopenDestroyTensorDescriptor": (POINTER,),
    "miopenCreateConvolutionDescriptor": (POINTER,),
    "miopenInitConvolutionNdDescriptor": (POINTER, INT, POINTER, POINTER, POINTER, INT),
    "miopenSetConvolutionGroupCount": (POINTER, INT),
    "miopenDestroyConvolutionDescriptor": (POINTER,),
}
for _name in ("Forward", "BackwardData", "BackwardWeights"):
    _SIGNATURES[f"miopenFindConvolution{_name}Algorithm"] = _FIND
    _SIGNATURES[f"miopenConvolution{_name}"] = _RUN
    _SIGNATURES[f"miopenConvolution{_name}GetWorkSpaceSize"] = (POINTER,) * 6
#: Number of bytes before and after a result that are checked for stray writes. It is a multiple of every
#: alignment that a kernel can need, so the result stays aligned.
_MARGIN = 4096


@dataclass(frozen=True)
class _Direction:
    """A direction of convolution in MIOpen's interface.

    ``find_order`` is the order of the operands x, w and y for Find. ``size_order`` is their order for the
    query of the workspace. ``result`` is the tensor that the direction computes.
    """

    name: str
    find_order: str
    size_order: str
    result: str


_DIRECTIONS = {
    "fwd": _Direction("Forward", "xw", "wx", "y"),
    "bwd-data": _Direction("BackwardData", "yw", "yw", "x"),
    "bwd-weights": _Direction("BackwardWeights", "yx", "yx", "w"),
}


class _AlgoPerf(ctypes.Structure):
    _fields_ = (("algorithm", INT), ("time", ctypes.c_float), ("memory", SIZE))


@dataclass(frozen=True)
class Algorithm:
    """An algorithm that Find returned, with its workspace in bytes."""

    number: int
    workspace: int

    @property
    def algorithm(self) -> str:
        return _ALGORITHMS.get(self.number, f"algorithm {self.number}")


@dataclass(frozen=True)
class _Tensor:
    """The address of a tensor descriptor, and the tensor's device memory."""

    descriptor: int
    buffer: Buffer


def _status_name(library: SharedLibrary, number: int) -> str:
    return STATUSES[number] if 0 <= number < len(STATUSES) else "unknown miopenStatus_t"


class Miopen:
    """MIOpen with one handle on the current device.

    A failed call raises CallFailed, and a missing function raises NotAvailable. A library that does not load
    raises LoadFailed.
    """

    def __init__(self, path: str, observe: Optional[Observer] = None) -> None:
        self.library = SharedLibrary(path, _SIGNATURES, _status_name, observe)
        self.handle = ctypes.c_void_p()
        self.library.call("miopenCreate", ctypes.byref(self.handle))

    @contextmanager
    def tensor_descriptor(self, dtype: str, shape: Sequence[int]) -> Iterator[int]:
        """Yield the address of the descriptor of a packed tensor (N, C, ...)."""
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        arrays = [(INT * len(shape))(*values) for values in (shape, strides)]
        with self._created("TensorDescriptor") as descriptor:
            self.library.call("miopenSetTensorDescriptor", descriptor, _DTYPES[dtype][0], len(shape), *arrays)
            yield descriptor

    @contextmanager
    def convolution_descriptor(
        self, padding: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int
    ) -> Iterator[int]:
        """Yield the address of the descriptor of a cross-correlation in two or three dimensions."""
        rank = len(padding)
        arrays = [(INT * rank)(*values) for values in (padding, stride, dilation)]
        with self._created("ConvolutionDescriptor") as descriptor:
            self.library.call("miopenInitConvolutionNdDescriptor", descriptor, rank, *arrays, 0)
            self.library.call("miopenSetConvolutionGroupCount", descriptor, groups)
            yield descriptor

    @contextmanager
    def _created(self, kind: str) -> Iterator[int]:
        address = ctypes.c_void_p()
        self.library.call(f"miopenCreate{kind}", ctypes.byref(address))
        with releasing(partial(self.library.call, f"miopenDestroy{kind}", address)):
            yield address.value or 0


class Convolution:
    """A convolution in one direction with tensors x, w and y, made by ``convolution``."""

    def __init__(
        self, miopen: Miopen, descriptor: int, tensors: Mapping[str, _Tensor], direction: _Direction
    ) -> None:
        self._miopen = miopen
        self._descriptor = descriptor
        self._tensors = tensors
        self._direction = direction

    @property
    def result(self) -> Buffer:
        return self._tensors[self._direction.result].buffer

    def workspace_size(self) -> int:
        """Return the workspace in bytes that Find needs to try every solver."""
        size, direction = SIZE(), self._direction
        first, second, result = (
            self._tensors[name].descriptor for name in direction.size_order + direction.result
        )
        self._call("{}GetWorkSpaceSize", first, second, self._descriptor, result, ctypes.byref(size))
        return size.value

    def find(self, workspace: Buffer) -> list[Algorithm]:
        """Run Find, and return the algorithms that it found, the fastest first."""
        results, count = (_AlgoPerf * len(_ALGORITHMS))(), INT()
        operands, computed = (
            self._operands(self._direction.find_order),
            self._operands(self._direction.result),
        )
        found = (len(results), ctypes.byref(count), results)
        memory = (workspace.address, workspace.size)
        function = f"miopenFindConvolution{self._direction.name}Algorithm"
        call = partial(self._miopen.library.call, function, self._miopen.handle)
        call(*operands, self._descriptor, *computed, *found, *memory, False)
        return [Algorithm(entry.algorithm, entry.memory) for entry in results[: count.value]]

    def run(self, algorithm: Algorithm, workspace: Buffer) -> None:
        """Run an algorithm that ``find`` returned."""
        one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
        operands, computed = (
            self._operands(self._direction.find_order),
            self._operands(self._direction.result),
        )
        how = (self._descriptor, algorithm.number)
        self._call("{}", one, *operands, *how, zero, *computed, workspace.address, workspace.size)

    def _operands(self, names: str) -> list[int]:
        tensors = [self._tensors[name] for name in names]
        return [address for tensor in tensors for address in (tensor.descriptor, tensor.buffer.address)]

    def _call(self, template: str, *arguments: object) -> None:
        function = "miopenConvolution" + template.format(self._direction.name)
        self._miopen.library.call(function, self._miopen.handle, *arguments)


@contextmanager
def convolution(
    hip: Hip, miopen: Miopen, problem: Problem, direction: str, contents: Mapping[str, bytes]
) -> Iterator[Convolution]:
    """Yield a convolution whose tensors are on the device, contiguous.

    ``contents`` has the bytes of the operands, keyed by "x", "w" and "y". ``problem`` must not be transposed.
    """
    # Like PyTorch, compute a 1-d convolution as a 2-d convolution of height one.
    lifted = (1,) if problem.rank == 1 else ()
    shapes = {"x": problem.input_shape, "w": problem.weight_shape, "y": problem.output_shape}
    its_direction = _DIRECTIONS[direction]
    with ExitStack() as stack:
        tensors = {}
        for name, shape in shapes.items():
            descriptor = stack.enter_context(
                miopen.tensor_descriptor(problem.dtype, (*shape[:2], *lifted, *shape[2:]))
            )
            is_result = name == its_direction.result
            size = _DTYPES[problem.dtype][1] * prod(shape)
            buffer = stack.enter_context(hip.allocate(size, _MARGIN if is_result else 0))
            if is_result:
                # 0xFF bytes are NaN in every dtype, so elements that a kernel does not write are visible.
                buffer.fill(0xFF)
            else:
                buffer.write(contents[name])
            tensors[name] = _Tensor(descriptor, buffer)
        described = stack.enter_context(
            miopen.convolution_descriptor(
                tuple(0 for _ in lifted) + problem.padding,
                lifted + problem.stride,
                lifted + problem.dilation,
                problem.groups,
            )
        )
        yield Convolution(miopen, described, tensors, its_direction)
