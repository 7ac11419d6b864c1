"""The bypass for one model, and for one call."""

import copy
import gc
import pickle
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from rocmprobe import bypass


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


class Model(nn.Module):
    """Every way to a convolution: modules of several kinds, functional ones, a weight norm."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular")
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1)
        self.deep = nn.Conv3d(1, 2, 3)
        self.flat = torch.nn.utils.weight_norm(nn.Conv1d(4, 5, 3))
        self.kernel = nn.Parameter(torch.randn(4, 1, 3, 3))

    def forward(self, x):
        y = F.conv2d(self.up(self.conv(x)), self.kernel, groups=4)
        return self.deep(y.unsqueeze(1)).flatten(1).sum(1) + self.flat(y.flatten(2)).sum((1, 2))


@pytest.fixture(autouse=True)
def nothing_installed():
    yield
    assert bypass.dispatch.interceptors("cpu") == ()
    assert bypass.dispatch.interceptors("cuda") == ()


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Model().double()
    yield model
    bypass.unpatch(model)


INPUT = torch.linspace(-1, 1, 2 * 3 * 8 * 8, dtype=torch.float64).view(2, 3, 8, 8)


def results(model):
    model.zero_grad()
    output = model(INPUT)
    output.sum().backward()
    return [output.detach(), *(parameter.grad for parameter in model.parameters())]


def test_outputs_and_gradients_are_equal_and_unpatch_restores_native_bit_for_bit(model):
    native = results(model)
    bypass.patch(model)
    bypass.reset_status()
    found = results(model)
    status = bypass.status()
    # Five convolutions with two gradients each, but for the first, whose input needs none.
    assert (sum(status["calls"].values()), status["native"]) == (14, {})
    torch.testing.assert_close(found, native, rtol=1e-10, atol=1e-10)
    bypass.unpatch(model)
    bypass.reset_status()
    assert all(torch.equal(*pair) for pair in zip(results(model), native))
    assert bypass.status() == {"calls": {}, "native": {}, "pytorch": {}, "own_kernels": {}, "inexact": {}}


def test_only_the_patched_model_is_concerned(model):
    other = nn.Conv2d(3, 4, 3).double()
    bypass.patch(model)
    bypass.reset_status()
    found = []
    thread = threading.Thread(target=lambda: found.append(other(INPUT).sum().backward()))

    def meanwhile(*_):
        thread.start()
        thread.join()

    model.conv.register_forward_hook(meanwhile)
    model(INPUT)
    other(INPUT).sum().backward()
    assert found == [None]
    assert sum(bypass.status()["calls"].values()) == 5
    assert bypass.status()["native"] == {}


def test_the_backward_of_a_patched_forward_is_the_bypass_s_after_unpatch(model):
    bypass.patch(model)
    output = model(INPUT.clone().requires_grad_())
    bypass.unpatch(model)
    bypass.reset_status()
    (gradient,) = torch.autograd.grad(output.sum(), model.kernel, create_graph=True)
    gradient.square().sum().backward()
    assert sum(bypass.status()["calls"].values()) > 4
    assert bypass.status()["native"] == {}


def test_a_patched_model_stays_what_it_was(model):
    keys = list(model.state_dict())
    parametrize.register_parametrization(model.up, "weight", Doubled())
    parametrize.register_parametrization(model.deep, "weight", Doubled())
    seen = []
    model.conv.register_forward_hook(lambda *_: seen.append("hook"))
    text = repr(model)
    before = model(INPUT)
    bypass.patch(model)
    torch.testing.assert_close(model(INPUT), before)
    assert seen == ["hook", "hook"]
    assert isinstance(model, Model)
    assert isinstance(model.up, nn.ConvTranspose2d)
    assert repr(model) == text
    assert parametrize.is_parametrized(model.up, "weight")
    parametrize.remove_parametrizations(model.up, "weight")
    parametrize.register_parametrization(model.conv, "weight", Doubled())
    bypass.reset_status()
    model(INPUT)
    assert sum(bypass.status()["calls"].values()) == 5
    bypass.unpatch(model)
    for module in (model.conv, model.deep):
        parametrize.remove_parametrizations(module, "weight")
    assert sorted(model.state_dict()) == sorted(keys)
    assert type(model.conv) is nn.Conv2d
    assert type(model.deep) is nn.Conv3d
    assert type(model) is Model
    assert type(model.up) is nn.ConvTranspose2d


def test_copies_are_patched_and_pickles_are_not():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)).double()
    bypass.patch(model)
    copied, read = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    bypass.unpatch(model)
    assert [type(each) for each in read.modules()] == [nn.Sequential, nn.Conv2d, nn.Conv2d]
    for module, calls in ((model, 0), (read, 0), (copied, 2)):
        bypass.reset_status()
        torch.testing.assert_close(module(INPUT), model(INPUT))
        assert sum(bypass.status()["calls"].values()) == calls
    bypass.unpatch(copied)


def test_copies_of_parametrised_layers_are_patched_one_by_one():
    layer = nn.Conv2d(3, 3, 3).double()
    parametrize.register_parametrization(layer, "weight", Doubled())
    before = copy.deepcopy(layer)
    model = nn.Sequential(layer, copy.deepcopy(layer))
    bypass.patch(model)
    after = copy.deepcopy(model[0])
    for module, calls in ((model, 2), (model[0], 1), (before, 0), (after, 1)):
        bypass.reset_status()
        module(INPUT)
        assert sum(bypass.status()["calls"].values()) == calls
    bypass.unpatch(after)
    bypass.reset_status()
    torch.testing.assert_close(model[0](INPUT), after(INPUT))
    assert sum(bypass.status()["calls"].values()) == 1
    bypass.unpatch(model)


class Counting(nn.Conv2d):
    """Has a copy protocol of its own, for something that cannot be copied."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.lock = threading.Lock()

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.lock = threading.Lock()


