"""One outcome as a torch script that needs nothing of rocmprobe, and as a command line for MIOpenDriver.

The script draws the same numbers as the run did, so that it comes to the same errors. What results.json
says reaches it only as numbers, as words of closed lists, as quoted text and in comments of plain ASCII.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any, Optional

from rocmprobe.machines import torch_version
from rocmprobe.model import DIRECTIONS, BadInput, Outcome, Results, Setting
from rocmprobe.numerics import Errors, exact_fill, judge_float
from rocmprobe.problems import DTYPES, Problem, parse_problem
from rocmprobe.redact import census
from rocmprobe.report.miopen_driver import batch_norm_line, convolution_line
from rocmprobe.report.text import one_line
from rocmprobe.variables import find
from rocmprobe.worker.checks.layers import LAYER_LIMIT
from rocmprobe.worker.setting import FLAGS

MAX_LINES, MAX_WIDTH = 20, 110
#: Where MIOpen keeps what it has learned; a run gives every setting empty ones.
_OWN_FOLDERS = ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")
_LISTED = 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class _Question:
    """What a check asks, as code: operands drawn in the order of the run, and a function of them, whose
    ``result`` is a call, its arguments and the end.

    An error is told as a share of the reference's largest value, or of ``least`` where that is smaller.
    """

    names: tuple[str, ...]
    drawn: tuple[str, ...]
    draw: tuple[str, ...]
    result: tuple[str, ...]
    max_limit: float
    rms_limit: Optional[float] = None
    least: float = 1e-30
    channels_last: bool = False
    before: tuple[str, ...] = ()


def find_outcome(results: Results, case: str) -> Outcome:
    """The outcome whose id is ``case``, or the only one whose id has ``case`` in it.

    Raises BadInput that lists the ids where there are several, and the nearest where there is none.
    """
    outcomes = {outcome.id: outcome for outcome in results.outcomes}
    if case in outcomes:
        return outcomes[case]
    found = [name for name in outcomes if case in name]
    if len(found) == 1:
        return outcomes[found[0]]
    if found:
        more = [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
        raise BadInput(
            "\n  ".join([f"{len(found)} outcomes match {case!r}; name one:", *_printable(found), *more])
        )
    nearest = difflib.get_close_matches(case, outcomes, cutoff=0.3)
    hint = "\n  ".join(["; the nearest are:", *_printable(nearest)]) if nearest else ""
    raise BadInput(f"no outcome matches {case!r}{hint}")


def _printable(names: Sequence[str]) -> list[str]:
    return [one_line(name) for name in names[:_LISTED]]


def reproduction(results: Results, case: str) -> str:
    """The script, and after it as comments what the run found and the line for MIOpenDriver.

    Raises BadInput where no single outcome matches, or where it has no script of its own.
    """
    outcome = find_outcome(results, case)
    notes = [_told(results, outcome), *_remarks(results, outcome)]
    return "\n".join([script(results, outcome), *(f"# {note}" for note in notes)])


def script(results: Results, outcome: Outcome) -> str:
    """A torch script of at most 20 lines of at most 110 characters that asks again what ``outcome`` answers.

    It takes another device as its argument, prints state and errors, and exits with 0 if all is right;
    what the device raises, it lets through. Raises BadInput for an outcome that cannot be had that way.
    """
    setting = _setting(results, outcome)
    if outcome.driver != "torch":
        raise BadInput(
            f"{one_line(outcome.id)}: asked without torch, so no script of torch's reproduces it; "
            + _driver_line(results, outcome)
        )
    question = _question(outcome, setting)
    dtype = "uint8" if outcome.check == "copy" else _dtype(outcome)
    seed = zlib.crc32((outcome.problem or outcome.dtype).encode())
    code = _settled(results, outcome, setting)
    code += [
        f'device, dtype = sys.argv[1] if sys.argv[1:] else "{_device(outcome, setting)}", torch.{dtype}',
        f"torch.manual_seed({seed})",
        *question.draw,
        *_packed("operands = [", question.drawn, "]"),
        *([_CHANNELS_LAST] if question.channels_last else []),
        *_function(question),
        *_compared(question),
    ]
    if len(code) > MAX_LINES or max(map(len, code)) > MAX_WIDTH:
        raise BadInput(f"{one_line(outcome.id)}: this does not fit into a script of {MAX_LINES} lines")
    return "\n".join(code)


def _function(question: _Question) -> list[str]:
    head = f"def run({', '.join(question.names)}):"
    if question.before:
        lines = [*question.before, f"return {''.join(question.result)}"]
        return [head, *(f"    {line}" for line in lines)]
    call, *arguments, tail = question.result
    return _packed(f"{head} return {call}", arguments, tail)


def _settled(results: Results, outcome: Outcome, setting: Setting) -> list[str]:
    """The lines that make the setting hold, with the import of torch where it has to stand."""
    values = {name: json.dumps(value) for name, value in _variables(results, outcome, setting)}
    own = _backend(results, outcome, setting) == "miopen" and not setting.inherit_environment
    if own:
        values.update({name: "tempfile.mkdtemp()" for name in _OWN_FOLDERS if name not in setting.env})
    code = ["import os, sys, tempfile" if own else "import os, sys" if values else "import sys"]
    if values:
        assigned = [f"{name}={value}" for name, value in values.items()]
        code += _packed("os.environ.update(", assigned, ")")
    code.append("import torch")
    if _backend(results, outcome, setting) == "cudnn" and outcome.dtype == "float32":
        code.append("torch.backends.cudnn.allow_tf32 = False")
    code += _flags(setting)
    if not setting.vendor_library:
        module = "mkldnn" if _device(outcome, setting) == "cpu" else "cudnn"
        code.append(f"torch.backends.{module}.enabled = False")
    return code


def _flags(setting: Setting) -> list[str]:
    """Those of cuDNN, which also are MIOpen's, in one line; the others only where this torch has them."""
    unknown = [name for name in setting.torch if name not in FLAGS]
    if unknown:
        raise BadInput(
            f"setting {one_line(setting.name)}: {one_line(unknown[0])!r} is no flag of torch.backends"
        )
    values = {FLAGS[name]: bool(value) for name, value in setting.torch.items()}
    old = [
        (f"torch.backends.{module}.{flag}", value)
        for (module, flag), value in values.items()
        if module == "cudnn"
    ]
    new = [(module, flag, value) for (module, flag), value in values.items() if module != "cudnn"]
    code = (
        [f"{', '.join(name for name, _ in old)} = {', '.join(str(value) for _, value in old)}"] if old else []
    )
    return code + [
        f'if hasattr(getattr(torch.backends, "{module}", None), "{flag}"): '
        f"torch.backends.{module}.{flag} = {value}"
        for module, flag, value in new
    ]


