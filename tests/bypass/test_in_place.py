"""What the bypass gives can be changed in place, as what PyTorch gives."""

import pytest
import torch
from torch import nn

from rocmprobe import bypass


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_results_can_be_changed_in_place(spatial):
    convolution = getattr(nn, f"Conv{spatial}d")
    model = nn.Sequential(convolution(3, 4, 3), nn.ReLU(inplace=True), convolution(4, 2, 1))
    parameters = list(model.parameters())
    input = torch.randn(2, 3, *(6,) * spatial, requires_grad=True)

    def gradients():
        output = model(input).mul_(2)
        return torch.autograd.grad(output.sum(), (input, *parameters))

    native = gradients()
    with bypass.enabled("cpu"):
        torch.testing.assert_close(gradients(), native)
        with torch.no_grad():
            output = model[0](input)
        output.mul_(parameters[1].view(-1, *(1,) * spatial))
        torch.autograd.grad(output.sum(), parameters[1])


def test_gradients_can_be_changed_in_place():
    weight = torch.randn(4, 3, 3, requires_grad=True)
    with bypass.enabled("cpu"):
        (gradient,) = torch.autograd.grad(nn.functional.conv1d(torch.randn(2, 3, 9), weight).sum(), weight)
    gradient.mul_(weight).sum().backward()
    assert weight.grad is not None
