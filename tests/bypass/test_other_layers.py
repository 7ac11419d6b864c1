"""Batch norm, RNN, CTC loss and fused convolutions by PyTorch's own kernels, convolution left where it is.

No vendor library computes batch norm on a CPU, so there a stand-in refuses what would be given to one.
"""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from rocmprobe import bypass
from rocmprobe.bypass import dispatch, other_layers

ON_TORCH_2 = int(torch.__version__.split(".", maxsplit=1)[0]) >= 2
BATCH_NORM = {"convolution": "native", "batch_norm": "pytorch"}


@pytest.fixture(autouse=True)
def clean():
    bypass.reset_status()
    yield
    bypass.uninstall()
    assert not any(other_layers.by_pytorch(kind, "cpu") for kind in other_layers.KINDS)


@pytest.fixture
def vendor(monkeypatch):
    """A vendor library that takes every batch norm it may have, and cannot compute it."""
    composite = other_layers._composite

    def chosen(operator, arguments):
        # On a GPU the switch is that of cuDNN, which is MIOpen's.
        if "batch_norm" in str(operator) and torch.backends.mkldnn.enabled:
            raise RuntimeError("miopenStatusUnknownError")
        return composite(operator, arguments)

    bypass.install("cpu", **BATCH_NORM)
    bypass.uninstall()
    monkeypatch.setattr(other_layers, "_composite", chosen)


@pytest.fixture
def image():
    return torch.randn(3, 4, 6, 5, generator=torch.Generator().manual_seed(1))


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.BatchNorm2d(6), torch.nn.ReLU())


def trained(model, image):
    output = model(image)
    return [output, *torch.autograd.grad(output.square().sum(), list(model.parameters()))]


def assert_equal(got, expected):
    assert all(torch.equal(*pair) for pair in zip(got, expected))


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_a_network_trains_where_the_vendor_librarys_batch_norm_fails(image, vendor):
    with pytest.raises(RuntimeError, match="miopenStatusUnknownError"):
        trained(network(), image)
    bypass.install("cpu", **BATCH_NORM)
    trained(network(), image)
    assert dispatch.interceptors("cpu") == ()
    status = bypass.status()
    assert (status["calls"], status["native"], status["pytorch"]) == ({}, {}, {"batch_norm": 1})
    bypass.uninstall()
    with pytest.raises(RuntimeError, match="miopenStatusUnknownError"):
        trained(network(), image)


def test_it_is_pytorchs_own_batch_norm_to_the_bit_also_evaluating_and_channels_last(image):
    def results(image):
        model = network()
        found = trained(model, image)
        with torch.inference_mode():
            return [*found, *model.buffers(), model.eval()(image)]

    for each in (image, image.contiguous(memory_format=torch.channels_last), image[:, :, ::2]):
        expected = results(each)
        bypass.reset_status()
        with bypass.enabled("cpu", **BATCH_NORM):
            got = results(each)
        assert_equal(got, expected)
        assert got[0].stride() == expected[0].stride()
        assert bypass.status()["pytorch"] == {"batch_norm": 2}


def test_double_backward_and_a_backward_after_the_block(vendor):
    image = torch.randn(3, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.rand(2, 2, dtype=torch.float64, requires_grad=True)
    with bypass.enabled("cpu", **BATCH_NORM):
        norm = lambda *tensors: F.batch_norm(tensors[0], None, None, *tensors[1:], training=True)  # noqa: E731
        assert torch.autograd.gradcheck(norm, (image, weight, bias))
        assert torch.autograd.gradgradcheck(norm, (image, weight, bias))
        output = norm(image, weight, bias)
    assert output.square().sum().backward() is None
    assert image.grad is not None


def test_autocast_and_scripts(image, vendor):
    model = network()
    scripted = torch.jit.script(model)
    with bypass.enabled("cpu", **BATCH_NORM):
        for _ in range(3):
            trained(scripted, image)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(image)
    assert output.dtype == torch.bfloat16
    assert bypass.status()["pytorch"] == {"batch_norm": 4}


@pytest.mark.thorough
@pytest.mark.skipif(not ON_TORCH_2, reason="torch.compile came with torch 2.0")
def test_compiled_without_a_graph_break(image, vendor):
    model = network()
    expected = None
    with bypass.enabled("cpu", **BATCH_NORM):
        expected = trained(model, image)
        model[1].reset_running_stats()
        got = trained(torch.compile(model, backend="aot_eager", fullgraph=True), image)
    for mine, theirs in zip(got, expected):
        torch.testing.assert_close(mine, theirs)


def test_convolution_by_the_bypass_and_batch_norm_by_pytorch_together(image, vendor):
    with bypass.enabled("cpu", batch_norm="pytorch"):
        trained(network(), image)
    status = bypass.status()
    assert sum(status["calls"].values()) >= 2
    assert status["pytorch"] == {"batch_norm": 1}


def test_requests_nest_and_the_last_installation_holds(image, vendor):
    bypass.install("cpu", **BATCH_NORM)
    with bypass.enabled("cpu", **BATCH_NORM):
        bypass.uninstall()
        trained(network(), image)
    assert not other_layers.by_pytorch("batch_norm", "cpu")
    bypass.install("cpu", **BATCH_NORM)
    bypass.install("cpu", rnn="pytorch")
    with pytest.raises(RuntimeError, match="miopenStatusUnknownError"):
        network()(image)


@pytest.mark.skipif(not ON_TORCH_2, reason="oneDNN computes LSTM since torch 2.0")
def test_rnns_leave_the_vendor_library_and_convolution_stays():
    torch.manual_seed(0)
    nets = [getattr(torch.nn, kind)(4, 5, 2) for kind in ("RNN", "LSTM", "GRU")]
    steps = torch.randn(3, 2, 4)
    packed = torch.nn.utils.rnn.pack_padded_sequence(steps, torch.tensor([3, 2]))

    def results():
        with Operators() as seen, torch.no_grad():
            found = [net(each)[0] for net in nets for each in (steps, packed)]
            F.conv2d(torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3))
        return [each if isinstance(each, torch.Tensor) else each.data for each in found], seen.names

    expected, natively = results()
    with bypass.enabled("cpu", convolution="native", rnn="pytorch"):
        got, seen = results()
    assert "mkldnn_rnn_layer" in natively
    assert "mkldnn_rnn_layer" not in seen
    assert torch.backends.mkldnn.enabled
    assert bypass.status()["pytorch"] == {"rnn": 6}
    for mine, theirs in zip(got, expected):
        torch.testing.assert_close(mine, theirs)


