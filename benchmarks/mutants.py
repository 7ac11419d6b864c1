"""Mutation score: how many changes of one place in the code the tests notice.

The places are drawn from the packages that decide on a verdict, in proportion to their lines. A mutant is
written into a clone of the commit. The tests that execute the changed line run, first those that execute the
fewest lines, each function once before its other parameters. Needs ``pip install coverage``::

    python benchmarks/mutants.py --number 250 --results before.json
    python benchmarks/mutants.py --again before.json --results after.json -o benchmarks/results/mutants.md

``--again`` repeats the same mutants with the tests of this commit.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from figures import heading, publish, table

CHECKOUT = Path(__file__).resolve().parents[1]
PARTS = ("judge", "engine", "bypass", "detect", "text/redact.py")
#: No further test of a mutant starts after so many seconds; a test that hangs ends after the limit.
SECONDS, LIMIT = 20, 90
#: At most so many tests of a mutant run.
TESTS = 50
STATES = ("killed", "survived", "not run")
#: Exit codes of pytest without a failure: passed, no time left, no test selected.
PASSED = (0, 2, 5)
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
#: Annotations and decorators, and texts, change no behaviour or are not worth a test.
SKIPPED_FIELDS = ("annotation", "returns", "decorator_list")
SKIPPED_NODES = (ast.JoinedStr, ast.Raise, ast.Assert)


@dataclass(frozen=True)
class Mutant:
    """A change of one place."""

    part: str
    path: str
    name: str
    source: str
    #: Lines on which the changed statement and the changed expression begin; none outside of functions.
    lines: tuple[int, ...]


def replacements(node: ast.AST) -> Iterator[str]:
    """Yield the texts that replace ``node``."""
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            operators = [*node.ops]
            operators[number] = FLIPPED[type(operator)]()
            yield f"({ast.unparse(ast.Compare(node.left, operators, node.comparators))})"
    elif isinstance(node, ast.BoolOp):
        operator = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"({ast.unparse(ast.BoolOp(operator, node.values))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield str(node.value + 1)
    elif isinstance(node, (ast.AugAssign, ast.Continue)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "pass"
    elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield "return None"


def places(
    node: ast.AST, scope: tuple[str, ...] = (), statement: Optional[ast.stmt] = None, inside: bool = False
) -> Iterator[tuple[ast.AST, str, tuple[str, ...], tuple[int, ...]]]:
    """Yield node, replacement, scope and lines of every change below ``node``."""
    if isinstance(node, SKIPPED_NODES) or (
        isinstance(node, (ast.If, ast.Assign))
        and ast.unparse(node).startswith(("if TYPE_CHECKING", "__all__"))
    ):
        return
    if isinstance(node, ast.stmt):
        statement = node
    if statement:
        lines = (statement.lineno, getattr(node, "lineno", statement.lineno)) if inside else ()
        for text in replacements(node):
            yield node, text, scope, lines
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and isinstance(node.test, (ast.Name, ast.Call)):
        yield node.test, f"(not {ast.unparse(node.test)})", scope, lines
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope = (*scope, node.name)
        inside = inside or not isinstance(node, ast.ClassDef)
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in SKIPPED_FIELDS:
                yield from places(child, scope, statement, inside)


def mutants_of(checkout: Path, part: str, path: str) -> list[Mutant]:
    """Return the mutants of one file. Their names stay when other places of the file change."""
    source = (checkout / path).read_text("utf-8")
    rows = source.encode().splitlines(keepends=True)
    starts = [sum(map(len, rows[:number])) for number in range(len(rows))]
    seen: Counter[str] = Counter()
    found = []
    for node, text, scope, lines in places(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        name = f"{path}: {'.'.join(scope) or 'module'}: {ast.unparse(node)} -> {text}".replace("\n", " ")
        seen[name] += 1
        name += f" ({seen[name]})" * (seen[name] > 1)
        changed = source.encode()[:start] + text.encode() + source.encode()[end:]
        found.append(Mutant(part, path, name, changed.decode(), lines))
    return found


def all_mutants(checkout: Path) -> dict[str, list[list[Mutant]]]:
    """Return the mutants of each part, those of one line together."""
    found: dict[str, list[list[Mutant]]] = {}
    for part in PARTS:
        root = checkout / "rocmprobe" / part
        by_line: dict[tuple[object, ...], list[Mutant]] = defaultdict(list)
        for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            for number, mutant in enumerate(mutants_of(checkout, part, str(file.relative_to(checkout)))):
                by_line[mutant.path, mutant.lines[-1] if mutant.lines else -number].append(mutant)
        found[part] = list(by_line.values())
    return found


def drawn(checkout: Path, number: int, seed: int) -> list[Mutant]:
    """Draw ``number`` mutants, at most one in a line, from each part in proportion to its lines."""
    draw = random.Random(seed)  # noqa: S311 - drawn places need no secrecy
    mutants = all_mutants(checkout)
    sizes = {}
    for part in PARTS:
        root = checkout / "rocmprobe" / part
        files = root.rglob("*.py") if root.is_dir() else [root]
        sizes[part] = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    total = sum(sizes.values())
    found = [
        draw.choice(line)
        for part, lines in mutants.items()
        for line in draw.sample(lines, round(number * sizes[part] / total))
    ]
    draw.shuffle(found)
    return found


class Clone:
    """A clone of the commit, with a Python that imports rocmprobe from it."""

    def __init__(self, folder: Path) -> None:
        self.path, self._venv = folder / "clone", folder / "venv"
        subprocess.run(["git", "clone", "-q", str(CHECKOUT), str(self.path)], check=True)
        # Some tests read recorded machines that lie beside the checkout.
        (folder / "shared").symlink_to(CHECKOUT.parent / "shared")
        venv.create(self._venv, symlinks=True)
        self._python = self._venv / "bin" / "python"
        packages = next(self._venv.glob("lib/python*/site-packages"))
        shutil.copy(Path(__file__).with_name("line_map.py"), packages)
        installed = [each for each in sys.path if "site-packages" in each]
        (packages / "clone.pth").write_text("\n".join([str(self.path), *installed, "import line_map"]) + "\n")

    def start(self, statement: str, **variables: str) -> subprocess.Popen[str]:
        """Start Python in the clone with ``statement``, which uses line_map."""
        return subprocess.Popen(
            [self._python, "-c", f"import json, line_map; {statement}"], cwd=self.path, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **variables},
        )  # fmt: skip

    def write(self, path: str, source: str) -> None:
        (self.path / path).write_text(source, "utf-8")
        # Bytecode of a source with the same size and second would be taken for current.
        shutil.rmtree((self.path / path).parent / "__pycache__", ignore_errors=True)


class LineMap:
    """The tests that execute each line, measured in one run of all tests."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._files: dict[str, dict[str, list[str]]] = data["files"]
        self.lines: Counter[str] = Counter(
            test for lines in self._files.values() for tests in lines.values() for test in tests
        )
        self.failing = set(data["failed"])

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests of a mutant in their order. A place outside of functions has those of its file."""
        lines = self._files.get(mutant.path, {})
        wanted = map(str, mutant.lines) if mutant.lines else lines
        found = {test for line in wanted for test in lines.get(line, ())} - self.failing
        turn: Counter[str] = Counter()
        ordered = []
        for test in sorted(found, key=lambda test: (self.lines[test], test)):
            function = test.partition("[")[0]
            ordered.append((turn[function], self.lines[test], test))
            turn[function] += 1
        return [test for *_, test in sorted(ordered)][:TESTS]


def measured(clone: Clone, folder: Path) -> dict[str, Any]:
    """Run all tests with coverage. Return the tests by file and line, the failed tests and the times."""
    folder.mkdir()
    source = f"{clone.path}/rocmprobe/"
    variables = {"LINE_MAP_COVERAGE": str(folder / "data"), "LINE_MAP_SOURCE": source}
    clone.start(
        f"json.dump(line_map.run_tests([]), open({str(folder / 'run.json')!r}, 'w'))", **variables
    ).communicate()
    run = json.loads((folder / "run.json").read_text())
    return {"files": tests_by_line(folder, source), **run}


def tests_by_line(folder: Path, source: str) -> dict[str, dict[int, list[str]]]:
    """Read the files that coverage wrote for each process."""
    from coverage import CoverageData
    from coverage.exceptions import DataError

    total = CoverageData(no_disk=True)
    for path in folder.glob("data.*"):
        part = CoverageData(str(path))
        try:
            part.read()
        except DataError:
            continue  # The process was killed while it wrote the file.
        total.update(part)
    found = {}
    for file in total.measured_files():
        lines = total.contexts_by_lineno(file)
        named = {line: sorted(filter(None, tests)) for line, tests in lines.items() if any(tests)}
        found[f"rocmprobe/{file.removeprefix(source)}"] = named
    return found


def tried(
    clone: Clone, mutants: Iterable[Mutant], lines: LineMap, killers: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Run the tests of each mutant. Yield what became of it."""
    server = clone.start("line_map.serve()")
    assert server.stdin
    assert server.stdout
    for mutant in mutants:
        began = time.monotonic()
        tests = lines.tests(mutant)
        if (killer := killers.get(mutant.name)) in lines.lines:
            tests = [killer, *(test for test in tests if test != killer)]
        if not tests:
            yield {"name": mutant.name, "part": mutant.part, "state": "not run", "killer": None}
            continue
        original = (clone.path / mutant.path).read_text("utf-8")
        clone.write(mutant.path, mutant.source)
        request = {"arguments": ["-x", *tests], "seconds": SECONDS, "limit": LIMIT}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        ended = json.loads(server.stdout.readline())
        clone.write(mutant.path, original)
        noticed = ended["failed"] or ([] if ended["code"] in PASSED else [ended["code"]])
        yield {
            "name": mutant.name,
            "part": mutant.part,
            "state": "killed" if noticed else "survived",
            "killer": noticed[0] if noticed else None,
            "ran": len(ended["seconds"]),
            "tests": len(tests),
            "seconds": round(time.monotonic() - began, 1),
        }
    server.communicate()


