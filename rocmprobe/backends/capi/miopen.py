"""The C interface of libMIOpen: version, handle and descriptors.

The values of enum constants come from include/miopen/miopen.h. The functions in this package have had the
same arguments from ROCm 3.5 (MIOpen 2.4) to ROCm 6.3 (MIOpen 3.3). Find 2.0 exists only since ROCm 5.4.

``CopyTensor`` and ``CastTensor`` are not in MIOpen's C interface. Linux builds export them as C++ functions
(src/include/miopen/tensor_ops.hpp).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, Optional

from rocmprobe.knowledge.miopen_log import STATUSES
from rocmprobe.runtimes.calls import (
    INT,
    POINTER,
    SIZE,
    CallFailed,
    NotAvailable,
    Observer,
    SharedLibrary,
)
from rocmprobe.runtimes.memory import Buffer

DATATYPES = {"float16": 0, "float32": 1, "bfloat16": 5, "float64": 6}
#: ``miopenBNSpatial``: batch norm with one mean and one variance per channel.
SPATIAL = 1
_FIND = (
    POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER,
    INT, POINTER, POINTER, POINTER, SIZE, ctypes.c_bool,
)  # fmt: skip
_RUN = (
    POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, INT,
    POINTER, POINTER, POINTER, POINTER, SIZE,
)  # fmt: skip
_FIVE = (POINTER, POINTER, POINTER, POINTER, POINTER)
_IMMEDIATE = (
    POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, SIZE, ctypes.c_uint64
)  # fmt: skip
#: Exported names of ``miopen::CopyTensor``: first the name since ROCm 6.0, then the older name. If the
#: last argument of the newer function is True, a kernel copies even packed tensors.
COPY_TENSOR = (
    "_ZN6miopen10CopyTensorERKNS_6HandleERKNS_16TensorDescriptorEPKvS5_Pviib",
    "_ZN6miopen10CopyTensorERKNS_6HandleERKNS_16TensorDescriptorEPKvS5_Pvii",
)
#: Exported names of ``miopen::CastTensor``: first the name since ROCm 6.1, then the older name. The third
#: argument of the newer function turns clamping on.
CAST_TENSOR = (
    "_ZN6miopen10CastTensorERKNS_6HandleEPKvbRKNS_16TensorDescriptorES4_S7_Pvii",
    "_ZN6miopen10CastTensorERKNS_6HandleEPKvRKNS_16TensorDescriptorES4_S7_Pvii",
)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "miopenGetVersion": (POINTER, POINTER, POINTER),
    "miopenCreate": (POINTER,),
    "miopenDestroy": (POINTER,),
    "miopenCreateTensorDescriptor": (POINTER,),
    "miopenSetTensorDescriptor": (POINTER, INT, INT, POINTER, POINTER),
    "miopenDestroyTensorDescriptor": (POINTER,),
    "miopenCreateConvolutionDescriptor": (POINTER,),
    "miopenInitConvolutionNdDescriptor": (POINTER, INT, POINTER, POINTER, POINTER, INT),
    "miopenSetConvolutionGroupCount": (POINTER, INT),
    "miopenDestroyConvolutionDescriptor": (POINTER,),
    "miopenCreateConvProblem": (POINTER, POINTER, INT),
    "miopenSetProblemTensorDescriptor": (POINTER, INT, POINTER),
    "miopenFindSolutions": (POINTER, POINTER, POINTER, POINTER, POINTER, SIZE),
    "miopenGetSolutionWorkspaceSize": (POINTER, POINTER),
    "miopenGetSolutionTime": (POINTER, POINTER),
    "miopenGetSolutionSolverId": (POINTER, POINTER),
    "miopenGetSolverIdConvAlgorithm": (ctypes.c_uint64, POINTER),
    "miopenRunSolution": (POINTER, POINTER, SIZE, POINTER, POINTER, SIZE),
    "miopenDestroySolution": (POINTER,),
    "miopenDestroyProblem": (POINTER,),
    "miopenDeriveBNTensorDescriptor": (POINTER, POINTER, INT),
    "miopenBatchNormalizationForwardTraining": (
        POINTER, INT, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER,
        ctypes.c_double, POINTER, POINTER, ctypes.c_double, POINTER, POINTER,
    ),
    "miopenBatchNormalizationForwardInference": (
        POINTER, INT, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER,
        POINTER, POINTER, ctypes.c_double,
    ),
    "miopenBatchNormalizationBackward": (
        POINTER, INT, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER,
        POINTER, POINTER, POINTER, POINTER, POINTER, ctypes.c_double, POINTER, POINTER,
    ),
    "miopenOpTensor": (
        POINTER, INT, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER
    ),
    "miopenTransformTensor": (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER),
    "miopenSetTensor": (POINTER, POINTER, POINTER, POINTER),
    "miopenScaleTensor": (POINTER, POINTER, POINTER, POINTER),
    COPY_TENSOR[0]: (POINTER, POINTER, POINTER, POINTER, POINTER, INT, INT, ctypes.c_bool),
    COPY_TENSOR[1]: (POINTER, POINTER, POINTER, POINTER, POINTER, INT, INT),
    CAST_TENSOR[0]: (POINTER, POINTER, ctypes.c_bool, POINTER, POINTER, POINTER, POINTER, INT, INT),
    CAST_TENSOR[1]: (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, INT, INT),
    "miopenConvolutionForwardBias": (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER),
    "miopenConvolutionBackwardBias": (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER),
    "miopenCreateFusionPlan": (POINTER, INT, POINTER),
    "miopenDestroyFusionPlan": (POINTER,),
    "miopenCreateOpConvForward": (POINTER, POINTER, POINTER, POINTER),
    "miopenCreateOpBiasForward": (POINTER, POINTER, POINTER),
    "miopenCreateOpActivationForward": (POINTER, POINTER, INT),
    "miopenCreateOpBatchNormInference": (POINTER, POINTER, INT, POINTER),
    "miopenCompileFusionPlan": (POINTER, POINTER),
    "miopenCreateOperatorArgs": (POINTER,),
    "miopenDestroyOperatorArgs": (POINTER,),
    "miopenSetOpArgsConvForward": (POINTER, POINTER, POINTER, POINTER, POINTER),
    "miopenSetOpArgsBiasForward": (POINTER, POINTER, POINTER, POINTER, POINTER),
    "miopenSetOpArgsActivForward": (
        POINTER, POINTER, POINTER, POINTER, ctypes.c_double, ctypes.c_double, ctypes.c_double
    ),
    "miopenSetOpArgsBatchNormInference": (
        POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, ctypes.c_double
    ),
    "miopenExecuteFusionPlan": (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER),
}  # fmt: skip
for _direction in ("Forward", "BackwardData", "BackwardWeights"):
    _SIGNATURES[f"miopenFindConvolution{_direction}Algorithm"] = _FIND
    _SIGNATURES[f"miopenConvolution{_direction}"] = _RUN
    _SIGNATURES[f"miopenConvolution{_direction}GetWorkSpaceSize"] = (*_FIVE, POINTER)
    _SIGNATURES[f"miopenConvolution{_direction}GetSolutionCount"] = (*_FIVE, POINTER)
    _SIGNATURES[f"miopenConvolution{_direction}GetSolution"] = (*_FIVE, SIZE, POINTER, POINTER)
    _SIGNATURES[f"miopenConvolution{_direction}CompileSolution"] = (*_FIVE, ctypes.c_uint64)
    _SIGNATURES[f"miopenConvolution{_direction}Immediate"] = _IMMEDIATE


def _status_name(library: SharedLibrary, number: int) -> str:
    return STATUSES[number] if 0 <= number < len(STATUSES) else "unknown miopenStatus_t"


@dataclass(frozen=True)
class Descriptor:
    """The address of an object that MIOpen created, such as a tensor descriptor."""

    address: int


@dataclass(frozen=True)
class Tensor:
    """A tensor descriptor and the tensor's device memory."""

    descriptor: Descriptor
    buffer: Buffer


