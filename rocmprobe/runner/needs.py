"""What a case stands on: where one of these fails, it is blocked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocmprobe.cases import Case
from rocmprobe.model import DIRECTIONS, Setting
from rocmprobe.problems import Problem


@dataclass(frozen=True)
class _Needs:
    """What a check stands on.

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


_KERNELS = _Needs(("elementwise",))
_RECURRENT = _Needs(("elementwise", "gemm"))
_CONVOLUTION = _Needs(("elementwise",), outside=("gemm",))
_ANOTHER = _Needs(("elementwise",), outside=("gemm",), convolution="own")
_CONVOLVED = _Needs(convolution="every")
_FUSED = _Needs(("elementwise",), outside=("gemm",), convolution="fwd")
_MODEL = _Needs(float32=("training-step",), autocast=("autocast-step",))
_STANDS_ON: Mapping[str, _Needs] = {
    # A device that does not open is not asked again for every dtype.
    "copy": _Needs(float32=("copy",)),
    "elementwise": _Needs(("copy",)),
    "gemm": _KERNELS,
    "im2col": _KERNELS,
    "pooling": _KERNELS,
    "activation": _KERNELS,
    "softmax": _KERNELS,
    "instance-norm": _KERNELS,
    "local-response-norm": _KERNELS,
    "convolution": _CONVOLUTION,
    "problem-matrix": _ANOTHER,
    "solver": _CONVOLUTION,
    "gradients": _CONVOLVED,
    "gradient-flow": _CONVOLVED,
    "memory": _CONVOLVED,
    "memory-sweep": _CONVOLVED,
    # Its yardstick is a matrix product: one that hangs would be waited for beside every problem.
    "throughput": _Needs(("gemm",), convolution="every"),
    "start-up": _CONVOLVED,
    "batch-norm": _KERNELS,
    "batch-norm-eval": _KERNELS,
    "convolution-kinds": _ANOTHER,
    "rnn": _RECURRENT,
    "lstm": _RECURRENT,
    "gru": _RECURRENT,
    "ctc-loss": _KERNELS,
    "convolution-relu": _FUSED,
    "convolution-add-relu": _FUSED,
    "training-step": _Needs(("gemm",), beside=("batch-norm",), convolution="every"),
    "autocast-step": _Needs(
        ("gemm",), beside=("batch-norm",), float32=("training-step",), convolution="every"
    ),
    "train-resnet": _MODEL,
    "train-detector": _MODEL,
    "train-unet": _MODEL,
    "train-lstm": _Needs(("gemm",), beside=("lstm",), float32=("train-lstm",)),
    "train-depthwise": _MODEL,
    "all-reduce": _KERNELS,
    "data-parallel": _Needs(("all-reduce",), float32=("training-step",)),
}


def needs(
    case: Case, setting: Setting, native: Sequence[Problem], directions: Sequence[str]
) -> tuple[str, ...]:
    """The ids of the cases that ``case`` stands on. The ``cpu`` setting stands on nothing of the GPU.

    ``native`` are the problems and ``directions`` the directions that the run asks ``setting`` about.
    """
    if setting.device == "cpu":
        return ()
    of_check = _STANDS_ON[case.check]
    # The driver capi asks the rungs below GEMM about bytes: once.
    dtype = "float32" if case.driver == "capi" else case.dtype

    def gate(check: str, of: str, its_dtype: str) -> str:
        return Case(case.device, case.driver, of, check, its_dtype).id

    in_library = setting.vendor_library and not setting.bypass and setting.dtype is None
    other_layers = "default" if setting.vendor_library else "vendor-off"
    if setting.by_layer:
        other_layers = setting.name
    return (
        *_convolutions(of_check.convolution, case, native, directions),
        *(gate(check, "default", dtype) for check in of_check.below),
        *(gate(check, "default", dtype) for check in (() if in_library else of_check.outside)),
        *(gate(check, other_layers, dtype) for check in of_check.beside),
        *(
            gate(check, setting.name, "float32")
            for check in of_check.float32
            if (check, case.dtype) != (case.check, "float32")
        ),
        *(gate(check, setting.name, dtype) for check in of_check.autocast if dtype != "float32"),
    )


def _convolutions(
    which: str, case: Case, native: Sequence[Problem], directions: Sequence[str]
) -> tuple[str, ...]:
    """The convolutions of ``_Needs.convolution``: of a native problem in the same dtype, or else the first.

    None for another kind in float64, which PyTorch keeps from MIOpen: it may hold where they fail.
    """
    if not which or (which == "own" and case.dtype == "float64"):
        return ()
    alike = [problem for problem in native if problem.dtype == case.dtype] or list(native)
    wanted = {"own": (case.direction,), "fwd": DIRECTIONS[:1]}.get(which, tuple(directions))
    return tuple(
        Case(case.device, case.driver, case.setting, "convolution", gate.dtype, gate.text, direction).id
        for gate in alike[:1]
        for direction in wanted
    )
