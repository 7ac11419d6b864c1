"""install, uninstall, enabled and status: who is served, and what stays native."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from comparing import check

from rocmprobe import bypass
from rocmprobe.bypass import dispatch


@pytest.fixture(autouse=True)
def clean():
    bypass.reset_status()
    yield
    bypass.uninstall()
    assert dispatch.interceptors("cpu") == ()


@pytest.fixture
def module():
    torch.manual_seed(0)
    return torch.nn.Conv2d(4, 6, 3, padding=1)


@pytest.fixture
def input():
    return torch.randn(2, 4, 9, 8, generator=torch.Generator().manual_seed(1))


def calls():
    return sum(bypass.status()["calls"].values())


def test_uninstall_restores_native_bit_for_bit(module, input):
    def results():
        output = module(input)
        return [output, *torch.autograd.grad(output.square().sum(), list(module.parameters()))]

    before = results()
    bypass.install("cpu")
    results()
    assert calls() == 2
    bypass.uninstall()
    after = results()
    assert calls() == 2
    assert all(torch.equal(each, other) for each, other in zip(before, after))


#: The functions of the module bypass keep the kernels in a process that called them once.
IN_A_NEW_PROCESS = """
import torch
from rocmprobe import bypass

module, input = torch.nn.Conv2d(4, 6, 3), torch.randn(2, 4, 9, 8)

def python_kernels():
    names = ("convolution", "_convolution", "convolution_backward")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return [key for key in ("CPU", "AutogradCPU") if any(has(f"aten::{name}", key) for name in names)]

def calls():
    return sum(bypass.status()["calls"].values())

bypass.install("cpu")
bypass.uninstall()
assert python_kernels() == []
bypass.install("cpu")
output = module(input)
assert python_kernels() == ["CPU"]
assert type(output.grad_fn).__name__ == "ConvolutionBackward0"
output.square().sum().backward()
assert calls() == 2
with bypass.enabled("cpu"):
    bypass.uninstall()
    module(input)
    assert python_kernels() == ["CPU", "AutogradCPU"]
bypass.install("cpu")
assert calls() == 3
bypass.uninstall()
assert python_kernels() == []
# A backward after uninstall is PyTorch's own.
bypass.install("cpu")
output = module(input)
bypass.uninstall()
output.sum().backward()
assert calls() == 4
# PyTorch caches which kernel a call from Python reaches, as under torch.compile.
key = torch._C.DispatchKey
reached = torch.ops.aten.convolution.default._get_dispatch
for _ in range(2):
    bypass.install("cpu")
    with bypass.enabled("cpu"):
        assert reached(key.AutogradCPU) == key.AutogradCPU
    bypass.uninstall()
    assert reached(key.AutogradCPU) == key.Autograd