def _compared(question: _Question) -> list[str]:
    right, told = f"error <= {question.max_limit}", "{error=:.2g}"
    if question.max_limit == 0:
        measured = ["error = float((got.cpu().double() - want).abs().max())"]
    else:
        measured = [
            f"off, top = got.cpu().double() - want, want.abs().max().clamp(min={question.least})",
            "error, rms = float(off.abs().max() / top), float(off.norm() / off.numel() ** 0.5 / top)",
        ]
    if question.rms_limit is not None:
        right += f" and rms <= {question.rms_limit}"
        told += ", {rms=:.2g}"
    return [
        "for got, want in zip(run(*(t.to(device, dtype) for t in operands)), run(*operands)):",
        *(f"    {line}" for line in measured),
        f'    print(state := "pass" if {right} else "wrong", f"{told}")',
        '    if state == "wrong": sys.exit(1)',
    ]


def _question(outcome: Outcome, setting: Setting) -> _Question:
    name = one_line(outcome.id)
    if setting.bypass and outcome.rung in ("conv", "train"):
        raise BadInput(
            f"{name}: this setting needs rocmprobe (`rocmprobe run --settings {one_line(setting.name)}`); "
            "a script without it reproduces the native settings"
        )
    if outcome.check == "convolution":
        return _convolution(outcome)
    if outcome.check == "gemm":
        return _gemm(outcome)
    if outcome.check in _FIXED:
        return _FIXED[outcome.check]
    also = ", ".join(sorted(["convolution", "gemm", *_FIXED]))
    raise BadInput(f"{name}: the check {one_line(outcome.check)} has no stand-alone script ({also} have one)")


