"""The compilers of a simulated machine: what their kernels would compute, and the faults that they meet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rocmprobe.checks.tools.compiler import Compiler
from rocmprobe.simulate.machines import COMPILED, SimulatedMachine
from rocmprobe.simulate.process_faults import ProcessFaults

_KERNEL, _INDUCTOR = COMPILED


class SimulatedCompiler(Compiler):
    """Nothing is compiled: PyTorch computes what a right kernel would. A wrong kernel writes nothing; what
    Inductor makes wrong doubles the first of its images."""

    def __init__(self, machine: SimulatedMachine, setting: str, process_faults: ProcessFaults) -> None:
        self._faults = [fault for fault in machine.faults if fault.library == "triton"]
        self._setting = setting
        self._process_faults = process_faults

    def launch(self, source: Any, target: Any) -> None:
        if not self._struck(_KERNEL, source):
            target.copy_(source * 2 + 1)

    def compiled(self, net: Any) -> Any:
        def call(images: Any) -> Any:
            output = net(images)
            if not self._struck(_INDUCTOR, images):
                return output
            factors = output.new_ones(len(output), *[1] * (output.dim() - 1))
            factors[0] = 2
            return output * factors

        return call

    @contextmanager
    def compiling(self) -> Iterator[None]:
        yield

    def _struck(self, kind: str, tensor: Any) -> bool:
        """Whether a fault makes the kernel wrong; one of another effect takes it."""
        dtype = str(tensor.dtype).rpartition(".")[2]
        for fault in filter(self._process_faults.in_library, self._faults):
            applies = fault.operator == kind and fault.matches(self._setting, "", dtype, "", os.environ)
            if applies and self._process_faults.strikes_now(fault):
                self._process_faults.strike(fault, ())
                return fault.effect == "wrong"
        return False
