"""Every form in which PyTorch users write a convolution: paddings, shapes, modes and transforms."""

from __future__ import annotations

import copy
import threading
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_close, calls, check, everything
from torch import nn
from torch.utils.checkpoint import checkpoint

from rocmprobe import bypass

ON_TORCH_2 = int(torch.__version__.split(".", maxsplit=1)[0]) >= 2
CONVOLUTIONS = {
    (1, False): nn.Conv1d, (2, False): nn.Conv2d, (3, False): nn.Conv3d,
    (1, True): nn.ConvTranspose1d, (2, True): nn.ConvTranspose2d, (3, True): nn.ConvTranspose3d,
}  # fmt: skip
SIZES = (7, 6, 5)


@pytest.fixture(autouse=True)
def clean():
    torch.manual_seed(0)
    bypass.reset_status()
    yield
    bypass.uninstall()


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_padding_modes(spatial, mode):
    module = CONVOLUTIONS[spatial, False](4, 6, 3, padding=(2, 1, 1)[:spatial], padding_mode=mode).double()
    input = torch.randn(2, 4, *SIZES[:spatial], dtype=torch.float64)
    check(lambda: everything(module, input), 3, strides=True)


@pytest.mark.parametrize("kernel", [(2, 4, 3), (3, 3, 3), (4, 1, 2)])
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_string_padding_even_where_it_is_asymmetric(spatial, padding, kernel):
    module = CONVOLUTIONS[spatial, False](4, 6, kernel[:spatial], padding=padding).double()
    for shape in ((2, 4, *SIZES[:spatial]), (4, *SIZES[:spatial])):
        input = torch.randn(shape, dtype=torch.float64)
        check(partial(everything, module, input), 3, strides=True)


@pytest.mark.parametrize("batch", [(), (0,), (3,)], ids=["unbatched", "no sample", "batched"])
@pytest.mark.parametrize(("spatial", "transposed"), CONVOLUTIONS)
def test_batches(spatial, transposed, batch):
    options = {"output_padding": 1} if transposed else {}
    module = CONVOLUTIONS[spatial, transposed](4, 6, 3, stride=2, padding=1, groups=2, **options).double()
    input = torch.randn(*batch, 4, *SIZES[:spatial], dtype=torch.float64)
    if batch != (0,):
        check(lambda: everything(module, input), 3, strides=True)
        return
    expected = everything(module, input)
    with bypass.enabled("cpu"):
        assert_close(everything(module, input), expected, strides=True)
    status = bypass.status()
    assert (status["calls"], status["native"]) == ({}, {"nothing to compute": 2})


EMPTY = {
    "no height": ((2, 4, 0, 5), (6, 4, 1, 1), {"padding": 1}),
    "no height, no window": ((2, 4, 0, 5), (6, 4, 3, 3), {"padding": 0}),
    "no channel": ((2, 0, 5, 5), (6, 0, 3, 3), {}),
    "no filter": ((2, 4, 5, 5), (0, 4, 3, 3), {}),
    "no sample": ((0, 4, 5, 5), (6, 4, 3, 3), {}),
    "no tap": ((2, 4, 5, 5), (6, 4, 0, 3), {}),
}


@pytest.mark.parametrize("case", EMPTY)
def test_what_is_empty_gives_pytorchs_result_or_error(case):
    shape, weight, options = EMPTY[case]

    def result():
        leaves = [torch.ones(shape, requires_grad=True), torch.ones(weight, requires_grad=True)]
        try:
            output = F.conv2d(*leaves, **options)
            return [output.detach(), *torch.autograd.grad(output.sum(), leaves)]
        except RuntimeError as error:
            return str(error)

    expected = result()
    with bypass.enabled("cpu"):
        got = result()
    if isinstance(expected, str):
        assert got == expected
    else:
        assert_close(got, expected, strides=True)


@pytest.mark.parametrize("transposed", [False, True])
def test_deterministic_mode(transposed):
    module = CONVOLUTIONS[2, transposed](8, 6, 3, stride=2)
    input = torch.randn(2, 8, 11, 12)
    expected = everything(module, input)
    torch.use_deterministic_algorithms(True)
    try:
        with bypass.enabled("cpu"):
            first, second = everything(module, input), everything(module, input)
    finally:
        torch.use_deterministic_algorithms(False)
    assert calls() == 6
    assert all(torch.equal(mine, again) for mine, again in zip(first, second))
    assert_close(first, expected, strides=True, rtol=1e-4, atol=1e-4)


