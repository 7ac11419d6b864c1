"""A simulated machine inside the child: faults where the real one would enter MIOpen, rocBLAS or a kernel.

What runs is this CPU. A convolution that the simulated machine would give to MIOpen runs in oneDNN; one
that it would not (vendor library off, float64, groups with dilation) runs in PyTorch's own kernels, as
there. The bypass is above the faults and never triggers those of MIOpen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache, partial
from typing import Any, Optional

from rocmprobe.backends import BACKENDS, Miopen
from rocmprobe.bypass import dispatch, other_layers, registration
from rocmprobe.bypass.calls import BackwardCall, ConvolutionCall, Gradients
from rocmprobe.checks.tools.context import Meter
from rocmprobe.simulate import accumulation
from rocmprobe.simulate.faulty_kernels import KernelBug, problem_of
from rocmprobe.simulate.machines import LIBRARIES, Fault, SimulatedMachine, torch_version
from rocmprobe.simulate.process_faults import ProcessFaults

_CPU = BACKENDS["onednn"]
#: By direction: who names the choice and how, and where and how it says that there is none (MIOpen 2.17).
_CALLS = {
    "fwd": ("FindConvFwdAlgorithm", "FW", 518, "Forward"),
    "bwd-data": ("FindConvBwdDataAlgorithm", "BWD", 892, "Backward Data"),
    "bwd-weights": ("FindConvBwdWeightsAlgorithm", "BWrW", 1107, "Backward Weights"),
}
_TRANSPOSED = {"fwd": "bwd-data", "bwd-data": "fwd", "bwd-weights": "bwd-weights"}
_NO_SOLVER = "No suitable algorithm was found to execute the required convolution"
_LEVEL_OF_CHOICE = 5
#: PyTorch gives MIOpen tensors of at most this many dimensions (MIOPEN_DIM_MAX).
_MIOPEN_DIMENSIONS = 5


class SimulatedMiopen(Miopen):
    """MIOpen's names and switches over a CPU; its version is the simulated machine's."""

    device_type = "cpu"
    # Half precision is lifted to fp32 around every convolution.
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

    def fillable_bytes(self, device: str, wanted: int) -> int:
        return _CPU.fillable_bytes(device, wanted)

    def memory_limit(self, device: str, above: int) -> Callable[[], AbstractContextManager[None]]:
        return _CPU.memory_limit(device, above)

    def demands_exactness(self) -> bool:
        return _CPU.demands_exactness()


def faults(
    machine: SimulatedMachine, setting: str, process_faults: ProcessFaults, device: str = "cuda:0"
) -> Callable[[], AbstractContextManager[None]]:
    """A context factory in which the faults of ``machine`` in libraries are in place under ``setting``, for
    one ``device`` of it."""
    tried = lru_cache(maxsize=None)(partial(_tried, machine, device))
    # What a bug leaves behind outlives the call.
    bugs = {fault.bug: KernelBug(fault.bug) for fault in machine.faults}

    @contextmanager
    def context() -> Iterator[None]:
        layers: list[dispatch.Interceptor] = [_Faults(machine, setting, process_faults, tried, bugs)]
        watch = _watched_operators(machine, setting, process_faults)
        if watch:
            layers.append(_WithinConvolutions(watch))
        with ExitStack() as stack:
            for layer in layers:
                registration.add_interceptor(layer, "cpu")
                stack.callback(registration.remove_interceptor, layer, "cpu")
            if watch:
                stack.enter_context(watch())
            yield

    return context


def _tried(machine: SimulatedMachine, device: str, problem: str, direction: str) -> tuple[str, ...]:
    return machine.in_play(problem, direction, device, os.environ)


class _Faults(dispatch.Interceptor):
    name = "faults"
    rank = dispatch.RANK_FAULTS

    def __init__(
        self,
        machine: SimulatedMachine,
        setting: str,
        process_faults: ProcessFaults,
        tried: Callable[[str, str], tuple[str, ...]],
        bugs: Mapping[str, KernelBug],
    ) -> None:
        self._tried = tried
        self._faults = tuple(fault for fault in machine.faults if not fault.operator)
        self._process_faults = process_faults
        self._setting = setting
        self._bugs = bugs
        self._version = torch_version(machine.machine) or (99, 0)
        # In 2.x it still blamed the parameters.
        self._says_no_solver = not str(machine.machine.value("miopen.version") or "3").startswith("2.")

    def convolution(self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], Any]) -> Any:
        fault, _ = self._apply_fault(call, ("fwd",))

        def right(each: ConvolutionCall) -> Any:
            with self._library(call):
                return accumulation.fp32_output(each, proceed)

        return self._bugs[fault.bug].output(call, right) if fault else right(call)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        wanted = tuple(
            direction for direction, wanted in zip(("bwd-data", "bwd-weights"), call.output_mask) if wanted
        )
        fault, affected = self._apply_fault(call, wanted)

        def right(each: BackwardCall) -> Gradients:
            with self._library(call):
                return accumulation.fp32_gradients(each, proceed)

        return self._bugs[fault.bug].gradients(call, affected, right) if fault else right(call)

    def _apply_fault(
        self, call: ConvolutionCall | BackwardCall, directions: tuple[str, ...]
    ) -> tuple[Optional[Fault], tuple[str, ...]]:
        """Apply the matching fault; returns it and its directions if its effect is on the result."""
        self._process_faults.refuse_if_poisoned()
        problem = problem_of(call)
        dtype, text = problem.dtype, problem.text
        library = "miopen" if self._enters_miopen(call) else "rocblas"
        tried = {d: self._tried(text, d) if library == "miopen" else () for d in directions}
        for fault in filter(self._process_faults.in_library, self._faults):
            affected = tuple(
                d
                for d in directions
                if fault.matches(self._setting, text, dtype, d, os.environ)
                and (not fault.solver or set(fault.solver) & set(tried[d]))
            )
            if fault.library == library and affected and self._process_faults.strikes_now(fault):
                wrong = fault.effect == "wrong"
                if wrong and library == "miopen" and not fault.stderr:
                    self._say(
                        text, {d: [n for n in tried[d] if n in fault.solver] or tried[d] for d in affected}
                    )
                self._process_faults.strike(fault, affected, text)
                if fault.effect == "search":
                    continue
                return (fault, affected) if wrong else (None, ())
        if library == "miopen":
            self._say(text, tried)
        return None, ()

    def _say(self, text: str, tried: Mapping[str, Sequence[str]]) -> None:
        """What MIOpen prints of its choice, or of having none, which it then raises."""
        for direction, names in tried.items():
            asked = _TRANSPOSED[direction] if text.startswith("conv_transpose") else direction
            function, word, line, failing = _CALLS[asked]
            if names and int(os.environ.get("MIOPEN_LOG_LEVEL", "0")) >= _LEVEL_OF_CHOICE:
                message = f"MIOpen(HIP): Info [{function}] {word} Chosen Algorithm: {names[0]} , 0, 0.02"
                os.write(2, f"{message}\n".encode())
            if not names:
                place = f"MIOpen Error: /MIOpen/src/ocl/convolutionocl.cpp:{line}: "
                words = f"{failing} Convolution cannot be executed due to incorrect params"
                os.write(2, f"{place}{_NO_SOLVER if self._says_no_solver else words}\n".encode())
                raise RuntimeError("miopenStatusUnknownError")

    def _enters_miopen(self, call: ConvolutionCall | BackwardCall) -> bool:
        """PyTorch's use_miopen (aten/src/ATen/native/Convolution.cpp)."""
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
        """oneDNN replaces MIOpen, PyTorch's own kernels run as they are."""
        if self._enters_miopen(call):
            self._process_faults.in_miopen = True
            try:
                yield
            finally:
                self._process_faults.in_miopen = False
        else:
            with _CPU.vendor_library_off():
                yield


