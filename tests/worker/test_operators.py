"""Operators of training at level quick: each check finds a planted fault, and none in correct kernels.

A fault replaces the result of one of PyTorch's operators (aten), as a broken kernel of a build would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from asking import context  # noqa: E402
from tiers import OLD_TORCH  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from rocmprobe.checks import CHECKS  # noqa: E402
from rocmprobe.checks.tools.failures import NotApplicable  # noqa: E402

#: A tile of a device-wide select or scan.
TILE = 4096
Fault = Callable[[Any, tuple[Any, ...]], Any]


class Planted(TorchDispatchMode):
    """Replaces the result of an operator by ``fault``, a function of the result and the arguments.

    ``name`` is the operator's name, or several with | between them.
    """

    def __init__(self, name: str, fault: Fault) -> None:
        super().__init__()
        self._name, self._fault = name, fault

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return self._fault(result, args) if func.overloadpacket.__name__ in self._name.split("|") else result


def first_of(change: Callable[[Any], Any]) -> Fault:
    """Return the fault that changes the first of several results."""
    return lambda results, args: (change(results[0]), *results[1:])


def without_carry(sums: Any, args: tuple[Any, ...]) -> Any:
    """Scan each tile by itself."""
    return torch.cat([part.cumsum(0) for part in args[0].split(TILE)]) if sums.dim() == 1 else sums


def last_write_wins(sums: Any, args: tuple[Any, ...]) -> Any:
    """Lose what several threads add to one place, but for one."""
    return args[0].scatter(0, args[2], args[3])


#: By the check that must find it: the operator, and its fault.
FAULTS: dict[str, tuple[str, Fault]] = {
    "selection": ("nonzero", lambda found, args: found[: -(len(found) % TILE)]),
    "sorting": ("topk", lambda found, args: (found[0].flip(1), found[1])),
    "scans": ("cumsum", without_carry),
    "scatter-and-gather": ("scatter_add", last_write_wins),
    "reductions": ("argmax", lambda found, args: (found - 1).clamp(min=0)),
    "embedding": ("embedding_dense_backward", lambda found, args: found.clamp(-8, 8)),
    "padding": ("reflection_pad2d", lambda found, args: found.roll(1, -1)),
    "norms": ("native_layer_norm", first_of(lambda output: output * 0.95)),
    "resizing": ("upsample_bilinear2d", lambda found, args: found.roll(1, -1)),
    "grid-sampling": ("grid_sampler_2d_backward", first_of(lambda gradient: gradient * 1.05)),
    "prelu": ("_prelu_kernel|prelu", lambda found, args: args[0].clamp(min=0)),
    "global-pooling": ("_adaptive_avg_pool2d", lambda found, args: found * 1.05),
    "losses": ("nll_loss_forward", first_of(lambda loss: loss * 1.05)),
    "dropout": ("bernoulli_", lambda found, args: found.fill_(1)),
}


@contextmanager
def planted(name: str, fault: Fault) -> Iterator[None]:
    with Planted(name, fault):
        yield


def state(check: str, short: str, below: Callable[[], Any]) -> tuple[str, str]:
    """Return state and message of a check in a dtype, n/a if this torch has no such kernel for a CPU."""
    try:
        answer = CHECKS[check].function(context(f"conv1d-{short}-n1-c4-i8-k4-f3", below=below))
    except NotApplicable as reason:
        return "n/a", str(reason)
    return answer.state, answer.message


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_is_found_and_none_in_right_kernels(check: str) -> None:
    for short in ("fp32", "fp16"):
        right, why = state(check, short, nullcontext)
        assert right in ("pass", "n/a"), (short, why)
        if right == "pass":
            found = state(check, short, lambda: planted(*FAULTS[check]))[0]
            assert found == "wrong" or (OLD_TORCH and (short, found) == ("fp16", "n/a")), short


def test_the_message_names_each_operator_that_is_wrong() -> None:
    _, message = state("selection", "fp32", lambda: planted(*FAULTS["selection"]))
    assert message.startswith("nonzero: shape (")
    assert "unique" not in message


#: MIOpen before 3.6.0 biased this gradient by 1 % in NCHW. Its notes do not say how, so each way is tried.
BIASES: dict[str, Callable[[Any, Any], Any]] = {
    "too large": lambda gradient, grad: gradient * 1.01,
    "shifted by its own size": lambda gradient, grad: gradient + 0.01 * gradient.abs().mean(),
    "shifted by the mean of the output's": lambda gradient, grad: (
        gradient + 0.01 * grad.mean((0, 2, 3), keepdim=True)
    ),
}


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("short", ["fp32", "fp16"])
def test_batch_norm_shows_a_bias_of_one_percent_in_its_gradient(short: str, bias: str) -> None:
    fault: Fault = lambda found, args: (BIASES[bias](found[0], args[0]), *found[1:])  # noqa: E731
    assert state("batch-norm", short, nullcontext)[0] in ("pass", "n/a")
    found, message = state("batch-norm", short, lambda: planted("native_batch_norm_backward", fault))
    assert found in ("wrong", "n/a")
    assert found == "n/a" or message.startswith("gradient of input: error 0.0")
