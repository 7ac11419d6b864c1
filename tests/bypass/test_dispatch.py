"""The layers on PyTorch's convolution operators."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rocmprobe import bypass
from rocmprobe.bypass import dispatch, registration


class Recorder(dispatch.Interceptor):
    def __init__(self, name, rank, seen):
        self.name, self.rank, self._seen = name, rank, seen

    def convolution(self, call, proceed):
        self._seen.append((self.name, "fwd", call.stride))
        return proceed(call)

    def convolution_backward(self, call, proceed):
        self._seen.append((self.name, "bwd", call.output_mask))
        return proceed(call)


class Fault(dispatch.Interceptor):
    name = "fault"

    def convolution(self, call, proceed):
        raise RuntimeError("miopenStatusUnknownError")


@pytest.fixture
def layers():
    added = []

    def add(layer):
        registration.add_interceptor(layer, "cpu")
        added.append(layer)
        return layer

    yield add
    for each in added:
        registration.remove_interceptor(each, "cpu")
    assert dispatch.interceptors("cpu") == ()


def problem():
    return torch.randn(2, 4, 6, 6, requires_grad=True), torch.randn(6, 4, 3, 3, requires_grad=True)


def test_layers_run_by_rank_whatever_the_order_of_adding(layers):
    seen = []
    layers(Recorder("middle", 200, seen))
    layers(Recorder("low", 100, seen))
    layers(Recorder("high", 300, seen))
    input, weight = problem()
    expected = [("high", "fwd", (2, 2)), ("middle", "fwd", (2, 2)), ("low", "fwd", (2, 2))]
    F.conv2d(input, weight, stride=2).sum().backward()
    assert seen[:3] == expected
    assert [each[:2] for each in seen[3:]] == [("high", "bwd"), ("middle", "bwd"), ("low", "bwd")]
    assert seen[-1][2] == (True, True, False)


def test_a_layer_that_only_proceeds_changes_no_bit(layers):
    input, weight = problem()

    def results():
        output = F.conv2d(input, weight, padding=1)
        return [output.detach(), *torch.autograd.grad(output.square().sum(), (input, weight))]

    expected = results()
    layers(Recorder("nothing", 100, []))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(results(), expected))


def test_the_bypass_stays_clear_of_faults_below_it(layers):
    layers(Fault())
    input, weight = problem()
    with pytest.raises(RuntimeError, match="miopenStatusUnknownError"):
        F.conv2d(input, weight)
    with bypass.enabled("cpu"):
        F.conv2d(input, weight).sum().backward()
    with pytest.raises(RuntimeError, match="miopenStatusUnknownError"):
        F.conv2d(input, weight)


def test_a_recorder_above_sees_tied_backwards_too(layers):
    seen = []
    input, weight = problem()
    with bypass.enabled("cpu"):
        output = F.conv2d(input, weight)
    layers(Recorder("recorder", 3, seen))
    output.square().sum().backward()
    assert [each[1] for each in seen] == ["bwd"]


def test_single_entry_lists_arrive_expanded(layers):
    seen = []
    layers(Recorder("recorder", 3, seen))
    input, weight = problem()
    torch.convolution(input, weight, None, [2], [1], [1], False, [0], 1)
    assert seen == [("recorder", "fwd", (2, 2))]


def test_adding_and_removing_wrongly(layers):
    layer = layers(Recorder("one", 100, []))
    with pytest.raises(ValueError, match="already"):
        registration.add_interceptor(layer, "cpu")
    with pytest.raises(ValueError, match="not on"):
        registration.remove_interceptor(Recorder("one", 100, []), "cpu")
    with pytest.raises(ValueError, match="device type"):
        registration.add_interceptor(layer, "xpu")


def test_a_layer_may_be_removed_from_inside_of_a_call(layers):
    class Once(dispatch.Interceptor):
        name = "once"

        def convolution(self, call, proceed):
            registration.remove_interceptor(self, "cpu")
            return proceed(call)

    registration.add_interceptor(Once(), "cpu")
    input, weight = problem()
    expected = F.conv2d(input, weight)
    assert torch.equal(F.conv2d(input, weight), expected)
    assert dispatch.interceptors("cpu") == ()
