"""Who calls a convolution: compiled code, TorchScript, transforms, other processes, captured graphs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from functools import partial

import comparing
import pytest
import torch
import torch.nn.functional as F
from comparing import calls, check, everything
from torch import nn

from rocmprobe import bypass
from rocmprobe.bypass import dispatch

ON_TORCH_2 = int(torch.__version__.split(".", maxsplit=1)[0]) >= 2
torch_2 = pytest.mark.skipif(not ON_TORCH_2, reason="torch.compile and torch.func came with torch 2.0")
compiler = pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="no C++ compiler")
# Which backend, and whether with dynamic shapes.
COMPILED = [
    ("eager", False), ("aot_eager", False), ("aot_eager", True),
    pytest.param("inductor", False, marks=[compiler, pytest.mark.thorough]),
]  # fmt: skip


@pytest.fixture(autouse=True)
def clean():
    torch.manual_seed(0)
    bypass.reset_status()
    yield
    bypass.uninstall()
    if ON_TORCH_2:
        torch._dynamo.reset()


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8, padding="same")
        self.last = nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1)

    def forward(self, input):
        return self.last(torch.relu(self.depthwise(torch.relu(self.first(input)))))


assert_close = partial(comparing.assert_close, rtol=1e-4, atol=1e-4)


@pytest.mark.thorough
@torch_2
@pytest.mark.parametrize(("backend", "dynamic"), COMPILED)
def test_compiled_forward_and_backward_in_one_graph(backend, dynamic):
    network = Network()
    inputs = [torch.randn(2, 3, size, size + 2) for size in ((12, 16, 20) if dynamic else (12,))]
    expected = [everything(network, input) for input in inputs]
    bypass.install("cpu")
    compiled = torch.compile(network, backend=backend, dynamic=dynamic, fullgraph=True)
    for input, theirs in zip(inputs, expected):
        bypass.reset_status()
        assert_close(everything(compiled, input), theirs)
        # Three layers in three directions.
        assert calls() == 9


@pytest.mark.thorough
@torch_2
def test_code_compiled_before_follows_install_and_uninstall():
    network, input = Network(), torch.randn(2, 3, 12, 12)
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    expected = everything(compiled, input)
    bypass.install("cpu")
    assert_close(everything(compiled, input), expected)
    assert calls() == 9
    bypass.uninstall()
    bypass.reset_status()
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(everything(compiled, input), expected))
    assert calls() == 0


@pytest.mark.thorough
@torch_2
def test_compiled_without_gradients_and_exported():
    network, input = Network().eval(), torch.randn(2, 3, 12, 12)
    expected = network(input).detach()
    with bypass.enabled("cpu"), torch.no_grad():
        assert_close([torch.compile(network, backend="aot_eager", fullgraph=True)(input)], [expected])
    assert calls() == 3
    if not hasattr(torch, "export"):
        return
    with bypass.enabled("cpu"):
        exported = torch.export.export(network, (input,))
    targets = [str(node.target) for node in exported.graph.nodes if "conv" in str(node.target)]
    assert len(targets) == 3
    bypass.reset_status()
    with bypass.enabled("cpu"):
        assert_close([exported.module()(input)], [expected])
    assert calls() == 3


@pytest.mark.parametrize("optimized", [False, True])
def test_torchscript(optimized):
    network, input = Network(), torch.randn(2, 3, 12, 12)
    expected = everything(network, input)
    for translated in (torch.jit.script(network), torch.jit.trace(network, input)):
        bypass.reset_status()
        with bypass.enabled("cpu"), torch.jit.optimized_execution(optimized):
            # The executor profiles its first runs and rewrites the code after them.
            for _ in range(3):
                assert_close(everything(translated, input), expected)
        assert calls() == 27
    frozen = torch.jit.freeze(torch.jit.script(Network().eval()))
    native = frozen(input)
    bypass.reset_status()
    with bypass.enabled("cpu"):
        assert_close([frozen(input)], [native])
    assert calls() == 3


def no_mode():
    return contextlib.nullcontext()


@pytest.mark.parametrize("mode", [no_mode, torch.no_grad, torch.inference_mode])
def test_a_trace_taken_under_the_bypass_is_the_native_one(mode):
    network, input = (
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ConvTranspose2d(8, 4, 2)),
        torch.randn(2, 3, 8, 8),
    )
    signal = nn.Sequential(nn.Conv1d(3, 8, 3, stride=2), nn.Conv1d(8, 4, 1))
    for module, example in ((network, input), (signal, input[:, :, 0])):
        with mode():
            native, expected = torch.jit.trace(module, example), module(example)
            with bypass.enabled("cpu"):
                traced = torch.jit.trace(module, example)
                bypass.reset_status()
                assert_close([traced(example)], [expected])
                assert calls() == 2
            # The kernels stay when the bypass has gone.
            after = torch.jit.trace(module, example)
        kinds = [[node.kind() for node in each.inlined_graph.nodes()] for each in (traced, native, after)]
        assert kinds[0] == kinds[1] == kinds[2]
        assert kinds[0].count("aten::_convolution") == 2


@torch_2
@pytest.mark.parametrize("in_dims", [(0, None, None), (None, 0, None), (0, 0, 0), (1, None, 0)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_vmap_over_any_operand(in_dims, transposed, groups):
    def operand(*shape, batched):
        full = list(shape)
        if batched is not None:
            full.insert(batched, 3)
        return torch.randn(full, dtype=torch.float64, requires_grad=True)

    shapes = [(2, 4, 6, 5), (4, 4 // groups, 3, 3), (4,)]
    operands = [operand(*shape, batched=batched) for shape, batched in zip(shapes, in_dims)]
    function = F.conv_transpose2d if transposed else F.conv2d

    def results():
        mapped = torch.func.vmap(lambda *each: function(*each, padding=1, groups=groups), in_dims)
        output = mapped(*operands)
        return [output.detach(), *torch.autograd.grad(output.square().sum(), operands)]

    check(results)
    assert calls() >= 3


@torch_2
@pytest.mark.parametrize("transposed", [False, True])
def test_jvp_vjp_and_gradients_for_each_sample(transposed):
    function = F.conv_transpose2d if transposed else F.conv2d
    input, weight, bias = (
        torch.randn(shape, dtype=torch.float64) for shape in ((3, 4, 6, 5), (4, 4, 3, 3), (4,))
    )

    def loss(weight, bias, sample):
        return function(sample[None], weight, bias, stride=2, padding=1).pow(3).sum()

    def results():
        primals = (weight, bias)
        each = torch.func.vmap(torch.func.grad(loss, (0, 1)), (None, None, 0))(weight, bias, input)
        _, tangent = torch.func.jvp(lambda *of: loss(*of, input[0]), primals, (weight.cos(), bias.sin()))
        _, pull = torch.func.vjp(lambda *of: loss(*of, input[0]), *primals)
        directions = torch.stack([weight.cos(), weight.sin()])
        several = torch.func.vmap(
            lambda one: torch.func.jvp(lambda of: loss(of, bias, input[0]), (weight,), (one,))[1]
        )(directions)
        return [*each, tangent, *pull(torch.ones((), dtype=torch.float64)), several]

    check(results)


def test_after_uninstall_pytorchs_own_graph_stands_under_every_transform():
    module = nn.Conv2d(4, 6, 3).double()
    input = torch.randn(2, 4, 7, 6, dtype=torch.float64, requires_grad=True)
    tangent = torch.randn_like(input)

    def results():
        output = module(input)
        first = torch.autograd.grad(output.pow(3).sum(), (input, module.weight), create_graph=True)
        second = torch.autograd.grad(sum(each.pow(2).sum() for each in first), (input, module.weight))
        names = [each.grad_fn.name() for each in (output, *first)]
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(input.detach(), tangent)
            derivative = torch.autograd.forward_ad.unpack_dual(module(dual)).tangent.detach()
        found = [output, *first, *second, derivative, torch.jit.script(module)(input)]
        if ON_TORCH_2:
            parameters = {name: each.detach() for name, each in module.named_parameters()}

            def loss(parameters, sample):
                return torch.func.functional_call(module, parameters, (sample[None],)).pow(3).sum()

            found += torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, input.detach()).values()
        return names, found

    names, expected = results()
    bypass.install("cpu")
    results()
    bypass.uninstall()
    bypass.reset_status()
    names_after, got = results()
    assert names_after == names
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(got, expected))
    assert calls() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_another_thread_counts_and_installs():
    stop, inside = threading.Event(), threading.Event()

    def hold():
        with dispatch._lock:
            inside.set()
            stop.wait(0.3)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    child = os.fork()
    if not child:
        # A child that waits for a lock for ever is to die, not to hang.
        signal.alarm(60)
        with bypass.enabled("cpu"):
            os._exit(0)
    stop.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are captured on a GPU")
def test_captured_graph():
    network, input = Network().cuda(), torch.randn(2, 3, 12, 12, device="cuda")
    with bypass.enabled("cuda"), torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            network(input)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = network(input)
        input.copy_(torch.randn_like(input))
        graph.replay()
        torch.testing.assert_close(output, network(input))
