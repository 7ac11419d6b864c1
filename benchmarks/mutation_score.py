"""Mutation score of the tests: mutants of functions that judge, run, compute convolutions and detect.

    python benchmarks/mutation_score.py cover     which tests execute which line, about fifteen minutes
    python benchmarks/mutation_score.py score     every mutant against the tests that execute its line

Needs the packages coverage and pytest-cov. A fixed seed draws the same number of mutants from each group of
modules. The mutated lines are lines that a test executes in its own process, because the planted bugs cover
code that only children execute. A mutant is caught if one of these tests fails. Tests of the default tier run
first, and fast tests before slow ones, for at most ``--seconds`` in each tier.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks/results/mutation_score.json"
GROUPS = {
    "judging": ("rocmprobe/judge",),
    "running": ("rocmprobe/engine", "rocmprobe/process", "rocmprobe/model"),
    "geometry": ("rocmprobe/geometry.py", "rocmprobe/bypass"),
    "detection": ("rocmprobe/detect",),
}
PER_GROUP = 52
TIERS = ("default", "thorough")
SEED = 20261123

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip


def mutations(tree: ast.Module) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield the qualified name of the function, the node to change, and the kind of change."""

    def walk(node: ast.AST, name: str, inside: bool) -> Iterator[tuple[str, ast.AST, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                function = isinstance(child, ast.FunctionDef)
                yield from walk(child, f"{name}.{child.name}".lstrip("."), inside or function)
                continue
            if inside and not isinstance(child, ast.JoinedStr):
                yield from ((name, child, what) for what in _changes(child))
            if not isinstance(child, (ast.JoinedStr, ast.arguments, ast.AnnAssign)):
                yield from walk(child, name, inside)

    yield from walk(tree, "", False)


def _changes(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        return ["compare"]
    if isinstance(node, ast.BoolOp):
        return ["and-or"]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return ["operator"]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ["not"]
    if isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        return ["constant"]
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        return ["return"]
    return []


def mutated(source: str, number: int) -> str:
    """Return the source with mutation ``number`` of :func:`mutations` applied."""
    tree = ast.parse(source)
    _, node, what = list(mutations(tree))[number]
    lines = source.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        before = sum(len(each.encode()) for each in lines[: line - 1])
        return before + column

    begin = offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
    end = offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    if what == "compare":
        node.ops[0] = COMPARISONS[type(node.ops[0])]()  # type: ignore[attr-defined]
    elif what == "and-or":
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()  # type: ignore[attr-defined]
    elif what == "operator":
        node.op = OPERATORS[type(node.op)]()  # type: ignore[attr-defined]
    elif what == "not":
        node = node.operand  # type: ignore[attr-defined]
    elif what == "constant":
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[attr-defined]
    elif what == "return":
        node.value = ast.Constant(None)  # type: ignore[attr-defined]
    text = ast.unparse(node)
    if what != "return":
        text = f"({text})"
    encoded = source.encode()
    return (encoded[:begin] + text.encode() + encoded[end:]).decode()


def covering(database: Path) -> dict[str, dict[int, list[str]]]:
    """Return the names (as pytest gives them) of the tests that execute each line, by file and line."""
    from coverage.numbits import numbits_to_nums

    found: dict[str, dict[int, list[str]]] = {}
    with sqlite3.connect(database) as data:
        rows = data.execute(
            "select file.path, context.context, line_bits.numbits from line_bits"
            " join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
        )
        arcs = data.execute(
            "select distinct file.path, context.context, arc.tono from arc join file on file.id = arc.file_id"
            " join context on context.id = arc.context_id where arc.tono > 0"
        )
        for path, context, bits in rows:
            for line in numbits_to_nums(bits):
                found.setdefault(path, {}).setdefault(line, []).append(context)
        for path, context, line in arcs:
            found.setdefault(path, {}).setdefault(line, []).append(context)
    return {
        path: {line: [name.partition("|")[0] for name in names if name] for line, names in lines.items()}
        for path, lines in found.items()
    }


def drawn(lines: dict[str, dict[int, list[str]]]) -> list[dict[str, Any]]:
    """Return the drawn mutants: their places and numbers, and the tests that execute their lines."""
    chance = random.Random(SEED)  # noqa: S311 - drawn again the same
    chosen = []
    for group, places in GROUPS.items():
        possible = []
        for path in sorted(ROOT.glob("rocmprobe/**/*.py")):
            relative = path.relative_to(ROOT).as_posix()
            if not relative.startswith(places):
                continue
            for number, (name, node, what) in enumerate(mutations(ast.parse(path.read_text()))):
                line = node.lineno  # type: ignore[attr-defined]
                tests = lines.get(str(path), {}).get(line, [])
                if tests:
                    found = {"group": group, "file": relative, "function": name, "line": line}
                    possible.append({**found, "number": number, "change": what, "tests": sorted(set(tests))})
        chosen += chance.sample(possible, min(PER_GROUP, len(possible)))
    return chosen


def in_order(tests: list[str], seconds: dict[str, float], limit: float) -> list[str]:
    """Return tests for ``limit`` seconds: the fastest case of each test function, then second cases, and
    so on."""
    by_function: dict[str, list[str]] = {}
    for test in sorted(tests, key=lambda test: seconds.get(test, 1.0)):
        by_function.setdefault(test.partition("[")[0], []).append(test)
    rounds = sorted(
        ((place, test) for cases in by_function.values() for place, test in enumerate(cases)),
        key=lambda each: (each[0], seconds.get(each[1], 1.0)),
    )
    chosen, spent = [], 0.0
    for _, test in rounds:
        spent += seconds.get(test, 1.0)
        if chosen and (spent > limit or len(chosen) == 300):
            break
        chosen.append(test)
    return chosen


def caught(tree: Path, mutant: dict[str, Any], tests: list[str], limit: float) -> str:
    """Return the failing test, the reason why no test could run, or "" if the mutant survived."""
    path = tree / mutant["file"]
    source = path.read_text()
    options = {
        "cwd": tree,
        "env": {**os.environ, "PYTHONPATH": str(tree)},
        "capture_output": True,
        "text": True,
    }
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "-rfE", "--no-header", "--tb=no"]
    command += ["-p", "no:cacheprovider", "-m", ""]
    path.write_text(mutated(source, mutant["number"]))
    try:
        ran = subprocess.run([*command, *tests], timeout=3 * limit + 60, check=False, **options)
        if ran.returncode == 4 and any("[" in test for test in tests):
            # pytest does not find some names with odd characters again, so run all cases of their functions.
            functions = list(dict.fromkeys(test.partition("[")[0] for test in tests))
            ran = subprocess.run([*command, *functions], timeout=3 * limit + 60, check=False, **options)
    except subprocess.TimeoutExpired:
        return "a test that does not end"
    finally:
        path.write_text(source)
    if ran.returncode == 4:
        return "no test can be collected"
    for line in ran.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].partition(" - ")[0]
    return "" if ran.returncode in (0, 5) else f"exit {ran.returncode}"


def default_tests() -> set[str]:
    """Return the tests of the default tier."""
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "--collect-only"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line for line in listed.splitlines() if "::" in line}


