"""A computation as lines of a script: the source of its functions, and the calls that a worker makes."""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import CodeType, FunctionType
from typing import Any, Union

from rocmprobe.checks.tools.computation import Computation, bound_ratio, rounding

MAX_WIDTH = 110


def lines(computation: Computation, seed: int) -> list[str]:
    """Return the lines that draw operands, compute on the device and on the CPU, and compare.

    They use ``torch``, ``sys``, ``device`` and ``dtype``.
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
    """Return ``head``, the parts with commas between them, and ``tail``, in as few lines as they fit into."""
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
    keywords = [f"{name}={value!r}" for name, value in draw.keywords.items()]
    return packed(
        f"operands = {draw.func.__name__}(", [*arguments, *keywords, "dtype=dtype", f"seed={seed}"], ")"
    )


def _literal(value: Any) -> list[str]:
    """Return a value as source, in parts between which a line may break."""
    if not isinstance(value, Mapping):
        return [repr(value)]
    items = [f"{key!r}: {each!r}" for key, each in value.items()]
    items[0] = "{" + items[0]
    items[-1] += "}"
    return items


def _constants(computation: Computation) -> list[str]:
    """Return the lines that name the geometry, and what differs between the results."""
    code = []
    if isinstance(computation.call, partial):
        options = [f"{name}={value!r}" for name, value in computation.call.keywords.items()]
        code += packed("options = dict(", options, ")")
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
    found = ", ".join(f"{name!r}: {measured}" for name, measured in measures.items())
    if len(computation.limits) > 1:
        holds = "all(found[key] <= limits[name][key] for key in found)"
    else:
        (limits,) = computation.limits.values()
        holds = " and ".join(f"found[{name!r}] <= {limits[name]!r}" for name in measures)
    return [
        *code,
        "for name, want in expected.items():",
        f"    found = {{{found}}}",
        f"    state = 'pass' if {holds} else 'wrong'",
        "    print(state, name, ', '.join(f'{key}={value:.2g}' for key, value in found.items()))",
        "    if state == 'wrong': sys.exit(1)",
    ]


def _called(call: Callable[..., Any], operands: str) -> str:
    options = ", **options" if isinstance(call, partial) else ""
    return f"{_function(call).__name__}(**{operands}{options})"


def _measured(measure: Callable[..., float]) -> str:
    arguments = ["got[name]", "want"]
    if measure is bound_ratio:
        arguments.append("rounding(sums[name], want, *bounds[name])")
    if isinstance(measure, partial):
        arguments += [f"{name}={value!r}" for name, value in measure.keywords.items()]
    return f"{_function(measure).__name__}({', '.join(arguments)})"


def _function(call: Callable[..., Any]) -> FunctionType:
    found = call.func if isinstance(call, partial) else call
    assert isinstance(found, FunctionType)
    return found


def _needed(called: Sequence[Callable[..., Any]]) -> list[FunctionType]:
    """Return the functions with those that they call, each after those that it calls."""
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
    """Yield the global names that a function uses, also in functions and comprehensions inside it."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


class _Plain(ast.NodeTransformer):
    """Removes what a script does not need: annotations, docstrings and imports of torch."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if ast.get_docstring(node) is not None:
            del node.body[0]
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_Import(self, node: ast.Import) -> Union[ast.AST, None]:
        return None if [(each.name, each.asname) for each in node.names] == [("torch", None)] else node


@cache
def _source(function: FunctionType) -> list[str]:
    """Return the source of a function: on one line if there is one statement, and it fits."""
    tree = _Plain().visit(ast.parse(inspect.getsource(function)))
    found = ast.unparse(ast.fix_missing_locations(tree)).splitlines()
    short = " ".join(line.strip() for line in found)
    return [short] if len(found) == 2 and len(short) <= MAX_WIDTH else found
