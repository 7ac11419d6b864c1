"""Check that a training step, repeated for minutes under load, always gives the same result."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2, sqrt
from typing import TYPE_CHECKING, Optional

from rocmprobe.checks.check import Check, FailureText, Requires
from rocmprobe.checks.tools.computation import one_thread
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import DeviceFailure, NotApplicable, out_of_memory
from rocmprobe.text.readable import duration

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Number of different images in a batch, and the seed of weights and data.
_IMAGES, _SEED = 4, 0
#: Number of results to compare first, and how many must be equal so that the setting counts as deterministic.
#: Not all must be equal, because a single different result can be a fault of the device.
_FIRST, _ALIKE = 10, 8
#: A step keeps the device busy if it takes at least this many seconds. Launches and comparisons take only
#: milliseconds.
_LOADED = 0.05
#: Number of copies of the images at the start, keyed by device type, and maximum number of copies. With the
#: maximum, a step needs about 1 GiB.
_COPIES = {"cpu": 1, "cuda": 64}
_MOST_COPIES = 256
#: The error of a correct result is at most this many times the error of fp32 on the CPU. The errors of
#: Winograd and FFT are up to ten times as large as the errors of plain sums (model/numerics.py).
_MARGIN = 10.0
#: An error is divided by the norm of the tensor, but at least by this fraction of the largest norm in its
#: group. Otherwise a tensor whose sums nearly cancel would have a large error even in a correct result.
_LEAST_SCALE = 0.1


class _Step:
    """A training step that always starts from the same weights and data.

    The batch has ``copies`` copies of each image, which does not change the loss and the gradients. ``names``
    and ``sizes`` describe the parts of a result: the loss, the gradients, and the new weights.
    """

    def __init__(self, device: str, dtype: torch.dtype, copies: int) -> None:
        import torch

        from rocmprobe.checks.networks.catalogue import STACK, drawn

        images, labels = STACK.draw(torch.Generator().manual_seed(_SEED + 1), _IMAGES)
        self._network = drawn(STACK, _SEED).to(device, dtype)
        self._start = [parameter.detach().clone() for parameter in self._network.parameters()]
        self._images = images.to(device, dtype).repeat(copies, 1, 1, 1)
        self._labels = labels.to(device).repeat(copies)
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=STACK.rate)
        parameters = dict(self._network.named_parameters())
        self.batch = len(self._images)
        self.names = ["the loss"]
        self.names += [f"{what} {name}" for what in ("the gradient of", "the new") for name in parameters]
        sizes = [parameter.numel() for parameter in parameters.values()]
        self.sizes = [1, *sizes, *sizes]

    def run(self) -> Tensor:
        """Run the step, and return loss, gradients and new weights as one flat tensor on the CPU."""
        import torch

        parameters = list(self._network.parameters())
        with torch.no_grad():
            for parameter, start in zip(parameters, self._start):
                parameter.copy_(start)
        self._optimizer.zero_grad()
        loss = self._network(self._images, self._labels)
        loss.backward()
        self._optimizer.step()
        gradients = [weight.grad for weight in parameters if weight.grad is not None]
        return torch.cat([part.detach().reshape(-1) for part in (loss, *gradients, *parameters)]).cpu()


class _Expected:
    """The result of the step in fp64 on the CPU. ``limit`` is the largest error of a correct result."""

    @one_thread()
    def __init__(self, copies: int) -> None:
        import torch

        step = _Step("cpu", torch.float64, 1)
        self._result, self._sizes = step.run(), step.sizes
        norms = [float(part.norm()) for part in self._result.split(self._sizes)]
        tensors = len(norms) // 2
        groups = norms[:1], norms[1 : tensors + 1], norms[tensors + 1 :]
        self._scales = [max(norm, _LEAST_SCALE * max(group)) for group in groups for norm in group]
        self.limit = _MARGIN * self.error(_Step("cpu", torch.float32, 1).run()) * sqrt(copies)

    def error(self, result: Tensor) -> float:
        """Return the largest relative error (L2 norm) of any tensor, or infinity if a number is not
        finite."""
        parts = zip(result.double().split(self._sizes), self._result.split(self._sizes), self._scales)
        errors = [float((part - expected).norm()) / scale for part, expected, scale in parts]
        return max(error if error < float("inf") else float("inf") for error in errors)


class _Soak:
    """The repetition of a step, and what it found so far."""

    def __init__(self, context: CheckContext, step: _Step, expected: _Expected) -> None:
        self._context, self._step, self._expected = context, step, expected
        self._began = context.clock()
        self._steps = self._mismatches = self._beyond_rounding = 0
        self._usual: Tensor
        self._bit_for_bit = True
        self._first_mismatch = ""

    @property
    def _seconds(self) -> float:
        return self._context.clock() - self._began

    @property
    def _after(self) -> str:
        return f"{_count(self._steps, 'step')} in {duration(self._seconds)}"

    def run(self) -> CheckResult:
        """Repeat the step until the time is over, and return the result of the check.

        The state is "wrong" if an error exceeds the limit, or "flaky" if only smaller differences were found.
        """
        first = [self._next() for _ in range(_FIRST)]
        self._usual, alike = _most_frequent(first)
        self._bit_for_bit = alike >= _ALIKE
        error = self._expected.error(self._usual)
        if error > self._expected.limit:
            return self._result("wrong", f"every step differs from fp64: {self._compared(error)}")
        for number, result in enumerate(first, 1):
            self._compare(number, result)
        while self._seconds < self._context.soak_seconds:
            result = self._next()
            self._compare(self._steps, result)
        if self._mismatches:
            message = f"{self._mismatches} of {self._steps} steps gave another result; {self._first_mismatch}"
            return self._result("wrong" if self._beyond_rounding else "flaky", message)
        how = "bit for bit" if self._bit_for_bit else "within rounding, because they are not reproducible"
        return self._result("pass", f"the results of {self._after} are the same {how}")

    def _next(self) -> Tensor:
        try:
            result: Tensor = self._context.steady_call(self._step.run)[0]
        except DeviceFailure as failure:
            error = failure.__cause__ or failure
            first, *others = f"{type(error).__name__}: {error}".splitlines()
            raise DeviceFailure("\n".join((f"{first} (after {self._after})", *others))) from None
        self._steps += 1
        return result

    def _compare(self, number: int, result: Tensor) -> None:
        if _same_bits(result, self._usual):
            return
        error = self._expected.error(result)
        right = error <= self._expected.limit
        if right and not self._bit_for_bit:
            return
        if not self._mismatches:
            differs = (
                f"the first was step {number}, after {duration(self._seconds)}: {self._differing(result)}"
            )
            self._first_mismatch = f"{differs}; {self._compared(error)}"
        self._mismatches += 1
        self._beyond_rounding += not right

    def _differing(self, result: Tensor) -> str:
        """Describe the differing bits of the tensor with the most differing values."""
        changed = (_bits(result) ^ _bits(self._usual)).split(self._step.sizes)
        counts = [int(part.count_nonzero()) for part in changed]
        most = counts.index(max(counts))
        bits = sum(int(((changed[most] >> place) & 1).sum()) for place in range(32))
        tensors = sum(map(bool, counts))
        others = f", and {_count(tensors - 1, 'other tensor')} changed" if tensors > 1 else ""
        changes = f"{_count(counts[most], 'value')} ({_count(bits, 'bit')})"
        return f"{changes} of {self._step.names[most]} changed{others}"

    def _compared(self, error: float) -> str:
        size = f"{error:.2g}" if error < float("inf") else "infinite"
        return f"the error is {size}, the limit is {self._expected.limit:.2g}"

    def _result(self, state: str, message: str) -> CheckResult:
        numerics = {
            "steps": self._steps,
            "seconds": round(self._seconds, 3),
            "mismatches": self._mismatches,
            "batch": self._step.batch,
            "bit_for_bit": self._bit_for_bit,
        }
        return CheckResult(state, message, numerics=numerics)


def soak(context: CheckContext) -> CheckResult:
    """Repeat a training step, and compare the results bit for bit.

    If more than two of the first ten results differ, compare results to fp64 with a tolerance instead.
    """
    step, copies = _find_loading_step(context)
    expected = _Expected(copies)
    with context.measured():
        return _Soak(context, step, expected).run()


def _find_loading_step(context: CheckContext) -> tuple[_Step, int]:
    """Return a step that is large enough to load the device, and the number of copies of each image."""
    copies = _COPIES[context.backend.device_type]
    step = _try_step(context, copies)
    while step is None and copies > 1:
        copies //= 2
        step = _try_step(context, copies)
    if step is None:
        raise NotApplicable("not even one copy of the images fits into memory")
    context.steady_call(step.run)
    # Try few batch sizes, because the library can compile new kernels for each size.
    faster = _LOADED / max(context.steady_call(step.run)[1], 1e-6)
    more = min(copies << max(0, int(log2(faster))), _MOST_COPIES)
    larger = _try_step(context, more) if more > copies else None
    return (larger, more) if larger else (step, copies)


def _try_step(context: CheckContext, copies: int) -> Optional[_Step]:
    try:
        step: _Step = context.placed(lambda: _Step(context.device, context.dtype, copies))
        context.first_call(step.run)
    except DeviceFailure as failure:
        if not out_of_memory(failure.__cause__):
            raise
        return None
    return step


def _count(amount: int, noun: str) -> str:
    return f"{amount} {noun if amount == 1 else f'{noun}s'}"


def _bits(result: Tensor) -> Tensor:
    import torch

    return result.view(torch.int32)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    import torch

    return torch.equal(_bits(one), _bits(other))


def _most_frequent(results: Sequence[Tensor]) -> tuple[Tensor, int]:
    """Return the most frequent result, compared bit for bit, and the number of occurrences."""
    counts = [sum(_same_bits(one, other) for other in results) for one in results]
    return results[counts.index(max(counts))], max(counts)


CHECKS = (
    Check(
        name="soak",
        rung="train",
        question="Does a training step give the same result again and again, under load?",
        function=soak,
        requires=Requires(float32=("training-step",)),
        process="last",
        once=True,
        seconds=10.0,
        explanation=FailureText(
            subject="A training step, repeated under load,",
            rung="primitives",
            advice="Remove overclocking and undervolting, or lower the clocks or the power limit. Then run "
            "`rocmprobe run --only soak` again. Until it passes, do not trust long training on this device.",
            needed=False,
            any_setting=True,
        ),
    ),
)
