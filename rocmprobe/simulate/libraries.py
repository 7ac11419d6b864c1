"""Libraries and compilers of a simulated machine.

oneDNN computes the convolutions that the real machine would run in MIOpen. PyTorch's own kernels compute all
other convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Optional

from rocmprobe.backends import BACKENDS, Miopen
from rocmprobe.bypass import dispatch, other_layers, registration
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.checks.tools.compiler import Compiler
from rocmprobe.checks.tools.context import Meter
from rocmprobe.simulate.gpu import SimulatedGpu
from rocmprobe.simulate.kernels import (
    fp32_gradients,
    fp32_output,
    problem_of,
    wrong_gradients,
    wrong_result,
)
from rocmprobe.simulate.machines import COMPILED, CTC_SINCE, LIBRARIES, Fault, SimulatedMachine, torch_version
from rocmprobe.text.versions import Release

_CPU = BACKENDS["onednn"]
#: PyTorch passes only tensors of at most this many dimensions to MIOpen (MIOPEN_DIM_MAX).
_MIOPEN_DIMENSIONS = 5


class SimulatedMiopen(Miopen):
    """A simulated MIOpen that computes with oneDNN."""

    device_type = "cpu"
    # Partial sums are not rounded, because half precision is computed in fp32.
    rounds_parts = False

    def __init__(self, machine: SimulatedMachine) -> None:
        self._version = machine.machine.value("miopen.version")

    def library_version(self) -> Optional[str]:
        return None if self._version is None else str(self._version)

    def synchronize(self, device: str) -> None:
        _CPU.synchronize(device)

    @contextmanager
    def meter(self, device: str) -> Iterator[Meter]:
        with _CPU.meter(device) as meter:
            yield meter

    def demands_exactness(self) -> bool:
        return _CPU.demands_exactness()


def library_faults(gpu: SimulatedGpu) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that creates a context in which the libraries have the faults of ``gpu``."""
    faults = _ConvolutionFaults(gpu)

    @contextmanager
    def context() -> Iterator[None]:
        layers: list[dispatch.Interceptor] = [faults]
        modes = _watching_modes(gpu)
        if modes:
            layers.append(_WithinConvolutions(modes[0]))
        with ExitStack() as stack:
            for layer in layers:
                registration.add_interceptor(layer, "cpu")
                stack.callback(registration.remove_interceptor, layer, "cpu")
            for mode in modes:
                stack.enter_context(mode())
            yield

    return context


class _ConvolutionFaults(dispatch.Interceptor):
    name = "faults"

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu
        self._version = torch_version(gpu.machine.machine) or (99, 0)

    def convolution(self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], Any]) -> Any:
        fault, _ = self._apply_fault(call, ("fwd",))
        with self._library(call):
            right = fp32_output(call, proceed)
        return wrong_result(fault, right) if fault else right

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        wanted = tuple(
            direction for direction, wanted in zip(("bwd-data", "bwd-weights"), call.output_mask) if wanted
        )
        fault, affected = self._apply_fault(call, wanted)
        with self._library(call):
            right = fp32_gradients(call, proceed)
        return wrong_gradients(fault, right, affected) if fault else right

    def _apply_fault(
        self, call: ConvolutionCall | BackwardCall, directions: tuple[str, ...]
    ) -> tuple[Optional[Fault], tuple[str, ...]]:
        """Inject the first fault that matches.

        Return the fault and the directions with wrong results, or (None, ()) if no result is wrong.
        """
        library = "miopen" if self._enters_miopen(call) else "rocblas"
        problem = problem_of(call)
        return self._gpu.convolution(library, problem.text, problem.dtype, directions)

    def _enters_miopen(self, call: ConvolutionCall | BackwardCall) -> bool:
        """Return True if PyTorch would run this convolution in MIOpen.

        Source: use_miopen in aten/src/ATen/native/Convolution.cpp.
        """
        import torch

        dilated = any(dilation != 1 for dilation in call.dilation)
        bias = isinstance(call, ConvolutionCall) and call.bias is not None
        refused_bf16 = self._version < (2, 2) and bias and call.input.dtype == torch.bfloat16
        return (
            call.input.dtype in (torch.float32, torch.float16, torch.bfloat16)
            and call.input.dim() <= _MIOPEN_DIMENSIONS
            and not (call.groups > 1 and dilated)
            and torch.backends.cudnn.enabled
            and not refused_bf16
        )

    @contextmanager
    def _library(self, call: ConvolutionCall | BackwardCall) -> Iterator[None]:
        if self._enters_miopen(call):
            self._gpu.in_miopen = True
            try:
                yield
            finally:
                self._gpu.in_miopen = False
        else:
            with _CPU.vendor_library_off():
                yield


class _WithinConvolutions(dispatch.Interceptor):
    """Interceptor that injects faults into the operators inside a convolution, e.g. matrix products.

    Do not use this class for function modes, because torch 1.13.1 would hang.
    """

    name = "watch"
    rank = 3

    def __init__(self, watch: Callable[[], AbstractContextManager[Any]]) -> None:
        self._watch = watch

    def convolution(self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], Any]) -> Any:
        # PyTorch disables a dispatch mode while the mode handles an operator. Enable the mode again.
        with self._watch():
            return proceed(call)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        with self._watch():
            return proceed(call)