def test_copy_protocols_of_modules_hold():
    model = Counting(3, 4, 3).double()
    bypass.patch(model)
    copied, read = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    bypass.unpatch(model)
    for module, calls in ((copied, 1), (read, 0)):
        assert module.lock is not model.lock
        bypass.reset_status()
        module(INPUT)
        assert sum(bypass.status()["calls"].values()) == calls
    bypass.unpatch(copied)
    assert type(copied) is type(read) is Counting


def test_a_model_that_cannot_be_patched_stays_as_it_was():
    class Sealed(nn.Module):
        def __init_subclass__(cls):
            raise TypeError("no class may be derived from this one")

    model = nn.Sequential(nn.Conv2d(3, 4, 3), Sealed())
    with pytest.raises(TypeError, match="no class may be derived"):
        bypass.patch(model)
    assert type(model[0]) is nn.Conv2d
    bypass.unpatch(model)


def test_a_dropped_model_leaves_nothing_that_acts():
    # What other tests left, in cycles or alive, is not the subject.
    gc.collect()
    before = bypass.dispatch._present["cpu"]
    model = nn.Conv2d(3, 4, 3).double()
    bypass.patch(model)
    del model
    bypass.reset_status()
    other = nn.Conv2d(3, 4, 3).double()
    other(INPUT).sum().backward()
    assert bypass.status() == {"calls": {}, "native": {}, "pytorch": {}, "own_kernels": {}, "inexact": {}}
    bypass.unpatch(other)
    assert set(bypass.dispatch._present["cpu"]) <= set(before)


def test_patching_again_replaces_the_arguments_and_parts_can_be_unpatched(model):
    bypass.patch(model, algorithm="im2col")
    bypass.patch(model.up, algorithm="slow_conv2d")
    bypass.reset_status()
    model.conv(INPUT)
    model.up(torch.ones(1, 8, 4, 4, dtype=torch.float64))
    assert bypass.status()["calls"] == {"im2col": 1, "slow_conv2d": 1}
    bypass.unpatch(model.conv)
    bypass.reset_status()
    model.conv(INPUT)
    assert bypass.status()["calls"] == {}