def test_meta_tensors_have_shapes_alone():
    module = nn.Conv2d(4, 6, 3, padding=1).to("meta")
    input = torch.empty(2, 4, 8, 8, device="meta", requires_grad=True)

    def gradient():
        try:
            return torch.autograd.grad(module(input).sum(), input)[0].shape
        except NotImplementedError as error:  # torch 1 has no bwd-data without data
            return str(error)

    expected = gradient()
    with bypass.enabled("cpu"):
        assert module(input).shape == (2, 6, 8, 8)
        assert gradient() == expected
    assert calls() == 0


@pytest.mark.skipif(not ON_TORCH_2, reason="FakeTensorMode is a private sketch before torch 2.0")
def test_fake_tensors_compute_nothing():
    from torch._subclasses.fake_tensor import FakeTensorMode

    layout = torch.channels_last
    module, input = nn.Conv2d(4, 6, 3), torch.randn(2, 4, 8, 8).contiguous(memory_format=layout)
    parameters = [each.detach() for each in module.parameters()]
    with bypass.enabled("cpu"):
        real = module(input)
        before = calls()
        with FakeTensorMode() as mode:
            fake_input = mode.from_tensor(input).requires_grad_()
            weight, bias = (mode.from_tensor(each) for each in parameters)
            fake = F.conv2d(fake_input, weight, bias)
            fake.sum().backward()
    assert (fake.shape, fake.stride()) == (real.shape, real.stride())
    assert fake_input.grad.shape == input.shape
    assert calls() == before


@pytest.mark.parametrize("where", ["forward", "forward and backward"])
def test_autocast_computes_in_bf16(where):
    module, input = nn.Conv2d(4, 6, 3), torch.randn(2, 4, 8, 8)

    def results():
        leaf = input.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = module(leaf)
            if where != "forward":
                output.float().square().sum().backward()
        if where == "forward":
            output.float().square().sum().backward()
        assert output.dtype == torch.bfloat16
        return [output.detach(), leaf.grad]

    check(results, 3, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_computes_the_forward_again_in_the_bypass(reentrant):
    module = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3)).double()
    input = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    expected = everything(module, input)
    bypass.install("cpu")
    leaf = input.clone().requires_grad_()
    output = checkpoint(module, leaf, use_reentrant=reentrant)
    assert calls() == 2
    gradient = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    output.backward(gradient)
    # Without reentrance, PyTorch stops when it has the input of the second convolution again.
    early = not reentrant and hasattr(torch.utils.checkpoint, "set_checkpoint_early_stop")
    assert calls() == (7 if early else 8)
    got = [output.detach(), leaf.grad, *(each.grad for each in module.parameters())]
    assert_close(got, expected, strides=True)


def test_replicas_in_threads_as_data_parallel_runs_them():
    module = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.ConvTranspose2d(6, 4, 3)).double()
    inputs = [torch.randn(2, 4, 9, 9, dtype=torch.float64) for _ in range(4)]
    expected = [everything(module, input) for input in inputs]
    got = [None] * len(inputs)
    replicas = [copy.deepcopy(module) for _ in inputs]

    def work(index):
        got[index] = everything(replicas[index], inputs[index])

    with bypass.enabled("cpu"):
        threads = [threading.Thread(target=work, args=(index,)) for index in range(len(inputs))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert calls() == 6 * len(inputs)
    for mine, theirs in zip(got, expected):
        assert_close(mine, theirs, strides=True)


def test_parametrized_and_lazy_modules():
    for module in (nn.utils.weight_norm(nn.Conv2d(4, 6, 3)), nn.LazyConv2d(6, 3)):
        input = torch.randn(2, 4, 8, 8)
        check(lambda module=module, input=input: [module(input)], 1, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strange", ["expanded weight", "negative bit", "reversed", "overlapping"])
def test_strange_operands(strange):
    weight, input = torch.randn(6, 4, 3, 3, dtype=torch.float64), torch.randn(2, 4, 8, 8, dtype=torch.float64)
    if strange == "expanded weight":
        weight = weight[:1].expand(6, 4, 3, 3)
    elif strange == "negative bit":
        input = torch.randn(2, 4, 8, 8, dtype=torch.complex128).conj().imag
    elif strange == "reversed":
        input = torch.randn(8, 8, 4, 2, dtype=torch.float64).permute(3, 2, 1, 0)
        weight = weight.transpose(2, 3)
    else:
        input = torch.randn(400, dtype=torch.float64).as_strided((2, 4, 8, 8), (64, 16, 8, 1))

    def results():
        leaves = [input.detach().requires_grad_(), weight.detach().requires_grad_()]
        output = F.conv2d(*leaves, padding=1)
        return [output.detach(), *torch.autograd.grad(output.square().sum(), leaves)]

    check(results, 3, strides=True)
