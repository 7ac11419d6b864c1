"""Heading, tables and output file of a result."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Optional


def heading(title: str, command: str) -> list[str]:
    """Return the first lines of a result: title, command, machine, versions, date and commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    ).stdout.strip()
    return [
        f"# {title}",
        "",
        f"`{command}` on {os.cpu_count()} cores of {processor()}, Python {platform.python_version()}, "
        f"torch {version('torch')}, {datetime.date.today()}, commit {commit}.",
        "",
    ]


def processor() -> str:
    """Return the name of the CPU."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "a CPU")


def table(head: Sequence[str], rows: Iterable[Sequence[object]], texts: int = 1) -> list[str]:
    """Return a Markdown table. The columns after the first ``texts`` columns contain numbers."""
    align = ["---"] * texts + ["---:"] * (len(head) - texts)
    return ["| " + " | ".join(map(str, row)) + " |" for row in (head, align, *rows)]


def publish(lines: Iterable[str], output: Optional[Path]) -> None:
    """Print a result, and write it to ``output`` if it is given."""
    text = "\n".join(lines)
    print(text)
    if output:
        output.write_text(text + "\n", "utf-8")
