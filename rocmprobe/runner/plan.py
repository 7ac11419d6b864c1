"""From the questions that suites ask to cases: devices x settings x dtypes or problems x directions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.cases import Case
from rocmprobe.model import DIRECTIONS, Setting
from rocmprobe.problems import Problem, parse_problem, problems
from rocmprobe.runner.options import RunOptions
from rocmprobe.runner.targets import Target

_DRIVER = "torch"


@dataclass(frozen=True)
class Question:
    """What ``@pytest.mark.asks`` says: a check, for which settings ("every" or names), and either
    dtypes or a set of problems (a key of ``data/problems.toml``), with each direction apart or not."""

    check: str
    settings: tuple[str, ...] = ("default",)
    dtypes: tuple[str, ...] = ("float32",)
    problems: str = ""
    directions: bool = False


def cases(
    question: Question, target: Target, settings: tuple[Setting, ...], options: RunOptions
) -> Iterator[Case]:
    """The cases of ``question`` on one target, in the order in which they should be settled."""
    for setting in settings:
        if "every" not in question.settings and setting.name not in question.settings:
            continue
        for problem in _problems(question.problems, options) if question.problems else (None,):
            for dtype in (problem.dtype,) if problem else question.dtypes:
                for direction in _directions(options) if question.directions else (None,):
                    yield Case(
                        target.device, _DRIVER, setting.name, question.check, dtype,
                        problem.text if problem else None, direction,
                        _needs(question.check, dtype, direction, target.device, setting, options),
                    )  # fmt: skip


def _directions(options: RunOptions) -> tuple[str, ...]:
    return DIRECTIONS[:1] if options.purpose == "inference" else DIRECTIONS


def _problems(purpose: str, options: RunOptions) -> tuple[Problem, ...]:
    """The user's own problems where they are given, else those of the level."""
    if options.problems and purpose not in ("gradients", "kinds"):
        return tuple(parse_problem(text) for text in options.problems)
    return problems(options.level, purpose)


@dataclass(frozen=True)
class _Needs:
    """What a check stands on.

    ``below``: checks in its own dtype under ``default``; ``outside``: such checks, where its setting keeps
    convolution out of the vendor library; ``beside``: checks in its own dtype under ``default`` or
    ``vendor-off``, whichever treats other layers as its setting does; ``float32``: checks in float32 under
    its own setting. ``convolution``: of the first native problem under its own setting, "every" direction,
    its "own" one, or "fwd".
    """

    below: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    float32: tuple[str, ...] = ()
    convolution: str = ""


_KERNELS = _Needs(("elementwise",))
_RECURRENT = _Needs(("elementwise", "gemm"))
_CONVOLVED = _Needs(convolution="every")
_FUSED = _Needs(("elementwise",), outside=("gemm",), convolution="fwd")
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
    "convolution": _Needs(("elementwise",), outside=("gemm",)),
    "gradients": _CONVOLVED,
    "memory": _CONVOLVED,
    "throughput": _CONVOLVED,
    "batch-norm": _KERNELS,
    "batch-norm-eval": _KERNELS,
    "convolution-kinds": _Needs(("elementwise",), outside=("gemm",), convolution="own"),
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
    "all-reduce": _KERNELS,
    "data-parallel": _Needs(("all-reduce",), float32=("training-step",)),
}


def _needs(
    check: str, dtype: str, direction: Optional[str], device: str, setting: Setting, options: RunOptions
) -> tuple[str, ...]:
    """The ids of the cases a check stands on. The ``cpu`` setting stands on nothing of the GPU."""
    if setting.device == "cpu":
        return ()
    needs = _STANDS_ON[check]

    def case(name: str, of: str, its_dtype: str = dtype) -> str:
        return Case(device, _DRIVER, of, name, its_dtype).id

    outside = needs.outside if setting.bypass or not setting.vendor_library else ()
    other_layers = "default" if setting.vendor_library else "vendor-off"
    return (
        *(_convolutions(needs.convolution, dtype, direction, device, setting, options)),
        *(case(name, "default") for name in (*needs.below, *outside)),
        *(case(name, other_layers) for name in needs.beside),
        *(
            case(name, setting.name, "float32")
            for name in needs.float32
            if (name, dtype) != (check, "float32")
        ),
    )


def _convolutions(
    which: str, dtype: str, direction: Optional[str], device: str, setting: Setting, options: RunOptions
) -> tuple[str, ...]:
    """The convolutions of ``_Needs.convolution``: of a native problem in the same dtype, or else the first.

    None for another kind in float64, which PyTorch keeps from MIOpen: it may hold where they fail.
    """
    native = _problems("native", options)
    alike = [problem for problem in native if problem.dtype == dtype] or list(native)
    if not which or (which == "own" and dtype == "float64"):
        return ()
    directions = {"own": (direction,), "fwd": DIRECTIONS[:1]}.get(which, _directions(options))
    return tuple(
        Case(device, _DRIVER, setting.name, "convolution", problem.dtype, problem.text, each).id
        for problem in alike[:1]
        for each in directions
    )
