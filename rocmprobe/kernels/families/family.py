"""Interface of a family of kernels."""

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
        variant: name of the kernel within its family.
        workspace_bytes: bytes that the launches need in addition to the tensors.
        flops: number of multiplications and additions.
        moved_bytes: estimated bytes that are read and written. The family ``gemm`` counts only packed weights
            and partial sums.
        gemm_share: expected arithmetic throughput, as a fraction of the throughput of a matrix product.
    """

    variant: str
    workspace_bytes: int
    flops: int
    moved_bytes: int
    launches: int
    gemm_share: float


class Family(Protocol):
    """Interface that the modules ``grouped`` and ``gemm`` implement."""

    def options(
        self, direction: str, plain: Geometry, dtype: str, cap: int, every: bool = False
    ) -> list[Option]:
        """Return the options with at most ``cap`` bytes of workspace, the fastest by the cost estimate first.

        If ``every`` is True, also return options that are expected to be slow, for the self-test.
        """
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
        """Return the launches of an option. ``cap`` is the size of the workspace in bytes.

        Return None if the kernels cannot address a tensor, or if ``cap`` bytes are not enough.
        """
        ...