#: Kept when a tensor moves to the device.
_CHANNELS_LAST = (
    "operands = [t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in operands]"
)
_UNIFORM = "def draw(*shape): return (torch.rand(shape, dtype=torch.float64) * 2 - 1).to(dtype).double()"
_WHOLE = (
    "def draw(s, top, fill=1.0):",
    "    return (torch.randint(1, top + 1, s) * (torch.randint(0, 2, s) * 2 - 1)"
    " * (torch.rand(s) < fill)).double()",
)


def _convolution(outcome: Outcome) -> _Question:
    """As ``worker.checks.convolution`` asks: each direction by its own operator, not through a forward
    that may fail first."""
    problem, direction = _problem(outcome), outcome.direction or "fwd"
    if direction not in DIRECTIONS:
        raise BadInput(f"{one_line(outcome.id)}: {one_line(direction)!r} is no direction")
    shapes = {"x": problem.input_shape, "w": problem.weight_shape}
    if problem.bias:
        shapes = {"b": (problem.out_channels,), **shapes}
    if direction != "fwd":
        shapes["dy"] = problem.output_shape
    drawn = [f"draw({', '.join(map(str, shape))})" for shape in shapes.values()]
    draw: tuple[str, ...] = (_UNIFORM,)
    limits: tuple[float, Optional[float]] = _float_limits(problem.dtype)
    if _exact_tier(outcome):
        fill = exact_fill(problem.dtype, problem.terms(direction))
        tops = {"x": fill.input_max}
        sparse = "dy" if direction == "bwd-data" else "x"
        drawn = [
            f"draw({shape}, {tops.get(name, fill.weight_max)}{f', {fill.density}' if name == sparse else ''})"
            for name, shape in shapes.items()
        ]
        draw, limits = _WHOLE, (0.0, None)
    result = _forward(problem) if direction == "fwd" else _backward(problem, direction)
    return _Question(tuple(shapes), tuple(drawn), draw, result, *limits, channels_last=problem.channels_last)


def _float_limits(dtype: str) -> tuple[float, float]:
    """Of the largest error and of the root mean square, as the checks have them."""
    _, numbers, _ = judge_float(Errors(0, 0.0, 0.0, 0.0, 0.0, 0), dtype)
    return numbers["max_ratio_limit"], numbers["rms_range_limit"]


def _forward(problem: Problem) -> tuple[str, ...]:
    arguments = ["x", "w", *(["b"] if problem.bias else [])]
    for name, values, usual in (
        ("stride", problem.stride, 1), ("padding", problem.padding, 0),
        ("output_padding", problem.output_padding, 0), ("dilation", problem.dilation, 1),
    ):  # fmt: skip
        if set(values) != {usual}:
            arguments.append(f"{name}={values}")
    if problem.groups != 1:
        arguments.append(f"groups={problem.groups}")
    return (f"[torch.nn.functional.{problem.kind}(", *arguments, ")]")


def _backward(problem: Problem, direction: str) -> tuple[str, ...]:
    data = direction == "bwd-data"
    bias = problem.bias and not data
    arguments = [
        "dy", "x", "w", f"[{problem.out_channels}]" if bias else "None",
        *(str(list(each)) for each in (problem.stride, problem.padding, problem.dilation)),
        str(problem.transposed), str(list(problem.output_padding)), str(problem.groups),
        str([data, not data, bias]),
    ]  # fmt: skip
    wanted = "[:1]" if data else "[1:]" if bias else "[1:2]"
    return ("torch.ops.aten.convolution_backward(", *arguments, f"){wanted}")