"""


@pytest.mark.skipif(
    not hasattr(torch.library, "get_kernel"),
    reason="without get_kernel, kernels stay while other threads run",
)
def test_install_leaves_autograd_to_pytorch_and_uninstall_leaves_nothing():
    ended = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_install_twice_and_uninstall_twice(module, input):
    bypass.install("cpu")
    bypass.install("cpu", workspace_mb=1)
    assert len(dispatch.interceptors("cpu")) == 1
    module(input)
    assert calls() == 1
    bypass.uninstall("cpu")
    bypass.uninstall("cpu")
    module(input)
    assert calls() == 1


def test_contexts_nest_with_each_other_and_with_install(module, input):
    expected = module(input)
    bypass.install(torch.device("cpu"))
    with bypass.enabled("cpu", workspace_mb=1):
        with bypass.enabled("cpu", workspace_mb=2):
            module(input)
        bypass.uninstall()
        module(input)
    assert calls() == 2
    module(input)
    assert calls() == 2
    with pytest.raises(KeyError), bypass.enabled("cpu"):
        raise KeyError
    assert torch.equal(module(input), expected)


def test_contexts_may_end_in_any_order(module, input):
    first, second = bypass.enabled("cpu"), bypass.enabled("cpu")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    module(input)
    assert calls() == 1
    second.__exit__(None, None, None)
    module(input)
    assert calls() == 1


def test_refused_arguments():
    with pytest.raises(ValueError, match="device type"):
        bypass.install("meta")
    with pytest.raises(ValueError, match="workspace_mb"):
        bypass.install("cpu", workspace_mb=0)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="workspace_mb"), bypass.enabled("cpu", workspace_mb=wrong):
            pass


def test_the_default_device_is_a_gpu_only_where_there_is_one():
    bypass.install()
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    assert [layer.name for layer in dispatch.interceptors(device_type)] == ["bypass"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows that no device is needed to install")
def test_installing_for_a_device_that_is_not_there_harms_nothing(module, input):
    with bypass.enabled("cuda"):
        module(input).sum().backward()
    assert calls() == 0


def test_tensor_subclasses_do_not_see_the_inside(module, input):
    seen = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    module(input.as_subclass(Watching))
    natively, seen[:] = list(seen), []
    with bypass.enabled("cpu"):
        module(input.as_subclass(Watching))
    assert calls() == 1
    assert seen == natively


def test_what_is_left_native_and_why(module, input):
    with bypass.enabled("cpu"):
        assert module(input[:0]).shape == (0, 6, 9, 8)
        F.conv2d(torch.ones(1, 1, 3, 3, dtype=torch.int64), torch.ones(1, 1, 2, 2, dtype=torch.int64))
    assert bypass.status() == {
        "calls": {},
        "native": {"nothing to compute": 1, "dtype int64": 1},
        "pytorch": {},
        "own_kernels": {},
        "inexact": {},
    }
    with bypass.enabled("cpu"):
        output = module(input[:0].requires_grad_())
        output.sum().backward()
    assert torch.equal(module.weight.grad, torch.zeros_like(module.weight))


def test_complex_convolutions_come_as_real_ones():
    input = torch.randn(2, 3, 6, 6, dtype=torch.complex128, requires_grad=True)
    weight = torch.randn(4, 3, 3, 3, dtype=torch.complex128, requires_grad=True)

    def results():
        output = F.conv2d(input, weight)
        return [output, *torch.autograd.grad(output.abs().sum(), (input, weight))]

    check(results)


WRONG = [
    lambda x, w: F.conv2d(x, w[:, :3]),
    lambda x, w: F.conv2d(x, w, stride=0),
    lambda x, w: F.conv2d(x, w, padding=-1),
    lambda x, w: F.conv2d(x, w, stride=(1, 1, 1)),
    lambda x, w: F.conv2d(x, w, groups=3),
    lambda x, w: F.conv2d(x, w, torch.zeros(5)),
    lambda x, w: F.conv2d(x, w, dilation=9),
    lambda x, w: F.conv2d(x, w.double()),
    lambda x, w: F.conv1d(x[0], w),
    lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1), output_padding=1),
    lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1), stride=2**62),
    lambda x, w: torch.convolution(x, w[0], None, [1], [0], [1], False, [0], 1),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_errors_are_pytorchs_own(wrong, module, input):
    with pytest.raises((RuntimeError, ValueError)) as native:
        wrong(input, module.weight)
    with bypass.enabled("cpu"), pytest.raises((RuntimeError, ValueError)) as mine:
        wrong(input, module.weight)
    assert str(mine.value) == str(native.value)


def test_threads_compute_while_others_install(module, input):
    expected = module(input)
    failures = []

    def work(toggle):
        try:
            for _ in range(60):
                if toggle:
                    with bypass.enabled("cpu"):
                        output = module(input)
                    bypass.install("cpu")
                    bypass.uninstall("cpu")
                else:
                    output = module(input)
                torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
                torch.autograd.grad(output.square().sum(), list(module.parameters()))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index % 2 == 0,)) for index in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    assert dispatch.interceptors("cpu") == ()
    assert torch.equal(module(input), expected)