def test_the_ctc_loss_is_computed_with_the_library_off(monkeypatch):
    composite, enabled = other_layers._composite, []

    def watched(operator, arguments):
        enabled.append(torch.backends.mkldnn.enabled)
        return composite(operator, arguments)

    monkeypatch.setattr(other_layers, "_composite", watched)
    scores = torch.randn(12, 2, 5, requires_grad=True)
    arguments = (torch.tensor([1, 2, 3, 1]), (12, 12), (3, 1))
    expected = F.ctc_loss(scores.log_softmax(2), *arguments)
    with bypass.enabled("cpu", convolution="native", ctc_loss="pytorch"):
        loss = F.ctc_loss(scores.log_softmax(2), *arguments)
    loss.backward()
    assert torch.equal(loss, expected)
    assert enabled == [False]
    assert bypass.status()["pytorch"] == {"ctc_loss": 1}


def test_the_switch_of_the_library_is_right_after_threads_that_overlap():
    switch = other_layers._SWITCHES["cpu"]
    first_left, both_inside = threading.Event(), threading.Barrier(2)
    seen = []

    def stays():
        with switch.off():
            both_inside.wait()
            first_left.wait()
            seen.append(torch.backends.mkldnn.enabled)

    thread = threading.Thread(target=stays)
    thread.start()
    with switch.off():
        both_inside.wait()
    first_left.set()
    thread.join()
    assert seen == [False]
    assert torch.backends.mkldnn.enabled


def test_fused_convolutions_by_name_are_taken_apart(image):
    weight, bias, summand = torch.randn(6, 4, 3, 3), torch.randn(6), torch.randn(3, 6, 6, 5)
    ones = ([1, 1], [1, 1], [1, 1], 1)
    output = F.conv2d(image, weight, bias, padding=1)
    with bypass.enabled("cpu", convolution="native", fused_convolution="pytorch"), torch.no_grad():
        plain = torch.ops.aten.miopen_convolution_relu(image, weight, bias, *ones)
        added = torch.ops.aten.miopen_convolution_add_relu(image, weight, summand, 0.5, bias, *ones)
    assert torch.equal(plain, output.relu())
    torch.testing.assert_close(added, (output + 0.5 * summand).relu())
    assert bypass.status()["pytorch"] == {"fused_convolution": 2}


def test_errors_and_what_is_empty_are_pytorchs_own(image, vendor):
    with bypass.enabled("cpu", **BATCH_NORM):
        with pytest.raises(RuntimeError, match="running_mean should contain"):
            F.batch_norm(image, torch.zeros(3), torch.ones(3))
        with pytest.raises(RuntimeError, match="weight should contain"):
            F.batch_norm(image, None, None, torch.ones(5), training=True)
        with pytest.raises(RuntimeError, match="running_mean must be defined"):
            F.batch_norm(image, None, None)
        assert torch.batch_norm(image[:0], None, None, None, None, True, 0.1, 1e-5, True).shape == (
            0,
            4,
            6,
            5,
        )
    assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("wrong", [{"batch_norm": "bypass"}, {"convolution": "pytorch"}, {"rnn": "off"}])
def test_words_that_mean_nothing_are_refused(wrong):
    (kind,) = wrong
    with pytest.raises(ValueError, match=f"{kind} is 'native' or"):
        bypass.install("cpu", **wrong)
