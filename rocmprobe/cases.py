"""Cases: one question each, with an id that stays the same from run to run.

A case becomes one pytest item and one outcome. ``needs`` holds the ids of the cases it stands on;
where one of them failed, the case is blocked. ``if_failed`` holds the ids of those that give a reason to ask:
where none of them failed, the case is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Check:
    """A kind of question: its rung, what it asks, and whether it measures time or memory (then it
    has the device for itself)."""

    rung: str
    question: str
    exclusive: bool = False


CHECKS = {
    "copy": Check("copy", "Does the device open, and do bytes come back as they went?"),
    "elementwise": Check("elementwise", "Do PyTorch's own kernels, or HIP's, run and give exact results?"),
    "gemm": Check("gemm", "Does matrix multiplication (rocBLAS on AMD) give right numbers?"),
    "im2col": Check("im2col", "Do unfold and fold move every element to its place?"),
    "pooling": Check("controls", "Are max and average pooling, PyTorch's own kernels, right?"),
    "activation": Check("controls", "Are ReLU, GELU, sigmoid and their like right, with their gradients?"),
    "softmax": Check("controls", "Are softmax and its logarithm right, with their gradients?"),
    "instance-norm": Check("controls", "Is instance norm without weights, PyTorch's own kernel, right?"),
    "local-response-norm": Check("controls", "Is local response norm, PyTorch's own kernels, right?"),
    "convolution": Check("conv", "Does convolution give right numbers, each direction apart?"),
    "problem-matrix": Check("conv", "Is convolution right over networks, variants and geometry?"),
    "solver": Check("conv", "Does this solver alone give right numbers?"),
    "gradients": Check("conv", "Do first and second derivatives agree with finite differences?"),
    "gradient-flow": Check(
        "conv", "Are gradients right: accumulated, channels-last, checkpointed, autocast?"
    ),
    "memory": Check("conv", "How much memory does convolution take and keep for backward?", exclusive=True),
    "memory-sweep": Check("conv", "What is the largest batch that fits?", exclusive=True),
    "throughput": Check("conv", "How fast is convolution, forward and with backward?", exclusive=True),
    "start-up": Check("conv", "What does the first call cost, caches empty and filled?", exclusive=True),
    "batch-norm": Check("batch-norm", "Does batch norm train and give right numbers?"),
    "batch-norm-eval": Check("batch-norm", "Is batch norm right with the statistics that training left?"),
    "convolution-kinds": Check("primitives", "Are 1-d, 3-d, transposed and depthwise convolution right?"),
    "rnn": Check("primitives", "Is an Elman RNN of one and of two layers right, with its gradients?"),
    "lstm": Check("primitives", "Is an LSTM of one and of two layers right, with its gradients?"),
    "gru": Check("primitives", "Is a GRU of one and of two layers right, with its gradients?"),
    "ctc-loss": Check("primitives", "Is the CTC loss right, with its gradient?"),
    "convolution-relu": Check("primitives", "Is convolution, bias and ReLU in one operator right?"),
    "convolution-add-relu": Check("primitives", "Is convolution, bias, sum and ReLU in one operator right?"),
    "training-step": Check("train", "Does a small CNN train as it does on the CPU in fp64?"),
    "autocast-step": Check("train", "Does it train so under autocast, with its loss scaled?"),
    "train-resnet": Check("train", "Does a ResNet train right, and how fast?", exclusive=True),
    "train-detector": Check("train", "Does a detector train right, and how fast?", exclusive=True),
    "train-unet": Check("train", "Does a U-Net train right, and how fast?", exclusive=True),
    "train-lstm": Check("train", "Does an LSTM train right, and how fast?", exclusive=True),
    "train-depthwise": Check("train", "Does a depthwise network train right, and how fast?", exclusive=True),
    "all-reduce": Check("multi-gpu", "Do all GPUs come to the sum of what each of them holds?"),
    "data-parallel": Check("multi-gpu", "Does DataParallel over all GPUs train as one of them does?"),
}

#: The checks that train one of the small networks, and of these the ones that stand on convolution.
MODELS = ("train-resnet", "train-detector", "train-unet", "train-lstm", "train-depthwise")
CONVOLUTIONAL_MODELS = tuple(name for name in MODELS if name != "train-lstm")
#: Checks that ask convolution for right numbers, and whose answers count for a setting.
CONVOLUTIONS = ("convolution", "problem-matrix")

#: Checks of which each problem has a process of its own.
OWN_PROCESS = ("start-up", "memory-sweep")


@dataclass(frozen=True)
class Case:
    """One question to one device under one driver and setting."""

    device: str
    driver: str
    setting: str
    check: str
    dtype: str
    problem: Optional[str] = None
    direction: Optional[str] = None
    needs: tuple[str, ...] = ()
    if_failed: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        what = (self.check, self.problem or self.dtype, self.direction)
        return "/".join(part for part in (self.device, self.driver, self.setting, *what) if part)

    @property
    def rung(self) -> str:
        return CHECKS[self.check].rung

    @property
    def exclusive(self) -> bool:
        return CHECKS[self.check].exclusive

    @property
    def trial_key(self) -> str:
        """What the cases of one child process share. Measurements have one of their own, in which the
        vendor library does not trace what it does: that takes time. A start-up has its own databases, too;
        a memory sweep a process whose memory nothing else has filled."""
        return trial_key(self.id)


def trial_key(case_id: str) -> str:
    """The same, from the id of a case."""
    *under, check, subject = case_id.split("/")[:5]
    own = (check, subject) if check in OWN_PROCESS else ("measure",)
    return "/".join((*under, *(own if CHECKS[check].exclusive else ())))
