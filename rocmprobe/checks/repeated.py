"""Check of thousands of copies and kernels, to find failures that happen now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Union

from rocmprobe.checks.check import Check, Requires
from rocmprobe.checks.tools.computation import one_thread
from rocmprobe.checks.tools.context import CheckContext, CheckResult

if TYPE_CHECKING:
    from torch import Tensor

#: (bytes of a copy, number of copies in each direction, number of copies before each comparison). A copy of
#: at most 16 KiB does not use the GPU's copy engine (CLR, GPU_FORCE_BLIT_COPY_SIZE).
COPIES = ((4 << 10, 3000, 60), (64 << 10, 3000, 12), (1 << 20, 300, 2))
#: Number of kernels, and number of kernels before each comparison.
KERNELS, _KERNELS_AT_ONCE = 3000, 60
_ELEMENTS_OF_KERNEL = 1024
#: Seconds after which no further batch of a kind begins. A GPU needs 0.2 s, an emulated GPU minutes.
_SECONDS = 2.0
#: Random integers are smaller, so that float32 can represent them plus the number of a batch.
_LARGEST = 1 << 23


@one_thread()
def repeated(context: CheckContext) -> CheckResult:
    """Copy thousands of times to the device and back, run thousands of kernels, and compare exactly.

    If no fault shows in n operations, the rate of faults is below 3 / n with 95 % confidence. So the check
    finds a fault in 1 of 1000 copies of 4 KiB or of 64 KiB in either direction, in 1 of 1000 kernels, and in
    1 of 100 copies of 1 MiB, each with more than 95 % probability. A GPU copies from pageable memory and
    from pinned memory, each as often. On a slow device, the time ends before all operations are done. Then
    the message says how many were done, and which rate they can show.
    """
    pinnable = context.backend.device_type == "cuda"
    answer = CheckResult()
    seconds = 0.0
    for pinned in (False, True) if pinnable else (False,):
        for size, count, at_once in COPIES:
            kind = "pinned" if pinned else "pageable"
            what = f"copies of {size >> 10} KiB to the device and back ({kind} memory)"
            seconds += _counted(context, answer, what, count, _Copies(context, size, at_once, pinned))
    seconds += _counted(context, answer, "small kernels", KERNELS, _Kernels(context))
    answer.timings["steady"] = seconds
    return answer


class _Copies:
    """A batch of copies from the CPU to the device and back."""

    def __init__(self, context: CheckContext, size: int, at_once: int, pinned: bool) -> None:
        import torch

        shape = (at_once, size // torch.empty((), dtype=context.dtype).element_size())
        generator = torch.Generator().manual_seed(context.seed())
        sent = torch.randint(0, _LARGEST, shape, generator=generator).to(context.dtype)
        received = torch.empty_like(sent)
        # Without pinned memory, do not call pin_memory, because it needs a GPU.
        self.expected = sent.pin_memory() if pinned else sent
        self.received = received.pin_memory() if pinned else received
        device = context.placed(lambda: torch.empty(shape, dtype=context.dtype, device=context.device))
        self._rows = list(zip(self.expected, device, self.received))

    def run(self) -> Tensor:
        # Change every element, so that a copy that does nothing leaves wrong data behind.
        self.expected.add_(1)
        for source, target, received in self._rows:
            target.copy_(source)
            received.copy_(target)
        return self.received


class _Kernels:
    """A batch of kernels that add a number."""

    def __init__(self, context: CheckContext) -> None:
        import torch

        shape = (_KERNELS_AT_ONCE, _ELEMENTS_OF_KERNEL)
        generator = torch.Generator().manual_seed(context.seed())
        self.expected = torch.randint(0, _LARGEST, shape, generator=generator).to(context.dtype)
        self._values = context.placed(lambda: self.expected.to(context.device, copy=True))
        self._rows = list(self._values)

    def run(self) -> Tensor:
        self.expected.add_(1)
        for row in self._rows:
            row.add_(1)
        return self._values.cpu()


def _counted(
    context: CheckContext, answer: CheckResult, what: str, count: int, batch: Union[_Copies, _Kernels]
) -> float:
    """Run ``batch`` until ``count`` operations are done or the time is up, and return the seconds.

    Store the number of operations and the first wrong result in ``answer``.
    """
    import torch

    seconds, at_once = 0.0, len(batch.expected)
    ends = time.monotonic() + _SECONDS
    for done in range(at_once, count + 1, at_once):
        result, passed = context.steady_call(batch.run)
        seconds += passed
        if answer.state == "pass" and not torch.equal(result, batch.expected):
            faulty = int((result != batch.expected).any(1).sum())
            answer.state, answer.message = "wrong", f"{faulty} of the first {done} {what} gave wrong data"
            break
        if time.monotonic() > ends:
            break
    answer.numerics[what] = done
    if answer.state == "pass" and done < count:
        rate = f"enough to find a fault in 1 of {done // 3}"
        answer.message += (
            f"{'; ' if answer.message else ''}only {done} of {count} {what} in {_SECONDS:g} s, {rate}"
        )
    return seconds


CHECKS = (
    Check(
        name="repeated",
        rung="copy",
        question="Do thousands of copies and kernels give exact results each time?",
        function=repeated,
        requires=Requires(("copy",)),
        seconds=0.5,
    ),
)
