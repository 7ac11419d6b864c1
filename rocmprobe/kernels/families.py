"""The families of kernels: what each can compute, in which variants, at which cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, Protocol

from rocmprobe.kernels import exact, gemm
from rocmprobe.kernels.geometry import BWD_DATA, BWD_WEIGHTS, FWD, Geometry
from rocmprobe.kernels.launches import Launch

#: In elements, of image, weight and feature.
Strides = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
#: The tensor that a direction writes.
RESULTS = {FWD: "feature", BWD_DATA: "image", BWD_WEIGHTS: "weight"}


@dataclass(frozen=True)
class Figures:
    """What a call takes.

    Attributes:
        workspace_bytes: needed besides the tensors.
        flops: multiplications and additions.
        moved_bytes: loaded and stored.
        launches: how many.
    """

    workspace_bytes: int
    flops: int
    moved_bytes: int
    launches: int


class Family(Protocol):
    """A module such as ``grouped`` or ``gemm``. Strides are in elements and have all dimensions."""

    def variants(
        self,
        direction: str,
        plain: Geometry,
        image_strides: Sequence[int],
        weight_strides: Sequence[int],
        feature_strides: Sequence[int],
        dtype: str,
        *,
        cap: int,
    ) -> Sequence[str]:
        """The kernels that compute a problem in ``cap`` bytes of workspace, the most promising first."""
        ...

    def figures(
        self,
        direction: str,
        plain: Geometry,
        image_strides: Sequence[int],
        weight_strides: Sequence[int],
        feature_strides: Sequence[int],
        dtype: str,
        variant: str,
        *,
        cap: int,
    ) -> Optional[Figures]:
        """What :meth:`prepare` would take; None where it prepares nothing."""
        ...

    def prepare(
        self,
        direction: str,
        plain: Geometry,
        image_strides: Sequence[int],
        weight_strides: Sequence[int],
        feature_strides: Sequence[int],
        dtype: str,
        variant: str,
        *,
        cap: int,
    ) -> Optional[tuple[Launch, ...]]:
        """The launches of one call; None where the tensors lie too far apart to be addressed, or ``cap`` is
        too small. The bias has one value, next to each other, for each channel of the result; its address may
        be 0."""
        ...


FAMILIES: dict[str, Family] = {"kernel-gemm": gemm}


def strides(plain: Geometry, channels_last: bool) -> Strides:
    """Those of dense tensors."""
    lay = exact.channels_last if channels_last else exact.contiguous
    image, weight, feature = map(lay, exact.shapes(plain).values())
    return image, weight, feature