class _WithinConvolutions(dispatch.Interceptor):
    """Keeps watch inside a convolution: PyTorch lifts a dispatch mode while it handles an operator, and
    the bypass multiplies its matrices there."""

    name = "watch"
    rank = dispatch.RANK_RECORDER

    def __init__(self, watch: Callable[[], AbstractContextManager[Any]]) -> None:
        self._watch = watch

    def convolution(self, call: ConvolutionCall, proceed: Callable[[ConvolutionCall], Any]) -> Any:
        with self._watch():
            return proceed(call)

    def convolution_backward(
        self, call: BackwardCall, proceed: Callable[[BackwardCall], Gradients]
    ) -> Gradients:
        with self._watch():
            return proceed(call)


#: What PyTorch takes apart on a CPU before a kernel is chosen: watched where Python calls it.
_TAKEN_APART = ("rnn_tanh", "rnn_relu", "lstm", "gru", "ctc_loss")
#: Of these, what never enters MIOpen; it has the name of the only backend that may compute it.
_ATTENTION = "scaled_dot_product_attention"
#: What of these a request to the bypass keeps out of MIOpen, by the parts of their names.
_KINDS = {"batch_norm": ("batch_norm",), "rnn": ("rnn_", "lstm", "gru"), "ctc_loss": ("ctc_loss",)}
#: Operators that multiply matrices; the last two inside of themselves.
_PRODUCTS = (
    "mm", "addmm", "bmm", "baddbmm", "addmm_", "baddbmm_", "_int_mm", "_slow_conv2d_forward",
    "_slow_conv2d_backward",
)  # fmt: skip
#: Where native_batch_norm has its argument ``training``.
_TRAINING = 5
#: The first torch that may give the CTC loss to MIOpen; 2.7 does not.
_CTC_SINCE = (2, 8)


