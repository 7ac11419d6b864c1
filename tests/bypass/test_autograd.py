"""Gradients of the bypass: gradcheck, double backward, and the tie between forward and backward."""

from __future__ import annotations

import functools
import itertools
import threading

import pytest
import torch
import torch.nn.functional as F
from comparing import check
from torch import nn
from torch.autograd import forward_ad

from rocmprobe import bypass

#: torch 2.0 to 2.2 fail in forward mode over the backward of a function of Python.
HAS_HESSIANS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 3)


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


PROBLEMS = {
    "strided": (F.conv2d, (2, 2, 4, 4), (2, 2, 3, 2), {"stride": 2, "padding": 1}),
    "flipped": (F.conv2d, (1, 2, 4, 3), (2, 2, 2, 2), {"padding": 1, "dilation": 2}),
    "depthwise": (F.conv2d, (2, 2, 4, 3), (4, 1, 3, 2), {"padding": 1, "groups": 2}),
    "pointwise": (F.conv2d, (2, 2, 3, 2), (3, 2, 1, 1), {}),
    "1d": (F.conv1d, (2, 2, 5), (2, 2, 3), {"padding": 1}),
    "3d": (F.conv3d, (1, 1, 3, 2, 3), (2, 1, 2, 2, 2), {}),
    "transposed": (F.conv_transpose2d, (2, 2, 3, 3), (2, 2, 3, 2), {"stride": 2, "output_padding": 1}),
    "transposed 1d": (F.conv_transpose1d, (2, 2, 4), (2, 1, 3), {"groups": 2, "padding": 1}),
}


@pytest.fixture(params=PROBLEMS)
def problem(request):
    torch.manual_seed(0)
    function, input, weight, options = PROBLEMS[request.param]
    outputs = weight[1] * options.get("groups", 1) if "transpose" in function.__name__ else weight[0]
    operands = (leaf(*input), leaf(*weight), leaf(outputs))
    return functools.partial(function, **options), operands


def test_gradcheck(problem):
    function, operands = problem
    with bypass.enabled("cpu"):
        assert torch.autograd.gradcheck(function, operands)
        assert torch.autograd.gradcheck(function, operands[:2])


def test_gradgradcheck(problem):
    function, operands = problem
    with bypass.enabled("cpu"):
        assert torch.autograd.gradgradcheck(function, operands)


SETTINGS = [
    {},
    {"stride": 2},
    {"padding": 1},
    {"dilation": 2},
    {"groups": 2},
    {"stride": 2, "padding": 1},
    {"stride": 2, "padding": 1, "groups": 2},
    {"dilation": 2, "padding": 1, "groups": 2},
]


def convolution(dimensions, transposed, bias, settings):
    """Return a convolution of 2 channels and its operands in float64."""
    function = getattr(F, f"conv_transpose{dimensions}d" if transposed else f"conv{dimensions}d")
    torch.manual_seed(0)
    operands = [leaf(1, 2, *[4] * dimensions), leaf(2, 2 // settings.get("groups", 1), *[2] * dimensions)]
    return functools.partial(function, **settings), (*operands, leaf(2)) if bias else tuple(operands)


@pytest.mark.thorough
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_gradgradcheck_forward_over_reverse(dimensions, transposed, bias):
    for settings in SETTINGS:
        function, operands = convolution(dimensions, transposed, bias, settings)
        with bypass.enabled("cpu"):
            assert torch.autograd.gradgradcheck(function, operands, check_fwd_over_rev=True, fast_mode=True)


def second_order(function, operands):
    output = function(*operands)
    first = torch.autograd.grad(output.square().sum(), operands, create_graph=True)
    return torch.autograd.grad(sum(each.pow(3).sum() for each in first), operands)


def test_double_backward_after_the_context_stays_in_the_bypass(problem):
    function, operands = problem
    expected = second_order(function, operands)
    with bypass.enabled("cpu"):
        output = function(*operands)
    bypass.reset_status()
    first = torch.autograd.grad(output.square().sum(), operands, create_graph=True)
    after_first = sum(bypass.status()["calls"].values())
    got = torch.autograd.grad(sum(each.pow(3).sum() for each in first), operands)
    assert after_first == 2
    assert sum(bypass.status()["calls"].values()) > after_first
    assert not bypass.status()["native"]
    for mine, theirs in zip(got, expected):
        torch.testing.assert_close(mine, theirs)


def test_a_native_forward_keeps_its_native_backward():
    input, weight = leaf(2, 4, 6, 6), leaf(6, 4, 3, 3)
    with bypass.enabled("cpu"):
        tied = F.conv2d(input, weight)
    native = F.conv2d(input, weight)
    bypass.reset_status()
    native.sum().backward()
    assert bypass.status()["calls"] == {}
    tied.sum().backward()
    assert sum(bypass.status()["calls"].values()) == 2


def test_backward_after_the_block_and_in_another_thread():
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 1))
    input = torch.randn(2, 3, 8, 8)
    module(input).square().sum().backward()
    expected = [each.grad.clone() for each in module.parameters()]
    module.zero_grad()
    with bypass.enabled("cpu"):
        loss = module(input).square().sum()
    bypass.reset_status()
    worker = threading.Thread(target=loss.backward)
    worker.start()
    worker.join()
    calls = bypass.status()["calls"]
    assert (sum(calls.values()), calls["pointwise"]) == (3, 2)
    for parameter, gradient in zip(module.parameters(), expected):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-4)