def _gemm(outcome: Outcome) -> _Question:
    dtype = _dtype(outcome)
    if _exact_tier(outcome):
        fill = exact_fill(dtype, 576)
        drawn = (
            f"draw((192, 576), {fill.input_max}, {fill.density})",
            f"draw((576, 320), {fill.weight_max})",
        )
        return _Question(("a", "b"), drawn, _WHOLE, ("[", "a @ b", "]"), 0.0)
    result = ("[", "a[0] @ b[0]", "torch.bmm(a, b)", "]")
    drawn = ("draw(4, 192, 576)", "draw(4, 576, 320)")
    return _Question(("a", "b"), drawn, (_UNIFORM,), result, *_float_limits(dtype))


#: Questions that are the same for every dtype, as ``worker.checks`` asks them.
_FIXED: Mapping[str, _Question] = {
    "copy": _Question(
        ("sent",), ("torch.randint(0, 256, (4 << 20,), dtype=torch.uint8)",), (),
        ("[", "sent.clone()", "]"), 0.0,
    ),
    "elementwise": _Question(
        ("values",), ("torch.randint(-8, 9, (64, 1024)).double()",), (),
        ("[", "result, result.float().sum(1)", "]"), 0.0,
        before=("result = torch.relu(values * 2 + 1)",),
    ),
    "im2col": _Question(
        ("image",), ("torch.randint(-8, 9, (2, 5, 17, 19)).double()",), (),
        ("[", "columns, torch.nn.functional.fold(columns, (17, 19), **geometry)", "]"), 0.0,
        before=(
            "geometry = dict(kernel_size=(3, 2), dilation=(1, 2), padding=(1, 1), stride=(2, 1))",
            "columns = torch.nn.functional.unfold(image, **geometry)",
        ),
    ),
    "batch-norm": _Question(
        ("x", "w", "b", "dy"), ("draw(4, 16, 14, 14)", "draw(16)", "draw(16)", "draw(4, 16, 14, 14)"),
        ("def draw(*shape): return (torch.rand(shape, dtype=torch.float64) + 0.5).to(dtype).double()",),
        ("[", "y.detach(), *torch.autograd.grad(y, leaves, dy)", "]"), LAYER_LIMIT, least=1.0,
        before=(
            "leaves = [t.detach().requires_grad_() for t in (x, w, b)]",
            "y = torch.nn.functional.batch_norm(leaves[0], None, None, *leaves[1:], training=True)",
        ),
    ),
}  # fmt: skip


def _packed(head: str, parts: Sequence[str], tail: str) -> list[str]:
    """``head``, the parts with commas between them, and ``tail``, in as few lines as they fit into."""
    lines = [head]
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        added = part + (tail if last else ",")
        gap = "" if lines[-1].endswith(("(", "[", "{")) else " "
        if len(lines[-1]) + len(gap) + len(added) <= MAX_WIDTH:
            lines[-1] += gap + added
        else:
            lines.append(f"    {added}")
    return lines


def _variables(results: Results, outcome: Outcome, setting: Setting) -> list[tuple[str, str]]:
    """What the child had set: the setting's variables, and those of the user's that reach a child.

    What was redacted cannot be set again, and what the dynamic loader reads is set too late in a script.
    """
    found = _inherited(results, outcome, setting)
    found = {name: value for name, value in found.items() if not _redacted(value) and not _early(name)}
    found.update(setting.env)
    return [
        (name, str(value)) for name, value in found.items() if _NAME.fullmatch(name) and not iskeyword(name)
    ]


def _inherited(results: Results, outcome: Outcome, setting: Setting) -> dict[str, str]:
    if _device(outcome, setting) == "cpu" and not setting.inherit_environment:
        return {}
    rows = {name: find(name) for name in results.machine.variables}
    return {
        name: str(results.machine.variables[name].value)
        for name, row in rows.items()
        if setting.inherit_environment or (row is not None and row.keep)
    }


def _early(name: str) -> bool:
    row = find(name)
    return row is not None and row.read == "load"


def _redacted(value: str) -> bool:
    return bool(census(value))


