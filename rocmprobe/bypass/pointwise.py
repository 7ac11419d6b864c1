"""1x1 convolutions at stride 1: the image itself is the columns, so there is nothing to copy."""

from __future__ import annotations

import torch

from rocmprobe.bypass.gemm import accumulate, as_matrices, is_ready, multiply
from rocmprobe.bypass.geometry import Geometry
from rocmprobe.bypass.im2col import store_total, weight_total


def is_dense(plain: Geometry, *operands: torch.Tensor) -> bool:
    """Whether the ``(N, C, *spatial)`` operands are matrices as they lie."""
    return all(as_matrices(operand, plain.groups) is not None for operand in operands)


def is_dense_weight(plain: Geometry, weight: torch.Tensor) -> bool:
    """Whether the weight is matrices as it lies."""
    grouped = (plain.groups, plain.filters // plain.groups, plain.depth)
    try:
        return is_ready(weight.view(grouped))
    except RuntimeError:
        return False


def forward(
    plain: Geometry,
    image: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None,
    feature: torch.Tensor,
) -> None:
    """Write ``weight @ image + bias`` into ``feature``. ``weight`` as matrices, see im2col."""
    by_group = None if bias is None else bias.reshape(plain.groups, -1, 1)
    sources, targets = _matrices(image, plain), _matrices(feature, plain)
    if plain.groups == 1:
        stacked = weight.expand(plain.batch, *weight.shape[1:])
        multiply(stacked, sources[:, 0], targets[:, 0], by_group)
        return
    for source, target in zip(sources, targets):
        multiply(weight, source, target, by_group)


def backward_data(
    plain: Geometry,
    gradient: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None,
    image: torch.Tensor,
) -> None:
    """Write ``weight.T @ gradient + bias`` into ``image``."""
    forward(plain, gradient, weight.transpose(1, 2), bias=bias, feature=image)


def backward_weights(
    plain: Geometry, image: torch.Tensor, gradient: torch.Tensor, weight_gradient: torch.Tensor
) -> None:
    """Write the sum over the samples of ``gradient @ image.T`` into ``weight_gradient``."""
    total = weight_total(weight_gradient, plain, image.dtype)
    samples = zip(_matrices(gradient, plain), _matrices(image, plain))
    for sample, (gradients, images) in enumerate(samples):
        accumulate(total, gradients, images, first=sample == 0)
    store_total(total, weight_gradient)


def _matrices(tensor: torch.Tensor, plain: Geometry) -> torch.Tensor:
    return tensor.view(tensor.shape[0], plain.groups, tensor.shape[1] // plain.groups, -1)
