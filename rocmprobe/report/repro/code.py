"""Conversion of a computation to the lines of a script: source of its functions, and calls of them."""

from __future__ import annotations

import ast
import dis
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import CodeType, FunctionType
from typing import Any

from rocmprobe.checks.tools.computation import Computation, bound_ratio, rounding

MAX_WIDTH = 110


def lines(computation: Computation, seed: int) -> list[str]:
    """Return the lines that draw operands, compute on the device and on the CPU, and compare the results.

    The script must define the names ``torch``, ``sys``, ``device`` and ``dtype`` before these lines.
    """
    used: list[Callable[..., Any]] = [computation.draw, computation.call, *computation.measures]
    used += [each for each in (computation.reference, computation.layout) if each]
    used += [rounding] if computation.bounds else []
    return [
        *(line for function in _needed(used) for line in _source(function)),
        *_drawn(computation.draw, seed),
        *_constants(computation),
        *_compared(computation),
    ]


def packed(head: str, parts: Sequence[str], tail: str) -> list[str]:
    """Return ``head``, the parts separated by commas, and ``tail``, in as few lines as possible."""
    lines = [head]
    for position, part in enumerate(parts):
        added = part + (tail if position == len(parts) - 1 else ",")
        gap = "" if lines[-1].endswith(("(", "[", "{")) else " "
        if len(lines[-1]) + len(gap) + len(added) <= MAX_WIDTH:
            lines[-1] += gap + added
        else:
            lines.append(f"    {added}")
    return lines


def _drawn(draw: partial[Any], seed: int) -> list[str]:
    arguments = [part for value in draw.args for part in _literal(value)]
    keywords = _keywords(draw)
    return packed(
        f"operands = {draw.func.__name__}(", [*arguments, *keywords, "dtype=dtype", f"seed={seed}"], ")"
    )


def _literal(value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [json.dumps(value) if isinstance(value, str) else repr(value)]
    items = [f"{json.dumps(key)}: {', '.join(_literal(each))}" for key, each in value.items()]
    items[0] = "{" + items[0]
    items[-1] += "}"
    return items


def _keywords(call: partial[Any]) -> list[str]:
    return [f"{name}={', '.join(_literal(value))}" for name, value in call.keywords.items()]


def _constants(computation: Computation) -> list[str]:
    code = []
    if isinstance(computation.call, partial):
        code += packed("options = dict(", _keywords(computation.call), ")")
    if computation.bounds:
        code += packed("bounds =", _literal(computation.bounds), "")
    if len(computation.limits) > 1:
        code += packed("limits =", _literal(computation.limits), "")
    return code


def _compared(computation: Computation) -> list[str]:
    call, reference = computation.call, computation.reference or computation.call
    moved = "t.to(device, dtype)"
    if computation.layout:
        moved = f"{computation.layout.__name__}({moved})"
    code = [
        f"placed = {{name: {moved} for name, t in operands.items()}}",
        f"got, expected = {_called(call, 'placed')}, {_called(reference, 'operands')}",
    ]
    if computation.bounds:
        sizes = "{name: t.abs() for name, t in operands.items()}"
        code.append(f"sums = {_called(call, sizes)}")
    measures = {_function(each).__name__: _measured(each) for each in computation.measures}
    found = ", ".join(f'"{name}": {measured}' for name, measured in measures.items())
    if len(computation.limits) > 1:
        holds = "all(found[key] <= limits[name][key] for key in found)"
    else:
        (limits,) = computation.limits.values()
        holds = " and ".join(f'found["{name}"] <= {limits[name]!r}' for name in measures)
    return [
        *code,
        "for name, want in expected.items():",
        f"    found = {{{found}}}",
        f'    state = "pass" if {holds} else "wrong"',
        '    print(state, name, ", ".join(f"{key}={value:.2g}" for key, value in found.items()))',
        '    if state == "wrong": sys.exit(1)',
    ]


def _called(call: Callable[..., Any], operands: str) -> str:
    options = ", **options" if isinstance(call, partial) else ""
    return f"{_function(call).__name__}(**{operands}{options})"


def _measured(measure: Callable[..., float]) -> str:
    arguments = ["got[name]", "want"]
    if measure is bound_ratio:
        arguments.append("rounding(sums[name], want, *bounds[name])")
    if isinstance(measure, partial):
        arguments += _keywords(measure)
    return f"{_function(measure).__name__}({', '.join(arguments)})"


def _function(call: Callable[..., Any]) -> FunctionType:
    found = call.func if isinstance(call, partial) else call
    assert isinstance(found, FunctionType)
    return found


def _needed(called: Sequence[Callable[..., Any]]) -> list[FunctionType]:
    """Return the given functions and all functions that they call, each before its caller."""
    found: dict[FunctionType, None] = {}

    def visit(function: FunctionType) -> None:
        for name in _names(function.__code__):
            needed = function.__globals__.get(name)
            if isinstance(needed, FunctionType) and needed is not function and needed not in found:
                visit(needed)
        found[function] = None

    for each in called:
        visit(_function(each))
    return list(found)


def _names(code: CodeType) -> Iterator[str]:
    yield from (each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _source(function: FunctionType) -> list[str]:
    """Return the source of a function without annotations, docstring, blank lines and import of torch."""
    source = inspect.getsource(function)
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    written = source.splitlines()
    for node in ast.walk(definition):
        if isinstance(node, ast.AnnAssign):
            line = written[node.lineno - 1]
            written[node.lineno - 1] = (
                line[: node.target.end_col_offset] + line[node.annotation.end_col_offset :]
            )
    first = next(each for each in definition.body if not _left_out(each))
    body = [line for line in written[first.lineno - 1 :] if line.strip()]
    head = f"def {function.__name__}{_signature(function)}:"
    short = f"{head} {body[0].strip()}"
    return [short] if len(body) == 1 and len(short) <= MAX_WIDTH else [head, *body]


def _signature(function: FunctionType) -> inspect.Signature:
    signature = inspect.signature(function)
    plain = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return signature.replace(parameters=plain, return_annotation=signature.empty)


def _left_out(statement: ast.stmt) -> bool:
    """Return True for a docstring and for ``import torch``."""
    if isinstance(statement, ast.Import):
        return ast.unparse(statement) == "import torch"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
