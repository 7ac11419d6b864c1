"""Scripts of about eight lines that show a failure by comparing the device with fp64 on the CPU.

The random numbers differ from those of the run. The scripts of the module ``script`` draw the same random
numbers as the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Callable

from rocmprobe.checks import CHECKS
from rocmprobe.checks.convolution import convolution
from rocmprobe.checks.tools.computation import Computation, bound_ratio, integers, uniform
from rocmprobe.model.problems import Problem
from rocmprobe.model.results import BadInput, Outcome, Results
from rocmprobe.report.repro.script import (
    backend,
    computation_of,
    device_of,
    flags_of,
    problem_of,
    setting_of,
)
from rocmprobe.report.text import one_line

_HALF = ("float16", "bfloat16")
#: Shape of each operand, by its name in the script.
Shapes = dict[str, Sequence[int]]


def short_script(results: Results, outcome: Outcome) -> str:
    """Return the script. If torch finds no GPU, the script runs on the CPU.

    Raise BadInput if no short script can show the failure.
    """
    setting = setting_of(results, outcome)
    if outcome.driver != "torch":
        raise _without_script(outcome, "ran without torch")
    computation = computation_of(results, outcome, setting)
    if CHECKS[outcome.check].function is convolution:
        problem = problem_of(outcome)
        shapes, call = _convolution(problem, outcome)
        body = _compared(outcome, computation, shapes, call, problem.channels_last)
    elif outcome.check == "gemm":
        # The check multiplies a batch of matrices. One product is enough to call the same library.
        left, right = computation.draw.args[0].values()
        body = _compared(outcome, computation, {"a": left[-2:], "b": right[-2:]}, "{a} @ {b}")
    elif outcome.check == "batch-norm" and outcome.state != "wrong":
        body = _batch_norm(outcome, computation)
    else:
        raise _without_script(outcome, f"is of the check {one_line(outcome.check)}")
    device = device_of(outcome, setting)
    lines = ["import torch"]
    if backend(results, outcome, setting) == "cudnn" and outcome.dtype == "float32":
        lines.append("torch.backends.cudnn.allow_tf32 = False")
    old, new = flags_of(setting)
    lines += [*old, *new]
    if not setting.vendor_library:
        lines.append(f"torch.backends.{'mkldnn' if device == 'cpu' else 'cudnn'}.enabled = False")
    return "\n".join([*lines, "torch.manual_seed(0)", _device(device, outcome.dtype), *body])


def _without_script(outcome: Outcome, why: str) -> BadInput:
    return BadInput(f"{one_line(outcome.id)}: no short script, because it {why}")


def _convolution(problem: Problem, outcome: Outcome) -> tuple[Shapes, str]:
    if problem.noncontiguous:
        raise _without_script(outcome, "uses operands that are not contiguous")
    direction = outcome.direction or "fwd"
    if outcome.numerics.get("of") == "bias":
        raise _without_script(outcome, "is wrong in the gradient of the bias")
    geometry = _geometry(problem)
    if direction == "fwd":
        shapes: Shapes = {"x": problem.input_shape, "w": problem.weight_shape}
        if problem.bias:
            shapes["b"] = (problem.out_channels,)
        operands = ", ".join(f"{{{name}}}" for name in shapes)
        return shapes, f"torch.nn.functional.{problem.kind}({operands}{geometry})"
    if problem.transposed:
        raise _without_script(outcome, "is a gradient of a transposed convolution")
    if direction == "bwd-data":
        call = f"torch.nn.grad.{problem.kind}_input({problem.input_shape}, {{w}}, {{g}}{geometry})"
        return {"w": problem.weight_shape, "g": problem.output_shape}, call
    call = f"torch.nn.grad.{problem.kind}_weight({{x}}, {problem.weight_shape}, {{g}}{geometry})"
    return {"x": problem.input_shape, "g": problem.output_shape}, call


def _geometry(problem: Problem) -> str:
    rows = (
        ("stride", problem.stride, 1), ("padding", problem.padding, 0),
        ("output_padding", problem.output_padding, 0), ("dilation", problem.dilation, 1),
    )  # fmt: skip
    found = [
        f", {name}={values[0] if len(set(values)) == 1 else values}"
        for name, values, default in rows
        if set(values) != {default}
    ]
    return "".join([*found, f", groups={problem.groups}" if problem.groups != 1 else ""])


def _device(device: str, dtype: str) -> str:
    """Return the line that chooses device and dtype."""
    if device == "cpu":
        return f'device, dtype = "cpu", torch.{dtype}' if dtype in _HALF else 'device = "cpu"'
    device = "cuda" if device == "cuda:0" else device
    found = "if torch.cuda.is_available() else"
    # Not all CPUs support convolution in half precision.
    if dtype in _HALF:
        return f'device, dtype = ("{device}", torch.{dtype}) {found} ("cpu", torch.float32)'
    return f'device = "{device}" {found} "cpu"'


def _compared(
    outcome: Outcome, computation: Computation, shapes: Shapes, call: str, channels_last: bool = False
) -> list[str]:
    draw = _draw(outcome, computation)
    lines = {name: draw(shape, channels_last and len(shape) == 4) for name, shape in shapes.items()}
    # Draw weight and bias in one line to keep the script at eight lines.
    bias = lines.pop("b") if "w" in lines and "b" in lines else ""
    drawn = [f"{name} = {made}" for name, made in lines.items()]
    if bias:
        drawn[-1] = f"w, b = {lines['w']}, {bias}"
    moved = _moved(outcome.dtype)
    return [
        *drawn,
        "expected = " + call.format(**{name: f"{name}.double()" for name in shapes}),
        "result = " + call.format(**{name: f"{name}{moved}" for name in shapes}),
        _printed(computation.limits, "max_ratio"),
    ]


def _draw(outcome: Outcome, computation: Computation) -> Callable[[Sequence[int], bool], str]:
    draw = computation.draw
    rounded = {"float64": ".double()", "float16": ".half()", "bfloat16": ".bfloat16()"}.get(outcome.dtype, "")
    layout = ".contiguous(memory_format=torch.channels_last)"

    def uniform_numbers(shape: Sequence[int], channels_last: bool) -> str:
        change = rounded + (layout if channels_last else "")
        made = f"torch.rand({', '.join(map(str, shape))}) - 0.5"
        return f"({made}){change}" if change else made

    def whole_numbers(shape: Sequence[int], channels_last: bool) -> str:
        largest = draw.keywords["largest"]
        made = f"torch.randint({-largest}, {largest + 1}, {tuple(shape)})"
        return made + (rounded or ".float()") + (layout if channels_last else "")

    if draw.func is uniform and bound_ratio not in computation.measures:
        return uniform_numbers
    if draw.func is integers and all(share >= 1 for share in draw.keywords["density"].values()):
        return whole_numbers
    raise _without_script(outcome, "needs specially generated operands")


def _batch_norm(outcome: Outcome, computation: Computation) -> list[str]:
    """Return the lines for batch norm in training, which compare only forward results."""
    image = computation.draw.args[0]["image"]
    norm = f"torch.nn.BatchNorm{len(image) - 2}d({image[1]}, track_running_stats=False)"
    return [
        f"x = torch.rand({', '.join(map(str, image))}) + 0.5",
        f"expected = {norm}.double()(x.double())",
        f"result = {norm}.to(device)(x{_moved(outcome.dtype)})",
        "result.square().sum().backward()",
        _printed(computation.limits, "max_error"),
    ]


def _moved(dtype: str) -> str:
    return ".to(device, dtype)" if dtype in _HALF else ".to(device)"


def _printed(limits: Mapping[str, Mapping[str, float]], measure: str) -> str:
    """Return the line that prints the limit and the largest error, relative to the largest expected value."""
    limit = next(iter(limits.values())).get(measure, 0)
    error = "((result.cpu() - expected).abs().max() / expected.abs().max()).item()"
    return f'print("error:", {error}, "limit:", {limit!r})'
