"""Interface of a family of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Protocol

from rocmprobe.geometry import Geometry
from rocmprobe.kernels.families.extents import Strides
from rocmprobe.kernels.launches import Launch


@dataclass(frozen=True)
class Option:
    """A kernel that can compute one direction of a convolution.

    Attributes:
        variant: name of the kernel within its family.
        kernels: names of all kernels that its launches can use, for tensors of any strides.
        workspace_bytes: bytes that the kernel needs in addition to the tensors.
        flops: number of multiplications and additions.
        moved_bytes: estimated bytes that are read and written. The family ``gemm`` counts only packed weights
            and partial sums.
        gemm_share: expected arithmetic throughput, as a fraction of the throughput of a matrix product.
    """

    variant: str
    kernels: frozenset[str]
    workspace_bytes: int
    flops: int
    moved_bytes: int
    launches: int
    gemm_share: float


class Family(Protocol):
    """Interface of the modules ``grouped`` and ``gemm``."""

    def options(
        self,
        direction: str,
        plain: Geometry,
        dtype: str,
        cap: int,
        compute_units: int,
        every: bool = False,
    ) -> list[Option]:
        """Return the kernels that need at most ``cap`` bytes of workspace.

        If ``every`` is True, also return kernels that are expected to be slow.
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
        """Return the launches of the kernel ``variant``. ``cap`` is the size of the workspace in bytes.

        Return None if the kernel cannot address a tensor, or if the workspace is too small.
        """
        ...
