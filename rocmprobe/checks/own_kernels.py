"""Check of rocmprobe's own kernels.

The bypass uses the kernels only if their self-test passed on the machine.
"""

from __future__ import annotations

from rocmprobe.checks.check import KERNELS, Check, FailureText
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import NotApplicable


def kernel(context: CheckContext) -> CheckResult:
    """Run the self-test of rocmprobe's own kernels, and store the verdict for the bypass."""
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