def _remarks(results: Results, outcome: Outcome) -> list[str]:
    setting = _setting(results, outcome)
    inherited = _inherited(results, outcome, setting)
    left_out = [name for name, value in inherited.items() if _redacted(value) or _early(name)]
    remarks = [f"Set in the shell of the run, too: {_ascii(', '.join(left_out))}"] if left_out else []
    return [*remarks, _driver_line(results, outcome)]


def _told(results: Results, outcome: Outcome) -> str:
    """What the run found, in one line."""
    message = next((attempt.message for attempt in reversed(outcome.attempts) if attempt.message), "")
    torch = results.machine.value("torch.version")
    isa = " as ".join(
        dict.fromkeys(str(each) for each in (outcome.native_isa, outcome.effective_isa) if each)
    )
    where = ", ".join(str(each) for each in (isa, torch and f"torch {torch}") if each)
    simulated = f" (simulated: {results.simulated})" if results.simulated else ""
    text = f"In the run{simulated} of {outcome.id} on {where or 'an unknown machine'}: {outcome.state}"
    return _ascii(f"{text}: {message}" if message else text)


def _driver_line(results: Results, outcome: Outcome) -> str:
    """The line for MIOpenDriver with the variables before it, or why there is none."""
    setting = _setting(results, outcome)
    if _backend(results, outcome, setting) != "miopen":
        why = "what runs here is not MIOpen"
    elif setting.bypass or not setting.vendor_library:
        why = "under this setting nothing enters MIOpen"
    elif outcome.check == "batch-norm":
        line, why = batch_norm_line(outcome.dtype)
    elif setting.interface == "find-2.0":
        why = "the driver does not use Find 2.0"
    elif outcome.problem is None:
        why = "this check enters no MIOpen"
    else:
        version = (torch_version(results.machine) or (99, 0)) if outcome.driver == "torch" else None
        immediate = bool(setting.torch.get("miopen.immediate"))
        line, why = convolution_line(_problem(outcome), outcome.direction or "fwd", version, immediate)
    if why:
        return f"no MIOpenDriver line: {why}"
    values = [f"{name}={shlex.quote(_ascii(value))}" for name, value in _variables(results, outcome, setting)]
    return " ".join([*values, line])


def _setting(results: Results, outcome: Outcome) -> Setting:
    for setting in results.settings:
        if setting.name == outcome.setting:
            return setting
    raise BadInput(f"{one_line(outcome.id)}: the results do not describe its setting; run again")


def _backend(results: Results, outcome: Outcome, setting: Setting) -> str:
    if _device(outcome, setting) == "cpu":
        return "onednn"
    targets: Any = results.options.get("targets") or ()
    backends = {target.get("device"): target.get("backend") for target in targets}
    return str(backends.get(outcome.device, "miopen"))


def _device(outcome: Outcome, setting: Setting) -> str:
    device = setting.device or outcome.device
    if not re.fullmatch(r"[a-z]+(:[0-9]+)?", device):
        raise BadInput(f"{one_line(outcome.id)}: {one_line(device)!r} is no device of torch's")
    return device


def _dtype(outcome: Outcome) -> str:
    if outcome.dtype not in DTYPES.values():
        raise BadInput(f"{one_line(outcome.id)}: {one_line(outcome.dtype)!r} is no dtype")
    return outcome.dtype


def _problem(outcome: Outcome) -> Problem:
    if outcome.problem is None:
        raise BadInput(f"{one_line(outcome.id)}: the results name no problem for it; run again")
    return parse_problem(outcome.problem)


def _exact_tier(outcome: Outcome) -> bool:
    """Whether the outcome is wrong in the exact tier alone: small integers, where every element counts."""
    message = next((attempt.message for attempt in reversed(outcome.attempts) if attempt.message), "")
    return outcome.state == "wrong" and message.startswith("exact tier")


def _ascii(text: str) -> str:
    """``text`` in one line that can end no comment."""
    return re.sub(r"[^ -~]+", " ", one_line(text, 400).replace("…", "..."))
