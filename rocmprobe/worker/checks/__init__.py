"""The checks by name: each takes an Ask and gives an Answer."""

from __future__ import annotations

from collections.abc import Callable

from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.checks.convolution import convolution
from rocmprobe.worker.checks.gradients import gradients
from rocmprobe.worker.checks.ladder import copy, elementwise, gemm, im2col
from rocmprobe.worker.checks.layers import batch_norm, training_step
from rocmprobe.worker.checks.measure import memory, start_up, throughput

ANSWERED_BY: dict[str, Callable[[Ask], Answer]] = {
    "copy": copy,
    "elementwise": elementwise,
    "gemm": gemm,
    "im2col": im2col,
    "convolution": convolution,
    "solver": convolution,
    "gradients": gradients,
    "memory": memory,
    "throughput": throughput,
    "start-up": start_up,
    "batch-norm": batch_norm,
    "training-step": training_step,
}
