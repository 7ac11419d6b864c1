"""Check of rocmprobe's own kernels and of their throughput.

The bypass uses the kernels only if their self-test passed on the machine.
"""

from __future__ import annotations

from rocmprobe.checks.check import KERNELS, Check, FailureText
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import NotApplicable

#: Sizes ``(rows, inner, columns)`` of products. The first and the last product are squares. The others are
#: for the 3x3 layers of ResNet-50 with im2col and one image of 224x224 pixels (He et al., 2015, table 1).
_PRODUCTS = (
    (512, 512, 512), (64, 576, 3136), (128, 1152, 784), (256, 2304, 196), (512, 4608, 49), (4096, 4096, 4096),
)  # fmt: skip
#: A product is skipped if it would take more seconds than this at the lowest throughput so far.
_LONGEST_PRODUCT = 0.5
_REPEATS = 5


def kernel(context: CheckContext) -> CheckResult:
    """Run the self-test of rocmprobe's own kernels, and store the verdict for the bypass.

    If the self-test passes, measure throughput.
    """
    if context.backend.device_type == "cpu":
        raise NotApplicable("these kernels are compiled for a GPU, but this test runs on a CPU")
    import torch

    from rocmprobe.bypass import kernel_modules
    from rocmprobe.kernels import KernelsUnavailable, SelfTest

    device = torch.device(context.device)
    context.placed(lambda: torch.zeros(1, device=device))

    def tried() -> SelfTest:
        try:
            return kernel_modules.tried(device, context.dtype_name)
        except KernelsUnavailable as unavailable:
            raise NotApplicable(unavailable.reason) from unavailable

    trial, seconds = context.first_call(tried)
    answer = CheckResult(timings={"trial": seconds, "compile": trial.compile_seconds})
    answer.evidence += trial.log.splitlines()
    answer.numerics["exact"] = not trial.wrong
    if trial.wrong:
        answer.state, answer.message = "wrong", "; ".join(trial.wrong)
        return answer
    with context.measured():
        if context.dtype_name == "float32":
            rates, _ = context.steady_call(lambda: kernel_modules.rates(device))
            answer.timings["launch"] = rates.launch
            answer.numerics["multiply_add_flops"] = rates.flops
            answer.numerics["copied_bytes"] = rates.bytes
        products, _ = context.steady_call(lambda: _products(context))
        answer.numerics["product_flops"] = products
    return answer


def _products(context: CheckContext) -> dict[str, float]:
    rates: dict[str, float] = {}
    for rows, inner, columns in _PRODUCTS:
        work = 2.0 * rows * inner * columns
        if not rates or work / min(rates.values()) < _LONGEST_PRODUCT:
            rates[f"{rows}x{inner}x{columns}"] = work / _product_seconds(context, rows, inner, columns)
    return rates


def _product_seconds(context: CheckContext, rows: int, inner: int, columns: int) -> float:
    import torch

    from rocmprobe.bypass.choice.timing import seconds

    left, right, product = (
        torch.ones(shape, dtype=context.dtype, device=context.device)
        for shape in ((rows, inner), (inner, columns), (rows, columns))
    )
    device = torch.device(context.device)
    taken = [seconds(device, lambda: torch.mm(left, right, out=product)) for _ in range(_REPEATS)]
    return max(1e-9, min(taken))


CHECKS = (
    Check(
        name="kernel",
        rung="gemm",
        question="Do kernels that are compiled on this machine load, and give exact results?",
        function=kernel,
        requires=KERNELS,
        process="last",
        seconds=0.01,
        explanation=FailureText(
            subject="A kernel of rocmprobe's own",
            rung="elementwise",
            advice="The bypass does not use these kernels, and nothing else needs them. Please report it.",
            general=False,
            needed=False,
        ),
    ),
)
