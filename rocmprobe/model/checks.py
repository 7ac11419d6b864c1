"""The checks: what is known of each, in one row. The function that runs it is in ``worker/checks/``, and
the suites say under which settings and in which dtypes it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Optional

from rocmprobe.model.repro_script import (
    ABOVE_HALF,
    UNIFORM,
    ReproScript,
    control,
    recurrent,
)


@dataclass(frozen=True)
class Requires:
    """What a check depends on: where one of these fails, it is blocked.

    ``below``: checks in its own dtype under ``default``; ``outside``: such checks, where its setting keeps
    convolution out of the vendor library; ``beside``: checks in its own dtype under ``default``,
    ``vendor-off`` or ``by-layer``, whichever treats other layers as its setting does; ``float32``: checks in
    float32 under its own setting; ``autocast``: checks under autocast to its own dtype, unless that is
    float32, and under its own setting. ``convolution``: of the first native problem under its own setting,
    "every" direction, its "own" one, or "fwd".
    """

    below: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()
    autocast: tuple[str, ...] = ()
    convolution: str = ""


@dataclass(frozen=True)
class Layer:
    """A kind of layer besides plain convolution that enters a vendor library. ``words`` name it; ``option``
    is the keyword of ``rocmprobe.bypass.install`` that sends it to PyTorch's own kernels."""

    words: str
    option: str


@dataclass(frozen=True)
class Check:
    """A kind of question.

    ``function``: module and function in ``rocmprobe.worker.checks`` that answer it by torch.
    ``exclusive``: it measures time or memory, and has the device for itself; ``own_process``: each problem,
    or dtype, has a process of its own. ``last``: asked at the end of a run, since it may stop the machine and
    nothing depends on it. ``capi_dtypes``: the dtypes that the driver capi answers; empty for those of the
    problem, None where that driver does not answer at all. ``verified``: the recommendation rests on it, so
    ``--verify`` repeats it. ``seconds``: expected, besides what is measured, from a run of level quick on a
    two-core desktop. ``script``: its repro text where that is the same for every outcome. ``layer``: what it
    tests in the vendor library.
    """

    name: str
    rung: str
    question: str
    function: str
    requires: Requires = Requires()
    exclusive: bool = False
    own_process: bool = False
    last: bool = False
    capi_dtypes: Optional[tuple[str, ...]] = None
    verified: bool = True
    seconds: float = 0.1
    script: Optional[ReproScript] = None
    layer: Optional[Layer] = None


_KERNELS = Requires(("elementwise",))
_CONVOLUTION = Requires(("elementwise",), outside=("gemm",))
_ANOTHER_CONVOLUTION = Requires(("elementwise",), outside=("gemm",), convolution="own")
_EVERY_DIRECTION = Requires(convolution="every")

_control = partial(Check, rung="controls", requires=_KERNELS, verified=False)
_primitive = partial(Check, rung="primitives", verified=False)
_recurrent = partial(_primitive, requires=Requires(("elementwise", "gemm")))
_fused = partial(
    _primitive, requires=Requires(("elementwise",), outside=("gemm",), convolution="fwd"),
    layer=Layer("convolution with ReLU in one operator", "fused_convolution"),
)  # fmt: skip
_attention = partial(
    Check, rung="primitives", requires=Requires(("elementwise", "gemm")), verified=False, seconds=0.05,
)  # fmt: skip
_compiled = partial(Check, rung="primitives", verified=False)
_network = partial(
    Check, rung="train", exclusive=True, seconds=1.5,
    requires=Requires(float32=("training-step",), autocast=("autocast-step",)),
)  # fmt: skip

