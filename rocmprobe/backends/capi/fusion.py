"""Fusion plans: several operators that MIOpen runs as one kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from rocmprobe.backends.capi.batch_norm import EPSILON
from rocmprobe.backends.capi.miopen import SPATIAL, Descriptor, MiopenLibrary, Tensor
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.runtimes.calls import CallFailed, releasing

_VERTICAL = 0
_RELU = 3
#: Statuses that MIOpen returns if it has no kernel for the operators of a plan.
_UNSUPPORTED = ("miopenStatusUnsupportedOp", "miopenStatusNotImplemented")


class FusionPlan:
    """A sequence of operators that MIOpen fuses, made by ``fusion_plan``.

    If MIOpen has no kernel for the plan, ``run`` raises NotApplicable. In old releases of MIOpen, the method
    that adds the unsupported operator raises NotApplicable, before ``run``.
    """

    def __init__(self, miopen: MiopenLibrary, plan: Descriptor, arguments: Descriptor) -> None:
        self._miopen = miopen
        self._plan = plan
        self._arguments = arguments
        self._set_arguments: list[partial[None]] = []
        self._scales = ctypes.c_float(1), ctypes.c_float(0)

    def add_convolution(self, convolution: Descriptor, weight: Tensor) -> None:
        operator = self._add("ConvForward", convolution.address, weight.descriptor.address)
        self._set_on_run("ConvForward", operator, weight.buffer.address)

    def add_bias(self, bias: Tensor) -> None:
        operator = self._add("BiasForward", bias.descriptor.address)
        self._set_on_run("BiasForward", operator, bias.buffer.address)

    def add_batch_norm(
        self, derived: Descriptor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
    ) -> None:
        """Add batch norm with the given mean and variance.

        ``derived`` is the descriptor of all four parameters.
        """
        operator = self._add("BatchNormInference", SPATIAL, derived.address)
        factors = (each.buffer.address for each in (scale, bias, mean, variance))
        self._set_on_run("BatchNormInference", operator, *factors, EPSILON)

    def add_relu(self) -> None:
        operator = self._add("ActivationForward", _RELU)
        self._set_on_run("ActivForward", operator, 0.0, 0.0, 0.0)

    def run(self, x: Tensor, y: Tensor) -> None:
        """Compile the plan, and run it on ``x``. Write the result to ``y``."""
        self._call_refusable("miopenCompileFusionPlan", self._miopen.handle, self._plan.address)
        # Compile first, then set the arguments, like PyTorch.
        for set_argument in self._set_arguments:
            set_argument()
        self._miopen.library.call(
            "miopenExecuteFusionPlan", self._miopen.handle, self._plan.address, x.descriptor.address,
            x.buffer.address, y.descriptor.address, y.buffer.address, self._arguments.address,
        )  # fmt: skip

    def _add(self, name: str, *arguments: int) -> int:
        operator = ctypes.c_void_p()
        self._call_refusable(f"miopenCreateOp{name}", self._plan.address, ctypes.byref(operator), *arguments)
        return operator.value or 0

    def _set_on_run(self, name: str, operator: int, *arguments: float) -> None:
        one, zero = map(ctypes.byref, self._scales)
        call, address = self._miopen.library.call, self._arguments.address
        set_arguments = partial(call, f"miopenSetOpArgs{name}", address, operator, one, zero, *arguments)
        self._set_arguments.append(set_arguments)

    def _call_refusable(self, function: str, *arguments: Any) -> None:
        try:
            self._miopen.library.call(function, *arguments)
        except CallFailed as failure:
            if failure.call.name in _UNSUPPORTED:
                raise NotApplicable(f"MIOpen has no kernel for these operators: {failure}") from failure
            raise


@contextmanager
def fusion_plan(miopen: MiopenLibrary, x: Tensor) -> Iterator[FusionPlan]:
    """Yield an empty plan for the input ``x``."""
    with ExitStack() as stack:
        call = miopen.library.call
        plan = miopen.created("miopenCreateFusionPlan", _VERTICAL, x.descriptor.address)
        stack.enter_context(releasing(partial(call, "miopenDestroyFusionPlan", plan.address)))
        arguments = miopen.created("miopenCreateOperatorArgs")
        stack.enter_context(releasing(partial(call, "miopenDestroyOperatorArgs", arguments.address)))
        yield FusionPlan(miopen, plan, arguments)
