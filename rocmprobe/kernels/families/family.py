"""What a family of kernels says of itself: what it can compute, in which variants, at which cost. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Protocol

from rocmprobe.geometry import Geometry
from rocmprobe.kernels.families.extents import Strides
from rocmprobe.kernels.launches import Launch


@dataclass(frozen=True)
class Option:
    """One way to compute a direction of a problem.

    Attributes:
        variant: names the kernel among those of its family.
        workspace_bytes: what the launches need besides the tensors.
        flops: multiplications and additions.
        moved_bytes: what is read and written besides the operands of the sums.
        launches: how many.
        gemm_share: the share of the rate of a GEMM that its sums are expected to reach.
    """

    variant: str
    workspace_bytes: int
    flops: int
    moved_bytes: int
    launches: int
    gemm_share: float


class Family(Protocol):
    """A module: ``grouped`` or ``gemm``."""

    def options(
        self, direction: str, plain: Geometry, dtype: str, cap: int, every: bool = False
    ) -> list[Option]:
        """The ways under ``cap`` bytes of workspace, the most promising first; none where none applies. With
        ``every`` also those that are not worth a try, for the self-test."""
        ...

    def prepare(
        self,
        direction: str,
        plain: Geometry,
        dtype: str,
        variant: str,
        *,
        image: Strides,
        weight: Strides,
        feature: Strides,
        has_bias: bool,
        cap: int,
    ) -> Optional[tuple[Launch, ...]]:
        """The launches of an option, which need no more workspace than it said; None where the tensors lie
        too far apart to be addressed."""
        ...