_ROWS = (
    Check(
        "copy", "copy", "Does the device open, and do bytes come back as they went?", "ladder.copy",
        # A device that does not open is not tested again for every dtype.
        Requires(float32=("copy",)), capi_dtypes=("float32",),
        script=ReproScript(
            ("sent",), ("torch.randint(0, 256, (4 << 20,), dtype=torch.uint8)",), (),
            ("[", "sent.clone()", "]"), 0.0,
        ),
    ),
    Check(
        "elementwise", "elementwise", "Do PyTorch's own kernels, or HIP's, run and give exact results?",
        "ladder.elementwise", Requires(("copy",)), capi_dtypes=("float32",),
        script=ReproScript(
            ("values",), ("torch.randint(-8, 9, (64, 1024)).double()",), (),
            ("[", "result, result.float().sum(1)", "]"), 0.0,
            before=("result = torch.relu(values * 2 + 1)",),
        ),
    ),
    Check(
        "gemm", "gemm", "Does matrix multiplication (rocBLAS on AMD) give right numbers?", "ladder.gemm",
        _KERNELS, capi_dtypes=("float32", "float16", "bfloat16", "float64"),
    ),
    Check(
        "matmul", "gemm", "Is a linear layer right by the library that PyTorch prefers for it?",
        "matmul.matmul", _KERNELS, verified=False,
    ),
    Check(
        "int-matmul", "gemm", "Are products of bytes, which hipBLASLt alone computes on AMD, exact?",
        "matmul.int_matmul", _KERNELS, verified=False, seconds=0.01,
    ),
    Check(
        "kernel", "gemm", "Do kernels that are compiled on this machine load, and give exact results?",
        "own_kernels.kernel", _KERNELS, exclusive=True, own_process=True, last=True, verified=False,
        seconds=0.01,
    ),
    Check(
        "im2col", "im2col", "Do unfold and fold move every element to its place?", "ladder.im2col", _KERNELS,
        script=ReproScript(
            ("image",), ("torch.randint(-8, 9, (2, 5, 17, 19)).double()",), (),
            ("[", "columns, torch.nn.functional.fold(columns, (17, 19), **geometry)", "]"), 0.0,
            before=(
                "geometry = dict(kernel_size=(3, 2), dilation=(1, 2), padding=(1, 1), stride=(2, 1))",
                "columns = torch.nn.functional.unfold(image, **geometry)",
            ),
        ),
    ),
    _control(
        "pooling", question="Are max and average pooling, PyTorch's own kernels, right?",
        function="controls.pooling",
        script=control("F.max_pool2d(x, 3, 2, 1)", "F.avg_pool2d(x, 3, 2, 1)"),
    ),
    _control(
        "activation", question="Are ReLU, GELU, sigmoid and their like right, with their gradients?",
        function="controls.activation",
        script=control(
            "torch.relu(x)", "F.leaky_relu(x)", "torch.sigmoid(x)", "torch.tanh(x)", "F.gelu(x)", "F.silu(x)"
        ),
    ),
    _control(
        "softmax", question="Are softmax and its logarithm right, with their gradients?",
        function="controls.softmax", script=control("F.softmax(x, 1)", "F.log_softmax(x, 1)"),
    ),
    _control(
        "instance-norm", question="Is instance norm without weights, PyTorch's own kernel, right?",
        function="controls.instance_norm", script=control("F.instance_norm(x)"),
    ),
    _control(
        "local-response-norm", question="Is local response norm, PyTorch's own kernels, right?",
        function="controls.local_response_norm", script=control("F.local_response_norm(x, 5, 1.0)"),
    ),
    Check(
        "convolution", "conv", "Does convolution give right numbers, each direction apart?",
        "convolution.convolution", _CONVOLUTION, capi_dtypes=(),
    ),
    Check(
        "problem-matrix", "conv", "Is convolution right over networks, variants and geometry?",
        "convolution.convolution", _ANOTHER_CONVOLUTION,
    ),
    Check(
        "solver", "conv", "Does this solver alone give right numbers?", "convolution.convolution",
        _CONVOLUTION, capi_dtypes=(), verified=False,
    ),
    Check(
        "gradients", "conv", "Do first and second derivatives agree with finite differences?",
        "gradients.gradients", _EVERY_DIRECTION,
    ),
    Check(
        "gradient-flow", "conv",
        "Are gradients right: accumulated, channels-last, checkpointed, autocast?",
        "gradients.gradient_flow", _EVERY_DIRECTION, seconds=0.5,
    ),
    Check(
        "memory", "conv", "How much memory does convolution take and keep for backward?", "memory.memory",
        _EVERY_DIRECTION, exclusive=True, verified=False, seconds=1.5,
    ),
    Check(
        "memory-sweep", "conv", "What is the largest batch that fits?", "memory_sweep.memory_sweep",
        _EVERY_DIRECTION, exclusive=True, own_process=True, verified=False, seconds=1.5,
    ),
    Check(
        "throughput", "conv", "How fast is convolution, forward and with backward?", "timing.throughput",
        # Its yardstick is a matrix product: one that hangs would be waited for beside every problem.
        Requires(("gemm",), convolution="every"), exclusive=True, verified=False, seconds=0.6,
    ),
    Check(
        "start-up", "conv", "What does the first call cost, caches empty and filled?", "timing.start_up",
        _EVERY_DIRECTION, exclusive=True, own_process=True, verified=False, seconds=2.5,
    ),
    Check(
        "changing-sizes", "conv", "What does each input size cost that is new to the process?",
        "sizes.changing_sizes", Requires(convolution="fwd"), exclusive=True, verified=False, seconds=0.7,
    ),
    Check(
        "batch-norm", "batch-norm", "Does batch norm train and give right numbers?",
        "primitives.batch_norm", _KERNELS, capi_dtypes=("float32",),
        layer=Layer("batch norm", "batch_norm"),
        script=ReproScript(
            ("x", "w", "b", "dy"), ("draw(4, 16, 14, 14)", "draw(16)", "draw(16)", "draw(4, 16, 14, 14)"),
            ABOVE_HALF, ("[", "y.detach(), *torch.autograd.grad(y, leaves, dy)", "]"), least=1.0,
            before=(
                "leaves = [t.detach().requires_grad_() for t in (x, wide(w), wide(b))]",
                "y = torch.nn.functional.batch_norm(leaves[0], None, None, *leaves[1:], training=True)",
            ),
        ),
    ),
    Check(
        "batch-norm-eval", "batch-norm", "Is batch norm right with the statistics that training left?",
        "primitives.batch_norm_eval", _KERNELS, verified=False,
        layer=Layer("batch norm in evaluation", "batch_norm"),
        script=ReproScript(
            ("x", *"mvwb"), ("draw(4, 16, 14, 14)", *["draw(16)"] * 4), ABOVE_HALF,
            ("[", "torch.nn.functional.batch_norm(x, *map(wide, (m, v, w, b)))", "]"), least=1.0,
        ),
    ),
    _primitive(
        "convolution-kinds", question="Are 1-d, 3-d, transposed and depthwise convolution right?",
        function="convolution.convolution", requires=_ANOTHER_CONVOLUTION,
    ),
    _recurrent(
        "rnn", question="Is an Elman RNN of one and of two layers right, with its gradients?",
        function="primitives.rnn", layer=Layer("RNN", "rnn"), script=recurrent("RNN", 1),
    ),
    _recurrent(
        "lstm", question="Is an LSTM of one and of two layers right, with its gradients?",
        function="primitives.lstm", layer=Layer("LSTM", "rnn"), script=recurrent("LSTM", 4),
    ),
    _recurrent(
        "gru", question="Is a GRU of one and of two layers right, with its gradients?",
        function="primitives.gru", layer=Layer("GRU", "rnn"), script=recurrent("GRU", 3),
    ),
    _primitive(
        "ctc-loss", question="Is the CTC loss right, with its gradient?", function="primitives.ctc_loss",
        requires=_KERNELS, layer=Layer("CTC loss", "ctc_loss"),
        script=ReproScript(
            ("x", "dy"), ("draw(12, 2, 5)", "draw(2)"), (UNIFORM,),
            ("[", "y.detach(), *torch.autograd.grad(y, x, dy)", "]"), least=1.0,
            before=(
                "x, targets = x.detach().requires_grad_(), torch.tensor([1, 2, 3, 1], dtype=torch.int32)",
                "scores = torch.nn.functional.log_softmax(x, 2)",
                'y = torch.nn.functional.ctc_loss(scores, targets, (12, 12), (3, 1), reduction="none")',
            ),
        ),
    ),
    _fused(
        "convolution-relu", question="Is convolution, bias and ReLU in one operator right?",
        function="primitives.convolution_relu",
    ),
    _fused(
        "convolution-add-relu", question="Is convolution, bias, sum and ReLU in one operator right?",
        function="primitives.convolution_add_relu",
    ),
    _attention(
        "attention", question="Is scaled dot product attention right, by the backend that PyTorch chooses?",
        function="attention.attention",
    ),
    _attention(
        "attention-math", question="Is it right by separate products and a softmax?",
        function="attention.attention_math",
    ),
    _attention(
        "attention-flash", question="Is it right by the flash kernel?", function="attention.attention_flash",
    ),
    _attention(
        "attention-efficient", question="Is it right by the memory-efficient kernel?",
        function="attention.attention_efficient",
    ),
    _compiled(
        "triton", question="Does a kernel that Triton compiles write what it should?",
        function="compiled.triton", requires=_KERNELS, seconds=0.01,
    ),
    Check(
        "training-step", "train", "Does a small CNN train as it does on the CPU in fp64?",
        "training.training_step", Requires(("gemm",), beside=("batch-norm",), convolution="every"),
        seconds=2.0,
    ),
    Check(
        "channels-last-step", "train", "Does it train so in channels-last?", "training.channels_last_step",
        Requires(float32=("training-step",)), verified=False, seconds=0.05,
    ),
    Check(
        "autocast-step", "train", "Does it train so under autocast, with its loss scaled?",
        "training.autocast_step",
        Requires(("gemm",), beside=("batch-norm",), float32=("training-step",), convolution="every"),
    ),
    _compiled(
        "inductor", question="Does torch.compile compute what the same network does without it?",
        function="compiled.inductor", requires=Requires(("training-step",)), exclusive=True,
        own_process=True, seconds=17.0,
    ),
    _network(
        "train-resnet", question="Does a ResNet train right, and how fast?", function="models.train_resnet"
    ),
    _network(
        "train-detector", question="Does a detector train right, and how fast?",
        function="models.train_detector",
    ),
    _network("train-unet", question="Does a U-Net train right, and how fast?", function="models.train_unet"),
    _network(
        "train-lstm", question="Does an LSTM train right, and how fast?", function="models.train_lstm",
        requires=Requires(("gemm",), beside=("lstm",), float32=("train-lstm",)), verified=False,
    ),
    _network(
        "train-depthwise", question="Does a depthwise network train right, and how fast?",
        function="models.train_depthwise",
    ),
    Check(
        "all-reduce", "multi-gpu", "Do all GPUs come to the sum of what each of them holds?",
        "several_gpus.all_reduce", _KERNELS, verified=False,
    ),
    Check(
        "data-parallel", "multi-gpu", "Does DataParallel over all GPUs train as one of them does?",
        "several_gpus.data_parallel", Requires(("all-reduce",), float32=("training-step",)), verified=False,
    ),
)  # fmt: skip

#: By name, in the order of the ladder.
CHECKS: Mapping[str, Check] = {check.name: check for check in _ROWS}
#: The checks that train one of the small networks, and of these the ones that need convolution.
MODELS = tuple(name for name in CHECKS if name.startswith("train-"))
CONVOLUTIONAL_MODELS = tuple(name for name in MODELS if name != "train-lstm")
#: Checks that ask convolution for right numbers, and whose answers count for a setting.
CONVOLUTIONS = ("convolution", "problem-matrix")
