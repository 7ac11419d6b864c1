"""Count identifiers that survive redaction, and ordinary lines that redaction changes.

The identifiers are those of ``tests/identifiers.txt``. The ordinary lines are the distinct lines of logs from
public issues (files with one JSON object with a ``log`` per line)::

    python benchmarks/redaction.py ../shared/corpus/*.jsonl -o benchmarks/results/redaction.md
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
from collections import Counter
from pathlib import Path

from figures import heading, publish, table

from rocmprobe.text.redact import redacted_text

LIST = Path(__file__).parents[1] / "tests" / "identifiers.txt"


def survivors() -> tuple[Counter[str], Counter[str], list[str]]:
    """Return the lines by kind, those of them that keep an identifier by kind, and these lines."""
    kind, tried, bad, lines = "", Counter[str](), Counter[str](), []
    for line in LIST.read_text("utf-8").splitlines():
        if line.startswith("# "):
            kind = line[2:]
        elif line:
            tried[kind] += 1
            found = redacted_text(line.replace("⟦", "").replace("⟧", "").replace("\\x1b", "\x1b"))
            marked = re.findall("⟦(.*?)⟧", line.replace("\\x1b", "\x1b"))
            if any(each in found for each in marked):
                bad[kind] += 1
                lines.append(line)
    return tried, bad, lines


def changed(paths: list[Path]) -> tuple[int, list[str]]:
    """Return the number of distinct lines in the logs, and the lines that redaction changes."""
    logs = [json.loads(line)["log"] for path in paths for line in path.open(encoding="utf-8")]
    lines = {line for log in logs for line in log.splitlines() if line.strip()}
    return len(lines), sorted(line for line in lines if redacted_text(line) != line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    os.environ.update(USER="melinda", LOGNAME="melinda", HOME="/home/melinda")
    socket.gethostname = lambda: "workhorse"
    tried, bad, lines = survivors()
    total, different = changed(options.corpus)
    publish(
        [
            *heading("Redaction", "python benchmarks/redaction.py"),
            f"{sum(bad.values())} of {sum(tried.values())} lines keep an identifier.",
            "",
            *table(
                ("kind", "lines", "keep an identifier"), [(kind, tried[kind], bad[kind]) for kind in tried]
            ),
            *("", "Lines that keep one:", "", *(f"    {line}" for line in lines)) * bool(lines),
            "",
            f"Redaction changes {len(different)} of {total} distinct lines of logs from public issues.",
        ],
        options.output,
    )
    # The lines are other people's, so they stay out of the results.
    print("\n".join(different), file=sys.stderr)


if __name__ == "__main__":
    main()