def test_only_the_wanted_gradients_are_computed():
    input, weight = torch.randn(2, 4, 6, 6), torch.randn(6, 4, 3, 3, requires_grad=True)
    with bypass.enabled("cpu"):
        output = F.conv2d(input, weight)
        bypass.reset_status()
        output.sum().backward()
    assert sum(bypass.status()["calls"].values()) == 1
    assert input.grad is None


def test_saved_for_backward_is_input_and_weight_alone():
    saved = []
    input, weight = torch.randn(2, 4, 6, 6, requires_grad=True), torch.randn(6, 4, 3, 3, requires_grad=True)

    def keep(tensor):
        saved.append(tensor)
        return tensor

    with bypass.enabled("cpu"), torch.autograd.graph.saved_tensors_hooks(keep, keep):
        F.conv2d(input, weight)
    assert sorted(each.data_ptr() for each in saved) == sorted([input.data_ptr(), weight.data_ptr()])


def test_the_node_has_the_saved_attributes_of_pytorch_s():
    input, weight = leaf(2, 4, 6, 6), leaf(6, 2, 3, 3)

    def saved():
        # With torch 1.13.1, a node of Python loses its tensors together with the output.
        output = F.conv2d(input, weight, stride=2, padding=(1, 0), groups=2)
        node = output.grad_fn
        assert node._saved_input.data_ptr() == input.data_ptr()
        assert node._saved_weight.data_ptr() == weight.data_ptr()
        names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        return [getattr(node, f"_saved_{name}") for name in names]

    expected = [list(each) if isinstance(each, tuple) else each for each in saved()]
    with bypass.enabled("cpu"):
        assert saved() == expected


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_autograd(mode):
    module = torch.nn.Conv2d(4, 6, 3)
    input = torch.randn(2, 4, 6, 6)

    def result():
        with mode():
            output = module(input)
        assert not output.requires_grad
        return [output]

    check(result, 1, rtol=1e-4, atol=1e-5)


def test_forward_mode_derivative(problem):
    function, operands = problem
    tangents = [torch.randn_like(each) for each in operands]

    def derivative():
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(each.detach(), t) for each, t in zip(operands, tangents)]
            return [forward_ad.unpack_dual(function(*duals)).tangent]

    check(derivative)


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_backward_inside_of_autocast(dtype):
    input, weight = torch.randn(2, 4, 8, 8, requires_grad=True), torch.randn(6, 4, 3, 3, requires_grad=True)
    gradient = torch.randn(2, 6, 6, 6)
    expected = torch.autograd.grad(F.conv2d(input, weight), (input, weight), gradient)
    with bypass.enabled("cpu"):
        output = F.conv2d(input, weight)
        with torch.autocast("cpu", dtype=dtype):
            got = torch.autograd.grad(output, (input, weight), gradient)
            assert F.conv2d(input, weight).dtype == dtype
    for mine, theirs in zip(got, expected):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not HAS_HESSIANS, reason="no torch.func, or no Hessian of the bypass")
def test_function_transforms():
    from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

    module = torch.nn.Conv2d(2, 3, 2).double()
    parameters = {name: each.detach() for name, each in module.named_parameters()}
    input = torch.randn(3, 2, 4, 3, dtype=torch.float64)

    def loss(parameters, sample):
        return functional_call(module, parameters, (sample[None],)).pow(3).sum()

    def everything():
        return [
            *vmap(grad(loss), (None, 0))(parameters, input).values(),
            jacrev(loss, 1)(parameters, input[0]),
            jacfwd(loss, 1)(parameters, input[0]),
            *hessian(loss)(parameters, input[0])["weight"].values(),
            jacrev(jacrev(loss, 1), 1)(parameters, input[0]),
            jacrev(jacfwd(loss, 1), 1)(parameters, input[0]),
        ]

    check(everything)


WITH_TANGENTS = [which for size in (1, 2, 3) for which in itertools.combinations(range(3), size)]


@pytest.mark.skipif(not HAS_HESSIANS, reason="no torch.func, or no Hessian of the bypass")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("which", WITH_TANGENTS)
def test_nested_function_transforms(dtype, power, which):
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

    function, leaves = convolution(2, False, True, {"stride": 2, "padding": 1, "groups": 2})
    operands = [each.detach().to(dtype) for each in leaves]
    chosen = tuple(operands[index] for index in which)
    stacks = tuple(torch.stack([each, 2 * each]) for each in chosen)
    tangents = tuple(torch.randn_like(each) for each in chosen)
    numbers = tuple(range(len(which)))

    def loss(*values):
        given = dict(zip(which, values))
        return function(*(given.get(index, each) for index, each in enumerate(operands))).pow(power).mean()

    def slope(*values):
        return jvp(loss, values, tangents)[1]

    def everything():
        return torch.utils._pytree.tree_leaves(
            [
                jvp(grad(loss, numbers), chosen, tangents),
                grad(slope, numbers)(*chosen),
                jvp(slope, chosen, tangents),
                jacfwd(jacrev(loss, numbers), numbers)(*chosen),
                jacfwd(jacfwd(loss, numbers), numbers)(*chosen),
                hessian(loss, numbers)(*chosen),
                vmap(hessian(loss, numbers))(*stacks),
            ]
        )

    check(everything)


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
