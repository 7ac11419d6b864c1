"""Cases: one question each, with an id that stays the same from run to run.

A case becomes one pytest item and one outcome. ``needs`` holds the ids of the cases it stands on;
where one of them failed, the case is blocked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Check:
    """A kind of question: its rung, what it asks, and whether it measures time or memory (then it
    has the device for itself)."""

    rung: str
    question: str
    exclusive: bool = False


CHECKS = {
    "copy": Check("copy", "Does the device open, and do bytes come back as they went?"),
    "elementwise": Check("elementwise", "Do PyTorch's own kernels, or HIP's, run and give exact results?"),
    "gemm": Check("gemm", "Does matrix multiplication (rocBLAS on AMD) give right numbers?"),
    "im2col": Check("im2col", "Do unfold and fold move every element to its place?"),
    "convolution": Check("conv", "Does convolution give right numbers, each direction apart?"),
    "gradients": Check("conv", "Do first and second derivatives agree with finite differences?"),
    "memory": Check("conv", "How much memory does convolution take and keep for backward?", exclusive=True),
    "throughput": Check("conv", "How fast is convolution, forward and with backward?", exclusive=True),
    "batch-norm": Check("batch-norm", "Does batch norm train and give right numbers?"),
    "training-step": Check("train", "Does a small CNN train as it does on the CPU in fp64?"),
}


@dataclass(frozen=True)
class Case:
    """One question to one device under one driver and setting."""

    device: str
    driver: str
    setting: str
    check: str
    dtype: str
    problem: Optional[str] = None
    direction: Optional[str] = None
    needs: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        what = (self.check, self.problem or self.dtype, self.direction)
        return "/".join(part for part in (self.device, self.driver, self.setting, *what) if part)

    @property
    def rung(self) -> str:
        return CHECKS[self.check].rung

    @property
    def exclusive(self) -> bool:
        return CHECKS[self.check].exclusive

    @property
    def trial_key(self) -> str:
        """What the cases of one child process share. Measurements have one of their own, in which the
        vendor library does not trace what it does: that takes time."""
        return "/".join((self.device, self.driver, self.setting, *(["measure"] if self.exclusive else [])))