def failing(clone: Clone, tests: set[str]) -> set[str]:
    """Return those of ``tests`` that fail without any change."""
    if not tests:
        return set()
    run = clone.start(f"print('\\n' + json.dumps(line_map.run_tests({sorted(tests)!r})))")
    return set(json.loads(run.communicate()[0].splitlines()[-1])["failed"])


def score(results: Iterable[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Return mutants, killed, survived, not run and the share of killed for each part and for all."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in (*PARTS, "all")}
    for result in results:
        counts[result["part"]][result["state"]] += 1
        counts["all"][result["state"]] += 1
    return [
        (name, total, *(count[state] for state in STATES), f"{count['killed'] / max(1, total):.0%}")
        for name, count in counts.items()
        for total in [sum(count.values())]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--map", type=Path, help="file of the lines of each test, written if it is missing")
    parser.add_argument("--again", type=Path, help="results of the mutants to repeat")
    parser.add_argument(
        "--results", type=Path, required=True, help="file of all results; what it has is kept"
    )
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    before = {each["name"]: each for each in json.loads(options.again.read_text())} if options.again else {}
    results = json.loads(options.results.read_text()) if options.results.exists() else []
    with tempfile.TemporaryDirectory() as name:
        clone = Clone(Path(name))
        if before:
            lines_of_code = (line for part in all_mutants(clone.path).values() for line in part)
            mutants = [mutant for line in lines_of_code for mutant in line if mutant.name in before]
        else:
            mutants = drawn(clone.path, options.number, options.seed)
        if not (options.map and options.map.exists()):
            options.map = options.map or Path(name) / "map.json"
            options.map.write_text(json.dumps(measured(clone, Path(name) / "coverage")))
        lines = LineMap(json.loads(options.map.read_text()))
        while pending := [
            mutant for mutant in mutants if mutant.name not in {each["name"] for each in results}
        ]:
            killers = {name: each["killer"] for name, each in before.items()}
            for result in tried(clone, pending, lines, killers):
                results.append(result)
                options.results.write_text(json.dumps(results, indent=1))
                print(result["state"], result["name"], flush=True)
            # A test that fails without a change, too, has noticed nothing.
            lines.failing |= failing(clone, {each["killer"] for each in results} & set(lines.lines))
            results = [each for each in results if each["killer"] not in lines.failing]
    command = f"python benchmarks/mutants.py --number {len(mutants)} --seed {options.seed}"
    publish([*heading("Mutation score", command), *report(results, before)], options.output)


def report(results: list[dict[str, Any]], before: dict[str, dict[str, Any]]) -> list[str]:
    """Return the score, with the mutants that survive, and those that the tests noticed before."""
    head, rows = ["part", "mutants", *STATES, "score"], score(results)
    if before:
        head.append("score before")
        rows = [(*row, old[-1]) for row, old in zip(rows, score(before[each["name"]] for each in results))]
    missed = [each for each in results if each["state"] != "killed"]
    lost = [each["name"] for each in missed if before.get(each["name"], {}).get("state") == "killed"]
    return [
        *table(head, rows),
        *("", "Noticed by the tests before, and not by the present ones:", ""),
        *table(("mutant", "killed by"), ((code(name), before[name]["killer"]) for name in sorted(lost)), 2),
        *("", "Not noticed:", ""),
        *table(("mutant", "state"), sorted((code(each["name"]), each["state"]) for each in missed), 2),
    ]


def code(name: str) -> str:
    """Return the name of a mutant for a cell of a table."""
    return "`" + name.replace("|", "\\|") + "`"


if __name__ == "__main__":
    main()
