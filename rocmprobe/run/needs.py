"""What a case depends on: where one of these fails, it is blocked."""

from __future__ import annotations

from collections.abc import Sequence

from rocmprobe.model.cases import Case
from rocmprobe.model.checks import CHECKS
from rocmprobe.model.problems import Problem
from rocmprobe.model.results import DIRECTIONS, Setting


def needs(
    case: Case, setting: Setting, native: Sequence[Problem], directions: Sequence[str]
) -> tuple[str, ...]:
    """The ids of the cases that ``case`` depends on. The ``cpu`` setting depends on nothing of the GPU.

    ``native`` are the problems and ``directions`` the directions that the run tests under ``setting``.
    """
    if setting.device == "cpu":
        return ()
    requires = CHECKS[case.check].requires
    # The driver capi runs the rungs below GEMM on bytes: once.
    dtype = "float32" if case.driver == "capi" else case.dtype

    def gate(check: str, of: str, its_dtype: str) -> str:
        return Case(case.device, case.driver, of, check, its_dtype).id

    in_library = setting.vendor_library and not setting.bypass and setting.dtype is None
    other_layers = "default" if setting.vendor_library else "vendor-off"
    if setting.by_layer:
        other_layers = setting.name
    return (
        *_convolutions(requires.convolution, case, native, directions),
        *(gate(check, "default", dtype) for check in requires.below),
        *(gate(check, "default", dtype) for check in (() if in_library else requires.outside)),
        *(gate(check, other_layers, dtype) for check in requires.beside),
        *(
            gate(check, setting.name, "float32")
            for check in requires.float32
            if (check, case.dtype) != (case.check, "float32")
        ),
        *(gate(check, setting.name, dtype) for check in requires.autocast if dtype != "float32"),
    )


def _convolutions(
    which: str, case: Case, native: Sequence[Problem], directions: Sequence[str]
) -> tuple[str, ...]:
    """The convolutions of ``Requires.convolution``: of a native problem in the same dtype, or else the first.

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
