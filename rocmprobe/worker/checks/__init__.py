"""The checks by name: each takes an Ask and gives an Answer."""

from __future__ import annotations

from collections.abc import Callable

from rocmprobe.worker.ask import Answer, Ask
from rocmprobe.worker.checks import (
    controls,
    fused,
    ladder,
    models,
    normalization,
    recurrent,
    several_gpus,
    training,
)
from rocmprobe.worker.checks.convolution import convolution
from rocmprobe.worker.checks.gradient_flow import gradient_flow
from rocmprobe.worker.checks.gradients import gradients
from rocmprobe.worker.checks.memory import memory
from rocmprobe.worker.checks.memory_sweep import memory_sweep
from rocmprobe.worker.checks.timing import start_up, throughput

ANSWERED_BY: dict[str, Callable[[Ask], Answer]] = {
    "copy": ladder.copy,
    "elementwise": ladder.elementwise,
    "gemm": ladder.gemm,
    "im2col": ladder.im2col,
    "pooling": controls.pooling,
    "activation": controls.activation,
    "softmax": controls.softmax,
    "instance-norm": controls.instance_norm,
    "local-response-norm": controls.local_response_norm,
    "convolution": convolution,
    "problem-matrix": convolution,
    "solver": convolution,
    "gradients": gradients,
    "gradient-flow": gradient_flow,
    "memory": memory,
    "memory-sweep": memory_sweep,
    "throughput": throughput,
    "start-up": start_up,
    "batch-norm": normalization.batch_norm,
    "batch-norm-eval": normalization.batch_norm_eval,
    "convolution-kinds": convolution,
    "rnn": recurrent.rnn,
    "lstm": recurrent.lstm,
    "gru": recurrent.gru,
    "ctc-loss": recurrent.ctc_loss,
    "convolution-relu": fused.convolution_relu,
    "convolution-add-relu": fused.convolution_add_relu,
    "training-step": training.training_step,
    "autocast-step": training.autocast_step,
    **models.ANSWERS,
    "all-reduce": several_gpus.all_reduce,
    "data-parallel": several_gpus.data_parallel,
}