def _watched_operators(
    machine: SimulatedMachine, setting: str, process_faults: ProcessFaults
) -> Optional[Callable[[], AbstractContextManager[Any]]]:
    """A context in which every operator meets the ``hip`` faults, matrix products those of ``rocblas``, and
    what else than convolution enters MIOpen its own; None where the machine has none of these."""
    # Those of triton strike in the compiler.
    faults = [
        fault
        for fault in machine.faults
        if fault.library in ("rocblas", "hip") or (fault.library == "miopen" and fault.operator)
    ]
    if not faults:
        return None
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    version = torch_version(machine.machine) or (99, 0)

    def with_faults(name: str, args: Any, result: Any, libraries: tuple[str, ...]) -> Any:
        """``result`` of the operator ``name``, unless a fault changes it or ends the process."""
        tensor = _first_tensor(result)
        dtype = "" if tensor is None else str(tensor.dtype).rpartition(".")[2]
        entered = {"hip"}
        if name in _PRODUCTS and not process_faults.in_miopen:
            entered.add("rocblas")
        if _enters_miopen(name, args, version):
            entered.add("miopen")
        for fault in filter(process_faults.in_library, faults):
            if (
                fault.library in libraries
                and fault.library in entered
                and re.search(fault.operator, name)
                and fault.matches(setting, "", dtype, "", os.environ)
                and process_faults.strikes_now(fault)
            ):
                process_faults.strike(fault, ())
                if fault.effect == "wrong" and tensor is not None and tensor.dim():
                    return _with_first(result, tensor)
        return result

    class Watch(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Nothing is compiled here, and to have it skipped imports all of torch._dynamo: a second a child.
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

    @contextmanager
    def watch() -> Iterator[None]:
        with Watch(), WatchCalls():
            yield

    return watch


def _enters_miopen(name: str, args: Any, version: tuple[int, int]) -> bool:
    """PyTorch's rules for what it gives MIOpen besides convolution (aten/src/ATen/native: Normalization.cpp,
    RNN.cpp, LossCTC.cpp)."""
    import torch

    kind = next((kind for kind, names in _KINDS.items() if any(each in name for each in names)), "")
    if not torch.backends.cudnn.enabled or other_layers.by_pytorch(kind, "cpu"):
        return False
    dtypes = [each.dtype if isinstance(each, torch.Tensor) else None for each in args[:3]]
    if "batch_norm" in name:
        # Backward has the gradient of the output in front.
        image, weight = dtypes[1:3] if "backward" in name else dtypes[:2]
        return image in (torch.float32, torch.float16) and weight == torch.float32
    if "ctc_loss" in name:
        return version >= _CTC_SINCE and dtypes[0] == torch.float32
    if name.startswith("mkldnn"):
        return False
    return name not in _TAKEN_APART or dtypes[0] in (torch.float32, torch.float16)


def _faulted_name(func: Any, args: Any) -> str:
    """The operator's name; batch norm that does not train, for which MIOpen has other kernels, has one of its
    own."""
    name = str(func.overloadpacket.__name__)
    evaluates = name == "native_batch_norm" and not args[_TRAINING]
    return "native_batch_norm_inference" if evaluates else name


def _attention_by_backend() -> str:
    """The function's name, with that of the backend where no other may compute it."""
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
    """``result`` with its first tensor spoiled: the first part of it doubled."""
    if tensor.requires_grad:
        # Autograd has it; what changes in place must be a copy.
        tensor = tensor.clone()
    tensor.select(0, 0).mul_(2)
    return (tensor, *result[1:]) if isinstance(result, tuple) else tensor
