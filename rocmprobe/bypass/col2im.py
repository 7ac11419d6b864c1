"""bwd-data as weight times gradient, whose columns are added back into the image."""

from __future__ import annotations

from itertools import product

import torch

from rocmprobe.bypass.columns import add_back
from rocmprobe.bypass.gemm import Buffer, matrices_in, multiply, ranges
from rocmprobe.bypass.geometry import Geometry
from rocmprobe.bypass.im2col import inside
from rocmprobe.bypass.plan import Plan


def backward_data(
    plain: Geometry,
    plan: Plan,
    gradient: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None,
    image: torch.Tensor,
) -> None:
    """Write bwd-data for the ``gradient`` of the feature, plus a bias for each channel, into ``image``.

    ``weight`` holds the matrices ``(groups, filters / groups, depth)`` in the dtype of the GEMMs.
    """
    dtype = weight.dtype
    columns, staged, sums = (Buffer(gradient, dtype) for _ in range(3))
    transposed = weight.transpose(1, 2)
    start = None if bias is None else bias.reshape(1, -1, *(1 for _ in plain.image))
    for first, last in ranges(plain.batch, plan.samples):
        # Taps of neighbouring windows meet in one element, so the sum has to stay in fp32 to its end.
        target = image[first:last]
        total = target if target.dtype == dtype else sums.take(target.shape)
        if start is None:
            total.zero_()
        else:
            total.copy_(start.expand(total.shape))
        for box in product(*(ranges(size, step) for size, step in zip(plain.feature, plan.tile))):
            features = matrices_in(inside(gradient[first:last], box), plain.groups, staged, dtype)
            taps = columns.take((plain.groups, plain.depth, features.shape[-1]))
            multiply(transposed, features, taps)
            add_back(total, taps, plain, box)
        if total is not target:
            target.copy_(total)
