"""How long it takes to render a run of 1545 outcomes, as many as a standard run on a CPU has, and how large
the page is; beside it a run of as many on a simulated card where convolution fails.

    python benchmarks/report.py -o benchmarks/results/report.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from figures import publish

from rocmprobe.model import Results, read_results, to_json
from rocmprobe.report import html

OUTCOMES = 1545
REPEATS = 5
SOURCES = {
    "CPU": ["--device", "cpu"],
    "simulated RX 5600 XT": ["--simulate", "rdna1-rocm52-conv-dead"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--results", type=Path, nargs="*", help="results.json to repeat, instead of new runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {str(path): path for path in options.results or ()} or _runs(folder)
        figures = {title: measure(path, folder) for title, path in sources.items()}
    publish({"outcomes": OUTCOMES, "python": platform.python_version(), "runs": figures}, options.output)


def _runs(folder: Path) -> dict[str, Path]:
    found = {}
    for title, arguments in SOURCES.items():
        out = folder / title.replace(" ", "-")
        command = [sys.executable, "-m", "rocmprobe", "run", "--level", "quick", *arguments]
        subprocess.run([*command, "--out", str(out)], check=False, stdout=subprocess.DEVNULL)
        found[title] = out / "results.json"
    return found


def measure(source: Path, folder: Path) -> dict[str, Any]:
    results = repeated(read_results(source))
    target, page = folder / "results.json", folder / "report.html"
    target.write_text(json.dumps(to_json(results)), "utf-8")
    seconds, cpu = [], []
    for _ in range(REPEATS):
        began, worked = time.perf_counter(), _worked()
        html.write(read_results(target), page)
        seconds.append(time.perf_counter() - began)
        cpu.append(_worked() - worked)
    return {
        "results_bytes": target.stat().st_size,
        "page_bytes": page.stat().st_size,
        "seconds": round(median(seconds), 2),
        "cpu_seconds": round(median(cpu), 2),
        "states": _states(results),
    }


def _worked() -> float:
    """Seconds of the processor that this process and its children took."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def repeated(results: Results, amount: int = OUTCOMES) -> Results:
    """The results with ``amount`` outcomes: their own, as often as it takes, each under an id of its own."""
    copies = [
        dataclasses.replace(each, id=f"{each.id}~{number}" if number else each.id)
        for number in range(amount // len(results.outcomes) + 1)
        for each in results.outcomes
    ]
    return dataclasses.replace(results, outcomes=tuple(copies[:amount]))


def _states(results: Results) -> dict[str, int]:
    states = [outcome.state for outcome in results.outcomes]
    return {state: states.count(state) for state in sorted(set(states))}


if __name__ == "__main__":
    main()
