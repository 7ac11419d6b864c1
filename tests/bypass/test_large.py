"""Tensors of more than 2**31 elements. Memory of zeros that is only read costs nothing on Linux."""

from __future__ import annotations

import os
import sys

import pytest
import torch
import torch.nn.functional as F

from rocmprobe import bypass

pytestmark = pytest.mark.thorough

LENGTH = (1 << 31) + 5000
STRIDE = 1 << 20
TAPS = 7
GIGABYTE = 1 << 30


def free_bytes():
    if not sys.platform.startswith("linux"):
        return 0
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def image():
    """Ones at the beginning and small integers at the end, beyond what 32 bits count."""
    if free_bytes() < 6 * GIGABYTE:
        pytest.skip("too little free memory for 2**31 elements")
    image = torch.zeros(1, 1, LENGTH, dtype=torch.bfloat16)
    image[..., :TAPS] = 1
    image[..., 1 << 31 : (1 << 31) + TAPS] = torch.arange(TAPS)
    return image


@pytest.mark.parametrize("algorithm", ["auto", "im2col"])
def test_windows_beyond_2_to_the_31(image, algorithm):
    weight = torch.arange(1.0, TAPS + 1).to(torch.bfloat16).reshape(1, 1, TAPS).requires_grad_()
    bypass.reset_status()
    with bypass.enabled("cpu", algorithm=algorithm):
        output = F.conv1d(image, weight, stride=STRIDE)
        gradient = torch.zeros_like(output)
        gradient[..., -1] = 2
        (to_weight,) = torch.autograd.grad(output, weight, gradient)
    assert sum(bypass.status()["calls"].values()) == 2
    assert algorithm == "auto" or set(bypass.status()["calls"]) == {algorithm}
    assert output.shape[-1] == (1 << 11) + 1
    expected = torch.zeros(output.shape[-1], dtype=torch.bfloat16)
    expected[0], expected[-1] = sum(range(TAPS + 1)), sum(tap * (tap + 1) for tap in range(TAPS))
    assert torch.equal(output.detach().flatten(), expected)
    assert torch.equal(to_weight.flatten(), 2 * torch.arange(TAPS).to(torch.bfloat16))


@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "thorough" or free_bytes() < 18 * GIGABYTE,
    reason="writes 9 GB: wants HYPOTHESIS_PROFILE=thorough and 18 GB of free memory",
)
def test_an_image_gradient_beyond_2_to_the_31():
    weight = torch.arange(1.0, TAPS + 1).reshape(1, 1, TAPS)
    gradient = torch.zeros(1, 1, (1 << 11) + 1)
    gradient[..., -1] = 3
    arguments = (weight, None, [STRIDE], [0], [1], False, [0], 1, [True, False, False])
    with bypass.enabled("cpu"):
        found = torch.ops.aten.convolution_backward(gradient, torch.zeros(1, 1, LENGTH), *arguments)[0]
    assert torch.equal(found[0, 0, 1 << 31 : (1 << 31) + TAPS], 3 * weight.flatten())
    assert found[0, 0, : 1 << 31].count_nonzero() == 0