def score(arguments: argparse.Namespace) -> None:
    """Try every mutant, print the share that is caught, and write the test that caught each mutant."""
    lines, seconds = covering(arguments.data / "coverage"), durations(arguments.data / "junit.xml")
    listed = arguments.mutants or arguments.data / "mutants.json"
    if not listed.exists():
        listed.write_text(json.dumps(drawn(lines)))
    mutants = json.loads(listed.read_text())
    default = default_tests()
    found: dict[int, dict[str, str]] = {}
    trees: list[Path] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.processes):
            tree = Path(folder) / str(number) / "main"
            shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "runs"))
            shared = ROOT.parent / "shared"
            if shared.exists():
                (tree.parent / "shared").symlink_to(shared)
            trees.append(tree)

        def attempt(at: int) -> None:
            mutant, tree = mutants[at], trees.pop()
            tests = sorted(set(lines.get(str(ROOT / mutant["file"]), {}).get(mutant["line"], [])))
            found[at] = {"tier": "", "caught": ""}
            for tier in TIERS:
                own = [test for test in tests if (test in default) == (tier == "default")]
                chosen = in_order(own, seconds, arguments.seconds)
                by = caught(tree, mutant, chosen, arguments.seconds) if chosen else ""
                if by:
                    found[at] = {"tier": tier, "caught": by}
                    break
            trees.append(tree)
            told = found[at]["caught"] or "not noticed"
            print(at, mutant["file"], mutant["line"], mutant["change"], told, flush=True)

        with ThreadPoolExecutor(arguments.processes) as pool:
            list(pool.map(attempt, range(len(mutants))))
    wanted = ("group", "file", "function", "line", "number", "change")
    rows = [{**{key: mutant[key] for key in wanted}, **found[at]} for at, mutant in enumerate(mutants)]
    for group in (*GROUPS, ""):
        own = [row for row in rows if group in ("", row["group"])]
        by_tier = [sum(row["tier"] == tier for row in own) for tier in TIERS]
        told = f"{by_tier[0]} by the default tier, {sum(by_tier)} by both, of {len(own)}"
        print(f"{group or 'all'}: {told}")
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")


def durations(report: Path) -> dict[str, float]:
    """Return the seconds of each test, from a JUnit file."""
    import xml.etree.ElementTree as ET

    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it
        parts = str(case.get("classname")).split(".")
        file = next(place for place, part in enumerate(parts) if part.startswith("test_")) + 1
        name = "::".join(["/".join(parts[:file]) + ".py", *parts[file:], str(case.get("name"))])
        found[name] = float(case.get("time") or 0)
    return found


def cover(arguments: argparse.Namespace) -> None:
    """Run the tests of both tiers once with branch coverage by test."""
    arguments.data.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-m", "", f"--junitxml={arguments.data / 'junit.xml'}"),
        *("--cov=rocmprobe", "--cov-branch", "--cov-context=test", "--cov-report="),
    ]
    environment = {**os.environ, "COVERAGE_FILE": str(arguments.data / "coverage")}
    subprocess.run(command, cwd=ROOT, env=environment, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("cover", "score"))
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "mutation_score")
    parser.add_argument("--mutants", type=Path, help="drawn before, to be tried again")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    {"cover": cover, "score": score}[arguments.what](arguments)


if __name__ == "__main__":
    main()