#: Functions that PyTorch decomposes into other operators on a CPU. Their faults are injected into the call of
#: the function in Python.
_TAKEN_APART = ("rnn_tanh", "rnn_relu", "lstm", "gru", "ctc_loss")
#: PyTorch also decomposes this function, but never runs it in MIOpen. If a fault's ``operator`` is this name
#: plus "_flash" or "_efficient", the fault affects only that attention backend
#: (see ``_attention_by_backend``).
_ATTENTION = "scaled_dot_product_attention"
_KINDS = {"batch_norm": ("batch_norm",), "rnn": ("rnn_", "lstm", "gru"), "ctc_loss": ("ctc_loss",)}
_PRODUCTS = (
    "mm", "addmm", "bmm", "baddbmm", "addmm_", "baddbmm_", "_int_mm", "_slow_conv2d_forward",
    "_slow_conv2d_backward",
)  # fmt: skip
_TRAINING = 5


def _watching_modes(gpu: SimulatedGpu) -> tuple[Callable[[], AbstractContextManager[Any]], ...]:
    """Return contexts that inject faults into operators, or () if the machine has no such faults."""
    # Leave out Triton faults, which happen in the compiler.
    if not any(each.concerns_operators and each.library != "triton" for each in gpu.machine.faults):
        return ()
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    version = torch_version(gpu.machine.machine) or (99, 0)

    def with_faults(name: str, args: Any, result: Any, libraries: tuple[str, ...]) -> Any:
        tensor = _first_tensor(result)
        dtype = "" if tensor is None else str(tensor.dtype).rpartition(".")[2]
        entered = {"hip"}
        if name in _PRODUCTS and not gpu.in_miopen:
            entered.add("rocblas")
        if _enters_miopen(name, args, version):
            entered.add("miopen")
        changeable = tensor is not None and bool(tensor.dim())
        wrong = gpu.operator(tuple(entered.intersection(libraries)), name, dtype, changeable)
        return _with_first(result, tensor) if wrong else result

    class Watch(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # With True, torch would import torch._dynamo, and this import takes a second in each child.
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            return with_faults(_faulted_name(func, args), args, result, LIBRARIES)

    class WatchCalls(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            if name == _ATTENTION:
                return with_faults(_attention_by_backend(), args, result, ("hip",))
            return with_faults(name, args, result, ("miopen",)) if name in _TAKEN_APART else result

    return Watch, WatchCalls


def _enters_miopen(name: str, args: Any, version: Release) -> bool:
    """Return True if PyTorch would run the operator ``name``, which is not a convolution, in MIOpen.

    Source: aten/src/ATen/native, Normalization.cpp, RNN.cpp, LossCTC.cpp.
    """
    import torch

    kind = next((kind for kind, names in _KINDS.items() if any(each in name for each in names)), "")
    if not torch.backends.cudnn.enabled or other_layers.by_pytorch(kind, "cpu"):
        return False
    dtypes = [each.dtype if isinstance(each, torch.Tensor) else None for each in args[:3]]
    if "batch_norm" in name:
        # In backward, the gradient of the output comes first.
        image, weight = dtypes[1:3] if "backward" in name else dtypes[:2]
        return image in (torch.float32, torch.float16) and weight == torch.float32
    if "ctc_loss" in name:
        return version >= CTC_SINCE and dtypes[0] == torch.float32
    if name.startswith("mkldnn"):
        return False
    return name not in _TAKEN_APART or dtypes[0] in (torch.float32, torch.float16)


def _faulted_name(func: Any, args: Any) -> str:
    """Return the name by which a fault selects this operator."""
    name = str(func.overloadpacket.__name__)
    # MIOpen has separate kernels for batch norm in evaluation mode.
    evaluates = name == "native_batch_norm" and not args[_TRAINING]
    return "native_batch_norm_inference" if evaluates else name


def _attention_by_backend() -> str:
    import torch

    allowed: Any = torch.backends.cuda
    if allowed.math_sdp_enabled():
        return _ATTENTION
    return f"{_ATTENTION}_{'flash' if allowed.flash_sdp_enabled() else 'efficient'}"


def _first_tensor(result: Any) -> Any:
    import torch

    first = result[0] if isinstance(result, tuple) and result else result
    return first if isinstance(first, torch.Tensor) else None


def _with_first(result: Any, tensor: Any) -> Any:
    if tensor.requires_grad:
        # Change a copy, because autograd uses this tensor.
        tensor = tensor.clone()
    tensor.select(0, 0).mul_(2)
    return (tensor, *result[1:]) if isinstance(result, tuple) else tensor


_KERNEL, _INDUCTOR = COMPILED


class SimulatedCompiler(Compiler):
    """Simulated compilers that compile nothing. PyTorch computes the results."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu

    def launch(self, source: Any, target: Any) -> None:
        if not self._is_wrong(_KERNEL, source):
            target.copy_(source * 2 + 1)

    def compiled(self, net: Any) -> Any:
        def call(images: Any) -> Any:
            output = net(images)
            if not self._is_wrong(_INDUCTOR, images):
                return output
            factors = output.new_ones(len(output), *[1] * (output.dim() - 1))
            factors[0] = 2
            return output * factors

        return call

    @contextmanager
    def compiling(self) -> Iterator[None]:
        yield

    def _is_wrong(self, kind: str, tensor: Any) -> bool:
        return self._gpu.operator(("triton",), kind, str(tensor.dtype).rpartition(".")[2])
