"""Read damaged results, journals, shapes, facts and machine files with every command that reads them.

Each file gets one to three random changes of its bytes or of its values. A command must accept the file, or
refuse it with one line and exit code 2::

    python benchmarks/mutations.py --number 2000 -o benchmarks/results/mutations.md
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from figures import heading, publish, table

from rocmprobe.cli import main as command_line
from rocmprobe.engine import run
from rocmprobe.exec import command
from rocmprobe.model.results import BadInput

MACHINE = "rdna1-rocm52-conv-dead"
DATA = Path(run.__file__).parents[1] / "data"
#: Values that replace others. Half a surrogate pair and numbers that are too large are not valid JSON.
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 10**40, 1e308, float("nan"), float("inf"), "", "x", "\x1b[31m", "\ud800",
    "../../etc", "é" * 3000, [], {}, [[]], {"": None}, ["x"] * 50, {"value": 1},
    {"value": [None], "source": 3},
)  # fmt: skip
BYTES = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"{",
    b"]",
    b'"',
    b"\\ud800",
    b"1e999",
    b"[" * 200,
    b"\n",
    b"null",
    b"\x1b[2J",
)

Invoke = Callable[[], "Result | None"]


def made(folder: Path) -> dict[str, Path]:
    """Make one good file of each kind. Return the files, keyed by kind."""
    words = [
        "run",
        "--simulate",
        MACHINE,
        "--only",
        "copy",
        "--only",
        "convolution",
        "--settings",
        "vendor-off",
    ]
    invoked(*words, "--out", folder / "run")
    facts, shapes = folder / "facts.json", folder / "shapes.json"
    facts.write_text(invoked("detect", "--json").stdout)
    problems = json.loads((folder / "run" / "results.json").read_text())["problems"]
    counted = [{**problem, "counts": {"fwd": 1}} for problem in problems]
    shapes.write_text(json.dumps({"schema_version": 1, "torch": ["2.4.0"], "problems": counted}))
    return {
        "results": folder / "run" / "results.json",
        "journal": folder / "run" / "journal.jsonl",
        "facts": facts,
        "shapes": shapes,
        "machine": next((DATA / "machines").glob(f"{MACHINE}.toml")),
    }


def invoked(*words: object) -> Result:
    return CliRunner().invoke(command_line, [str(word) for word in words])


def readers(kind: str, path: Path, good: Path, case: str) -> dict[str, Invoke]:
    """Return the commands that read the damaged file ``path``. ``good`` is a valid results.json."""
    output = path.parent / "output"

    def lines(*words: object) -> Invoke:
        return lambda: invoked(*words)

    def resume() -> None:
        before = set(os.listdir("/proc/self/fd"))
        try:
            run.resume(path.parent, retry_aborted=False)
        finally:
            for descriptor in set(os.listdir("/proc/self/fd")) - before:
                try:
                    os.close(int(descriptor))
                except OSError:
                    continue

    if kind == "journal":
        folder = path.parent
        return {
            "report": lines("report", folder),
            "report md": lines("report", folder, "--format", "md"),
            "compare": lines("compare", good, folder),
            "resume": resume,
        }
    if kind == "shapes":
        # Valid shapes would start a run, so the run is refused for another reason.
        return {"run --shapes": lines("run", "--shapes", path, "--problem", "x")}
    if kind == "machine":
        simulate = ("run", "--simulate", path, "--only", "nothing/*", "--out", path.parent / "run")
        return {"install": lines("install", "--simulate", path), "run --simulate": lines(*simulate)}
    if kind == "facts":
        return {
            "install": lines("install", "--facts", path),
            "install --json": lines("install", "--facts", path, "--json"),
            "explain --facts": lines("explain", good, "--facts", path),
        }
    return {
        "report": lines("report", path, "-o", output),
        "report md": lines("report", path, "--format", "md"),
        "report issue": lines("report", path, "--format", "issue", "--full"),
        "report junit": lines("report", path, "--format", "junit", "-o", output),
        "report json": lines("report", path, "--format", "json", "-o", output),
        "explain": lines("explain", path),
        "explain --json": lines("explain", path, "--json"),
        "compare": lines("compare", good, path),
        "compare --csv": lines("compare", path, good, good, "--csv"),
        "env": lines("env", path, "--simulated"),
        "exec": lines("exec", "--simulated", "--profile", path, "--", "true"),
        "repro": lines("repro", path, case),
        "install": lines("install", "--facts", path),
        "run --verify": lines("run", "--verify", path, "--out", good.parent),
        "run --baseline": lines("run", "--device", "cpu", "--baseline", path, "--out", good.parent),
    }


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of every value in nested data."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in list(items):
        yield data, key
        yield from places(item)


def damaged(content: bytes, kind: str, draw: random.Random) -> bytes:
    """Return ``content`` with one to three changes."""
    for _ in range(draw.randint(1, 3)):
        if kind == "machine" or draw.random() < 0.3:
            content = damaged_bytes(content, draw)
            continue
        lines = content.split(b"\n") if kind == "journal" else [content]
        at = draw.randrange(len(lines))
        try:
            data = copy.deepcopy(json.loads(lines[at]))
        except ValueError:
            continue
        if found := list(places(data)):
            inner, key = draw.choice(found)
            if draw.random() < 0.2:
                del inner[key]
            elif isinstance(inner, dict) and draw.random() < 0.15:
                inner[draw.choice([str(value) for value in VALUES])] = inner.pop(key)
            else:
                inner[key] = draw.choice(VALUES)
        lines[at] = json.dumps(data).encode()
        content = b"\n".join(lines)
    return content


def damaged_bytes(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    end = draw.choice([start, start + 1, start + draw.randrange(200), len(content)])
    moved = content[end : end + draw.randrange(300)]
    return content[:start] + draw.choice([*BYTES, moved]) + content[end:]


def ending(ask: Invoke) -> str:
    """Return "accepted" or "refused", or else a description of how a command ends."""
    try:
        done = ask()
    except BadInput as refusal:
        return "refused" if "\n" not in str(refusal) else f"several lines: {refusal}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    if done is None:
        return "accepted"
    if done.exception and not isinstance(done.exception, SystemExit):
        return repr(done.exception)
    if done.exit_code not in (0, 1, 2, 3) or "Traceback" in done.output:
        return f"exit code {done.exit_code}: {done.output[-300:]}"
    if done.exit_code != 2:
        return "accepted"
    return "refused" if done.stderr.count("\n") == 1 else f"several lines: {done.stderr[:300]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    command.replace_process = lambda *_: sys.exit(0)  # `exec` would replace this process.
    draw = random.Random(options.seed)  # noqa: S311 - drawn changes need no secrecy
    tried, refused, failed = Counter[str](), Counter[str](), Counter[str]()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        files = made(Path(name))
        good, kinds = files["results"], list(files)
        case = json.loads(good.read_text())["outcomes"][-1]["id"]
        for number in range(options.number):
            kind = kinds[0] if draw.random() < 0.5 else draw.choice(kinds[1:])
            folder = Path(name) / str(number)
            folder.mkdir()
            path = folder / files[kind].name
            path.write_bytes(damaged(files[kind].read_bytes(), kind, draw))
            asked = readers(kind, path, good, case)
            reader = draw.choice(list(asked))
            row, end = f"{kind}: {reader}", ending(asked[reader])
            tried[row] += 1
            refused[row] += end == "refused"
            if end not in ("accepted", "refused"):
                failed[row] += 1
                faults.append(f"{number} {row}: {end}")
                print(faults[-1], flush=True)
            os.chdir(name)
            shutil.rmtree(folder)
    publish(
        [
            *heading("Damaged files", f"python benchmarks/mutations.py --number {options.number}"),
            f"{len(faults)} of {options.number} files were neither accepted nor refused with one line.",
            "",
            *table(
                ("file and command", "files", "refused", "fail"),
                [(row, tried[row], refused[row], failed[row]) for row in sorted(tried)],
            ),
            *("", *(f"    {each}" for each in faults)),
        ],
        options.output,
    )


if __name__ == "__main__":
    main()