class MiopenLibrary:
    """MIOpen with one handle.

    A failed call raises CallFailed, and a missing function raises NotAvailable. A library that does not load
    raises LoadFailed.
    """

    def __init__(self, path: str, observe: Optional[Observer] = None) -> None:
        self.library = SharedLibrary(path, _SIGNATURES, _status_name, observe)
        self.handle = ctypes.c_void_p()

    def version(self) -> str:
        """Return MIOpen's version, such as "3.4.0". The call needs no GPU."""
        numbers = [SIZE() for _ in range(3)]
        self.library.call("miopenGetVersion", *map(ctypes.byref, numbers))
        return ".".join(str(number.value) for number in numbers)

    def create(self) -> None:
        """Create the handle on the current device."""
        self.library.call("miopenCreate", ctypes.byref(self.handle))

    def destroy(self) -> None:
        self.library.call("miopenDestroy", self.handle)
        self.handle = ctypes.c_void_p()

    def tensor_descriptor(
        self,
        dtype: str,
        shape: Sequence[int],
        channels_last: bool = False,
        strides: Optional[Sequence[int]] = None,
    ) -> Descriptor:
        """Return the descriptor of a tensor of ``shape`` (N, C, ...), packed if ``strides`` is None."""
        lengths = (INT * len(shape))(*shape)
        steps = (INT * len(shape))(*(strides or _strides(shape, channels_last)))
        descriptor = self.created("miopenCreateTensorDescriptor")
        self.library.call(
            "miopenSetTensorDescriptor", descriptor.address, DATATYPES[dtype], len(shape), lengths, steps
        )
        return descriptor

    def destroy_tensor_descriptor(self, descriptor: Descriptor) -> None:
        self.library.call("miopenDestroyTensorDescriptor", descriptor.address)

    def convolution_descriptor(
        self,
        padding: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> Descriptor:
        """Return the descriptor of a cross-correlation in two or three dimensions."""
        rank = len(padding)
        arrays = [(INT * rank)(*values) for values in (padding, stride, dilation)]
        descriptor = self.created("miopenCreateConvolutionDescriptor")
        self.library.call("miopenInitConvolutionNdDescriptor", descriptor.address, rank, *arrays, 0)
        self.library.call("miopenSetConvolutionGroupCount", descriptor.address, groups)
        return descriptor

    def destroy_convolution_descriptor(self, descriptor: Descriptor) -> None:
        self.library.call("miopenDestroyConvolutionDescriptor", descriptor.address)

    def derived_descriptor(self, tensor: Descriptor, batch_norm_mode: int) -> Descriptor:
        """Return the descriptor of batch norm's parameters (e.g. scale) for the input ``tensor``."""
        derived = self.created("miopenCreateTensorDescriptor")
        try:
            self.library.call(
                "miopenDeriveBNTensorDescriptor", derived.address, tensor.address, batch_norm_mode
            )
        except (CallFailed, NotAvailable):
            with suppress(CallFailed):
                self.destroy_tensor_descriptor(derived)
            raise
        return derived

    def created(self, function: str, *arguments: Any) -> Descriptor:
        """Call ``function``, which creates an object, and return the object."""
        address = ctypes.c_void_p()
        self.library.call(function, ctypes.byref(address), *arguments)
        return Descriptor(address.value or 0)


def _strides(shape: Sequence[int], channels_last: bool) -> list[int]:
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if channels_last:
        _, channels, *sizes = shape
        strides = [channels * prod(sizes), 1]
        strides += [channels * prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    return strides