@pytest.mark.parametrize("first", ["patch", "enabled"])
def test_a_patched_model_keeps_its_arguments_beside_an_installation(model, first):
    if first == "patch":
        bypass.patch(model.conv, algorithm="slow_conv2d")
    with bypass.enabled("cpu", algorithm="im2col"):
        if first == "enabled":
            bypass.patch(model.conv, algorithm="slow_conv2d")
        bypass.reset_status()
        output = model.conv(INPUT)
        F.conv2d(INPUT, torch.ones(1, 3, 3, 3, dtype=torch.float64))
        assert bypass.status()["calls"] == {"slow_conv2d": 1, "im2col": 1}
        # The backward as its forward, whatever is installed by then.
        output.sum().backward()
        assert bypass.status()["calls"] == {"slow_conv2d": 2, "im2col": 1}
        bypass.unpatch(model.conv)


def test_what_cannot_be_patched_is_refused():
    with pytest.raises(TypeError, match=r"patch requires a torch\.nn\.Module, not function"):
        bypass.patch(lambda x: x)
    scripted = torch.jit.script(nn.Sequential(nn.Conv2d(1, 1, 1)))
    with pytest.raises(TypeError, match="scripted module runs outside of Python"):
        bypass.patch(scripted)
    with pytest.raises(ValueError, match="no algorithm 'magic'"):
        bypass.patch(nn.Conv2d(1, 1, 1), algorithm="magic")


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="this torch has no torch.compiler")
def test_a_compiled_model_keeps_to_the_bypass(model):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).double()
    native = model(INPUT)
    bypass.patch(model)
    compiled = torch.compile(model, backend="aot_eager")
    bypass.reset_status()
    output = compiled(INPUT)
    torch.testing.assert_close(output, native)
    output.sum().backward()
    assert sum(bypass.status()["calls"].values()) == 5
    bypass.unpatch(model)
    bypass.reset_status()
    assert torch.equal(compiled(INPUT), native)
    assert bypass.status()["calls"] == {}


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("name", ["conv", "conv_transpose"])
def test_functions_compute_by_the_bypass_whatever_is_installed(name, spatial):
    torch.manual_seed(0)
    input = torch.randn(2, 4, *(5,) * spatial, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 2, *(3,) * spatial, dtype=torch.float64, requires_grad=True)
    options = {"stride": 2, "padding": 1, "groups": 2}
    native = getattr(F, f"{name}{spatial}d")(input, weight, **options)
    wanted = torch.autograd.grad(native.sum(), (input, weight))
    bypass.reset_status()
    output = getattr(bypass, f"{name}{spatial}d")(input, weight, **options)
    found = torch.autograd.grad(output.sum(), (input, weight))
    torch.testing.assert_close([output, *found], [native, *wanted])
    assert sum(bypass.status()["calls"].values()) == 3
    with pytest.raises(RuntimeError) as ours:
        getattr(bypass, f"{name}{spatial}d")(input, weight[:3], groups=2)
    with pytest.raises(RuntimeError) as theirs:
        getattr(F, f"{name}{spatial}d")(input, weight[:3], groups=2)
    assert str(ours.value) == str(theirs.value)


#: A trainer as in some libraries: it copies the model, or builds a new one from its description.
PROGRAM = """
import copy, sys, torch
from rocmprobe import bypass

def build():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3))

class Trainer:
    def __init__(self, model, habit):
        self.model = build() if habit == "rebuilds" else copy.deepcopy(model) if habit == "copies" else model

    def train(self):
        self.model(torch.ones(1, 1, 5, 5)).sum().backward()

model = build()
bypass.patch(model)
habit, _, installed = sys.argv[1].partition("+")
if installed:
    bypass.install("cpu")
Trainer(model, habit).train()
"""


@pytest.mark.parametrize(
    ("habit", "warns"), [("uses", False), ("copies", False), ("rebuilds", True), ("rebuilds+install", False)]
)
@pytest.mark.thorough
def test_only_a_rebuilt_model_warns(habit, warns):
    ended = subprocess.run([sys.executable, "-c", PROGRAM, habit], capture_output=True, text=True, check=True)
    assert ended.stderr.count("Use rocmprobe.bypass.install()") == warns, ended.stderr
