"""A script of ``rocmprobe repro`` draws the operands of the worker and holds its limits."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, Optional

import pytest

torch = pytest.importorskip("torch")

import sample  # noqa: E402
from asking import context  # noqa: E402

from rocmprobe.checks import CHECKS, CONVOLUTIONS  # noqa: E402
from rocmprobe.checks.convolution import convolution  # noqa: E402
from rocmprobe.checks.tools.computation import Computation  # noqa: E402
from rocmprobe.checks.tools.failures import NotApplicable  # noqa: E402
from rocmprobe.knowledge.settings import all_settings  # noqa: E402
from rocmprobe.model.numerics import TRANSFORMS  # noqa: E402
from rocmprobe.model.problems import parse_problem  # noqa: E402
from rocmprobe.model.results import DIRECTIONS  # noqa: E402
from rocmprobe.report.repro.script import script  # noqa: E402

DEFAULT = next(setting for setting, _, _ in all_settings() if setting.name == "default")
PLAIN = "conv2d-fp32-n2-c4-i8x9-k6-f3x3-p1-g2-bias"
Tensors = Mapping[str, Any]
#: The last three have other branches of the cancelling fill.
PROBLEMS = (
    PLAIN, "conv2d-fp16-n2-c4-i7x7-k4-f3x3-p1-nhwc", "conv_transpose2d-fp32-n1-c6-i7x8-k4-f3x3-s2-g2-bias",
    "conv2d-fp32-n1-c1-i8x8-k4-f3x3", "conv1d-fp32-n1-c2-i9-k2-f3-g2-noncontiguous",
)  # fmt: skip
#: Numbers of an outcome that is wrong, and what is then wrong with it.
TIERS: Mapping[str, Mapping[str, Any]] = {
    "float": {"max_ratio": 1.0, "max_ratio_limit": 0.1},
    "integers by transforms": {
        "max_ratio": 1.0, "max_ratio_limit": 0.1, "owed": TRANSFORMS, "worst": {"reference": 3.0}
    },
    "bound": {"bound_ratio": 2.0},
    "exact": {"exact": False},
    "nearest": {"exact": False, "owed": TRANSFORMS},
    "cancelling": {"exact": True, "cancelling": False},
}  # fmt: skip
LAYERS = tuple(
    name
    for name, each in CHECKS.items()
    if each.script and each.function is not convolution and name not in CONVOLUTIONS
)


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensors, Tensors]]:
    """The operands that a check draws, and the tensors that it places on the device."""
    found: list[tuple[Tensors, Tensors]] = []
    move = Computation.placed

    def recorded(self: Computation, operands: dict[str, Any], device: str, dtype: Any) -> dict[str, Any]:
        moved = move(self, operands, device, dtype)
        found.append((operands, moved))
        return moved

    monkeypatch.setattr(Computation, "placed", recorded)
    monkeypatch.setattr(sys, "argv", ["repro.py"])
    return found


def of_script(
    check: str, dtype: str, numerics: Mapping[str, Any], problem: Optional[str], direction: Optional[str]
) -> tuple[str, dict[str, Any]]:
    """Run the script of a wrong outcome up to the comparison. Return its text and its names."""
    parsed = parse_problem(problem) if problem else None
    outcome = dataclasses.replace(
        sample.outcome("default", check, CHECKS[check].rung, "wrong", problem=parsed, direction=direction),
        device="cpu", dtype=dtype, numerics=numerics,
    )  # fmt: skip
    results = dataclasses.replace(sample.healthy_cpu(), settings=(DEFAULT,), outcomes=(outcome,))
    code = script(results, outcome)
    names: dict[str, Any] = {}
    exec(code.partition("wrong = ")[0], names)
    return code, names


def bits(tensor: Any) -> Any:
    return tensor.contiguous().view(torch.uint8)


def equal(some: Tensors, others: Tensors) -> bool:
    """Return True if the tensors have the same bits in the same memory format."""
    return some.keys() == others.keys() and all(
        bits(each).equal(bits(others[name])) and each.stride() == others[name].stride()
        for name, each in some.items()
    )


def same(names: Mapping[str, Any], placed: list[tuple[Tensors, Tensors]]) -> bool:
    """Return True if a check drew the script's operands, and placed the same tensors on the device."""
    return any(equal(names["operands"], drawn) and equal(names["placed"], moved) for drawn, moved in placed)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("check", LAYERS)
def test_of_a_layer(check: str, dtype: str, placed: list[tuple[Tensors, Tensors]]) -> None:
    asked = context(dtype=getattr(torch, dtype))
    try:
        answer = CHECKS[check].function(asked)
    except NotApplicable as reason:
        pytest.skip(str(reason))
    for numerics in ({}, {"exact": False}) if check == "gemm" else ({},):
        code, names = of_script(check, dtype, numerics, None, None)
        assert same(names, placed)
        for measure, limit in names["limits"].items():
            assert f'"{measure}": ' in code
            assert limit == answer.numerics.get(f"{measure}_limit", 0)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_of_every_tier_of_convolution(
    problem: str, direction: str, exact: bool, placed: list[tuple[Tensors, Tensors]]
) -> None:
    asked = context(problem, direction=direction, exact=exact)
    answer = convolution(asked)
    for tier, changes in TIERS.items():
        if (tier == "cancelling" and "cancelling" not in answer.numerics) or exact == ("owed" in changes):
            continue
        numerics = {"owed": answer.numerics["owed"], **changes}
        code, names = of_script("convolution", asked.dtype_name, numerics, problem, direction)
        assert same(names, placed), tier
        limits = names["limits"].get(answer.numerics["of"], names["limits"])
        for measure, limit in limits.items():
            assert f'"{measure}": ' in code
            constant = {"bound_ratio": 1, "unequal": 0}
            assert limit == constant.get(measure, answer.numerics.get(f"{measure}_limit")), tier
