"""What a device does in a second: the yardstick of the cost model."""

from __future__ import annotations

from dataclasses import dataclass

from rocmprobe.bypass.algorithms import Plan


@dataclass(frozen=True)
class Rates:
    """GEMM operations and bytes copied in a second, and the seconds of one kernel call."""

    flops: float
    bytes: float
    launch: float

    def seconds(self, plan: Plan) -> float:
        """What ``plan`` takes by this model: its parts one after another."""
        return plan.flops / self.flops + plan.moved_bytes / self.bytes + plan.launches * self.launch


#: Round figures, of a two-core CPU and of a mid-range GPU: what decides is their ratio.
USUAL = {"cpu": Rates(1.5e11, 1.2e10, 6e-6), "cuda": Rates(5e12, 2e11, 8e-6)}
