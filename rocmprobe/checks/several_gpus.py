"""Checks of two or more GPUs together.

These checks have never run on real hardware.
"""

from __future__ import annotations

from typing import Any

from rocmprobe.checks.check import KERNELS, Check, Requires
from rocmprobe.checks.tools.compare import check_errors
from rocmprobe.checks.tools.context import CheckContext, CheckResult
from rocmprobe.checks.tools.failures import NotApplicable
from rocmprobe.model.numerics import LAYER_LIMITS


def _gpus(context: CheckContext) -> int:
    import torch

    if context.backend.device_type != "cuda":
        raise NotApplicable("this test needs two GPUs, but runs on a CPU")
    if torch.cuda.device_count() < 2:
        raise NotApplicable(f"this test needs two GPUs, but torch sees {torch.cuda.device_count()}")
    return torch.cuda.device_count()


def all_reduce(context: CheckContext) -> CheckResult:
    """Sum one vector from each GPU with NCCL (RCCL on ROCm), and compare the sum."""
    import torch
    from torch.cuda import nccl

    count = _gpus(context)

    def call() -> list[Any]:
        vectors = [
            torch.full((1 << 16,), rank + 1, dtype=context.dtype, device=f"cuda:{rank}")
            for rank in range(count)
        ]
        if not nccl.is_available(vectors):
            raise NotApplicable(f"torch {torch.__version__} is built without NCCL")
        nccl.all_reduce(vectors)
        for rank in range(count):
            torch.cuda.synchronize(rank)
        return vectors

    vectors, seconds = context.first_call(call)
    right = count * (count + 1) // 2
    wrong = [rank for rank, vector in enumerate(vectors) if not bool((vector == right).all())]
    answer = CheckResult(timings={"first_call": seconds}, numerics={"gpus": count})
    if wrong:
        answer.state, answer.message = "wrong", f"the sum is wrong on GPU {', '.join(map(str, wrong))}"
    return answer


def data_parallel(context: CheckContext) -> CheckResult:
    """Compare loss and gradients of DataParallel over all GPUs to those on one GPU."""
    import torch
    from torch import nn

    count = _gpus(context)
    generator = torch.Generator().manual_seed(context.seed())
    images = torch.rand((4 * count, 3, 16, 16), generator=generator) * 2 - 1
    labels = torch.arange(4 * count) % 4

    def step(gpus: list[int]) -> dict[str, Any]:
        torch.manual_seed(context.seed())
        # Do not use batch norm, because DataParallel computes its statistics separately on each GPU.
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
        ).to("cuda:0", context.dtype)
        output = nn.DataParallel(model, gpus)(images.to("cuda:0", context.dtype))
        loss = nn.functional.cross_entropy(output, labels.to("cuda:0"))
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        return {"loss": loss.detach().reshape(1), **gradients}

    alone, _ = context.first_call(lambda: step([0]))
    together, seconds = context.first_call(lambda: step(list(range(count))))
    compared = ((name, together[name], alone[name].double().cpu()) for name in alone)
    answer = CheckResult(timings={"first_call": seconds}, numerics={"gpus": count})
    return check_errors(compared, answer, LAYER_LIMITS[context.dtype_name])


CHECKS = (
    Check(
        "all-reduce", "multi-gpu", "Does an all-reduce over all GPUs return the correct sum?",
        all_reduce, KERNELS, verified=False,
    ),
    Check(
        "data-parallel", "multi-gpu", "Does DataParallel over all GPUs train like one GPU?",
        data_parallel, Requires(("all-reduce",), float32=("training-step",)), verified=False,
    ),
)  # fmt: skip
