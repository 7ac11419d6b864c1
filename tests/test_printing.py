"""What reaches a terminal: all of it goes through two modules, in which foreign text is inert."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

import rocmprobe
from rocmprobe.text.console import Console
from rocmprobe.text.plain_text import is_plain

PACKAGE = Path(rocmprobe.__file__).parent
#: Programs of their own, which are no command: what they print is captured, or theirs.
_OTHERS = re.compile(r"^(worker|exec/inject|bypass|kernels|backends)/|^text/(printing|console)\.py$")
_PRINTS = re.compile(r"click\.s?echo|(?<![\w.])print\(|sys\.(?:__)?std(?:out|err)(?:__)?\.(?:write|buffer)"
                     r"|rich\.print|traceback\.print|[^_.\w]Console\(|print_exception")  # fmt: skip


def code(path: Path) -> dict[int, str]:
    """The lines of a module by their numbers, without strings and comments."""
    found: dict[int, str] = {}
    with path.open("rb") as stream:
        for token in tokenize.tokenize(stream.readline):
            if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
                line = found.get(token.start[0], "")
                found[token.start[0]] = (
                    f"{line} {token.string}" if token.type == tokenize.NAME else line + token.string
                )
    return {number: re.sub(r"\. ", ".", line) for number, line in found.items()}


def test_nobody_else_prints() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        if _OTHERS.match(path.relative_to(PACKAGE).as_posix()):
            continue
        inert = "rocmprobe.text.console import Console" in path.read_text("utf-8")
        for number, line in code(path).items():
            console = inert and re.search(r"\bConsole\(", line)
            if _PRINTS.search(line) and not console:
                found.append(f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}")
    assert found == []


def test_what_prints_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import sys\nx = 'print(1)'\nprint(x)\nsys.stdout.write(x)\nclick.echo(x)\n"
    )
    assert [number for number, line in code(tmp_path / "a.py").items() if _PRINTS.search(line)] == [3, 4, 5]


HOSTILE = (
    "a\x1b]8;;http://a.example\x07b\x1b]8;;\x07\x1b[31m\x9b\x00\u202e\ud800 [bold]c[/bold] :smile: 7\r\nd"
)


@pytest.mark.parametrize("what", ["text", "string", "table", "title"])
def test_a_console_sends_no_sequence_but_its_own(what: str) -> None:
    table = Table(title=Text(HOSTILE) if what == "title" else None)
    table.add_column(Text(HOSTILE))
    table.add_row(HOSTILE, Text(HOSTILE, "bold"))
    shown = {"text": Text(HOSTILE, "bold red"), "string": HOSTILE}.get(what, table)
    console = Console(file=io.StringIO(), width=300, force_terminal=True, color_system="standard")
    console.print(shown)
    sent = console.file.getvalue()  # type: ignore[attr-defined]
    assert is_plain(re.sub(r"\x1b\[[0-9;]*m", "", sent))
    assert "a.example" not in sent
    assert "[bold]c[/bold] :smile:" in sent
    if what != "string":
        assert "\x1b[1" in sent


def said(code: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    program = f"from rocmprobe.text import printing\nprinting.ready()\n{code}"
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environ}, capture_output=True, check=True
    )


def test_what_a_stream_cannot_encode_is_shown_as_an_escape() -> None:
    done = said(
        "printing.say('\\u2192 \\ud800 \\x1b[1m.')\nprinting.print_stderr('\\u2192 \\ud800\\n##[error]x')\n"
        "printing.say_json(['\\u2192\\ud800\\x7f\\x1b'])",
        PYTHONIOENCODING="latin-1", GITHUB_ACTIONS="true",
    )  # fmt: skip
    assert done.stdout.startswith(b"\\u2192 \\ud800 .\n")
    assert json.loads(done.stdout.partition(b"\n")[2]) == ["\u2192\ud800\x7f\x1b"]
    assert done.stderr == b"rocmprobe: \\u2192 \\ud800 # #[error]x\n"
    for byte in (b"\x1b", b"\x7f"):
        assert byte not in done.stdout + done.stderr
