"""PyTorch's own sample inputs for every convolution operator, with the bypass against without it.

They ship in the torch wheel as ``torch.testing._internal``, which needs numpy and expecttest, and on torch 1
yaml.
"""

from __future__ import annotations

import itertools
from unittest import mock

import pytest
import torch

from rocmprobe import bypass

pytestmark = pytest.mark.thorough

try:
    # The import would forbid the whole process to set flags of torch.backends, which other tests do.
    with mock.patch.object(torch.backends, "disable_global_flags"):
        from torch.testing._internal.common_methods_invocations import op_db
except ImportError as missing:
    pytest.skip(f"torch.testing._internal: {missing}", allow_module_level=True)

CONVOLUTIONS = {each.name.rsplit(".", 1)[-1]: each for each in op_db if "conv" in each.name}
CASES = [
    pytest.param(operator, dtype, id=f"{name}-{str(dtype).rsplit('.', 1)[-1]}")
    for name, operator in CONVOLUTIONS.items()
    for dtype in sorted(operator.supported_dtypes("cpu"), key=str)
]
GRADIENTS = [
    pytest.param(operator, dtype, id=f"{name}-{str(dtype).rsplit('.', 1)[-1]}")
    for name, operator in CONVOLUTIONS.items()
    for dtype in (torch.float64, torch.complex128)
    if dtype in operator.supported_dtypes("cpu")
]
#: Numeric differentiation visits every element.
MOST_ELEMENTS = 150
#: Share of the largest value; fp16 and bf16 round their result once, PyTorch's own kernels maybe more often.
LIMITS = {
    torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 5e-6, torch.float64: 1e-13,
    torch.complex64: 1e-5, torch.complex128: 1e-13,
}  # fmt: skip


def samples(operator, dtype):
    torch.manual_seed(0)
    return list(operator.sample_inputs("cpu", dtype, requires_grad=dtype != torch.int64))


def results(operator, sample):
    """The output, and the gradients of all operands that want one."""
    output = operator(sample.input, *sample.args, **sample.kwargs)
    wanting = [each for each in operands(sample) if each.requires_grad]
    if not wanting:
        return [output]
    gradient = torch.linspace(-1, 1, output.numel()).reshape(output.shape).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, wanting, gradient)]


def operands(sample):
    candidates = (sample.input, *sample.args, *sample.kwargs.values())
    return [each for each in candidates if isinstance(each, torch.Tensor)]


def assert_alike(mine, theirs):
    assert (mine.shape, mine.dtype, mine.stride()) == (theirs.shape, theirs.dtype, theirs.stride())
    if mine.dtype not in LIMITS:
        assert torch.equal(mine, theirs)
    elif mine.numel():
        wide = torch.complex128 if mine.is_complex() else torch.float64
        error = (mine.to(wide) - theirs.to(wide)).abs().max()
        assert error <= LIMITS[mine.dtype] * theirs.abs().max().double()


def test_the_operators_are_all_there():
    kinds = {f"conv{transposed}{n}d" for transposed in ("", "_transpose") for n in (1, 2, 3)}
    assert kinds - set(CONVOLUTIONS) <= {"conv3d"}
    assert set(CONVOLUTIONS) <= kinds


@pytest.mark.parametrize(("operator", "dtype"), CASES)
def test_samples_give_what_pytorch_gives(operator, dtype):
    bypass.reset_status()
    given = samples(operator, dtype)
    for sample in given:
        expected = results(operator, sample)
        with bypass.enabled("cpu"):
            got = results(operator, sample)
        for mine, theirs in zip(got, expected):
            assert_alike(mine, theirs)
    assert given
    status = bypass.status()
    if dtype == torch.int64:
        assert set(status["native"]) == {"dtype int64"}
        assert not status["calls"]
    else:
        # Output and two gradients of each sample; one of zero channels has nothing to compute.
        assert set(status["native"]) <= {"nothing to compute"}
        full = sum(all(each.numel() for each in operands(sample)) for sample in given)
        assert sum(status["calls"].values()) >= 3 * full > 0


@pytest.mark.parametrize("name", sorted(CONVOLUTIONS))
def test_wrong_inputs_give_pytorchs_own_errors(name):
    operator = CONVOLUTIONS[name]
    if operator.error_inputs_func is None:
        pytest.skip("PyTorch has no wrong inputs for this operator")

    def message(sample):
        with pytest.raises((RuntimeError, ValueError, TypeError)) as error:
            operator(sample.input, *sample.args, **sample.kwargs)
        return type(error.value), str(error.value)

    wrong = [each.sample_input for each in operator.error_inputs("cpu")]
    expected = [message(each) for each in wrong]
    with bypass.enabled("cpu"):
        assert [message(each) for each in wrong] == expected
    assert wrong


def small(operator, dtype):
    """The samples that numeric differentiation can afford, as functions of their operands that want one."""
    chosen = [
        each
        for each in samples(operator, dtype)
        if 0 < sum(tensor.numel() for tensor in operands(each)) <= MOST_ELEMENTS
    ]
    for sample in itertools.islice(chosen, 4):

        def function(*wanting, sample=sample):
            rest = iter(wanting)
            replaced = [
                next(rest) if isinstance(each, torch.Tensor) and each.requires_grad else each
                for each in (sample.input, *sample.args)
            ]
            return operator(*replaced, **sample.kwargs)

        yield function, [each for each in (sample.input, *sample.args) if _wants(each)]


def _wants(value):
    return isinstance(value, torch.Tensor) and value.requires_grad


@pytest.mark.parametrize(("operator", "dtype"), GRADIENTS)
def test_gradients_of_first_and_second_order(operator, dtype):
    bypass.reset_status()
    checked = 0
    with bypass.enabled("cpu"):
        for function, wanting in small(operator, dtype):
            assert torch.autograd.gradcheck(function, wanting, fast_mode=True)
            assert torch.autograd.gradgradcheck(function, wanting, fast_mode=True)
            checked += 1
    if not checked:
        pytest.skip("no sample of this operator is small enough for numeric differentiation")
    assert bypass.status()["calls"]
    assert set(bypass.status()["native"]) <= {"nothing to compute"}
