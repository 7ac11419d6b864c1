"""Timing of `rocmprobe report` for runs of 100 to 6000 outcomes, and its growth with their number.

The benchmark times the whole command as a process, and reading, page and JUnit separately. Sizes alternate,
so that their ratios are valid even on a busy machine.

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

from rocmprobe.model.results import Results
from rocmprobe.model.results_file import read_results, to_json
from rocmprobe.report import junit
from rocmprobe.report.junit import reported
from rocmprobe.report.page import html

OUTCOMES = (100, 1000, 3000, 6000)
ROUNDS = 2
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
    facts = {"python": platform.python_version(), "load_average": os.getloadavg()[0]}
    publish({**facts, "rounds": ROUNDS, "runs": figures}, options.output)


def _runs(folder: Path) -> dict[str, Path]:
    found = {}
    for title, arguments in SOURCES.items():
        out = folder / title.replace(" ", "-")
        command = [sys.executable, "-m", "rocmprobe", "run", "--level", "quick", *arguments]
        subprocess.run([*command, "--out", str(out)], check=False, stdout=subprocess.DEVNULL)
        found[title] = out / "results.json"
    return found


def measure(source: Path, folder: Path) -> dict[str, Any]:
    """Return figures by number of outcomes: median CPU seconds, bytes, and the relative page time per
    outcome.

    The page time per outcome is relative to that of the largest run.
    """
    own = read_results(source)
    taken: dict[int, list[dict[str, float]]] = {amount: [] for amount in OUTCOMES}
    figures: dict[int, dict[str, Any]] = {}
    for amount in OUTCOMES:
        results = repeated(own, amount)
        path = folder / f"results-{amount}.json"
        path.write_text(json.dumps(to_json(results)), "utf-8")
        figures[amount] = {"results_bytes": path.stat().st_size, "states": _states(results)}
    for _ in range(ROUNDS):
        for amount in OUTCOMES:
            taken[amount].append(_once(folder / f"results-{amount}.json", folder / f"report-{amount}.html"))
    for amount, rounds in taken.items():
        page = folder / f"report-{amount}.html"
        seconds = {name: median(each[name] for each in rounds) for name in rounds[0]}
        figures[amount].update({name: round(value, 2) for name, value in seconds.items()})
        figures[amount]["page_bytes"] = page.stat().st_size
    largest = max(OUTCOMES)
    for amount in OUTCOMES:
        rendered = [figures[each]["page"] / each for each in (amount, largest)]
        figures[amount]["page_of_an_outcome_over_largest"] = round(rendered[0] / rendered[1], 2)
    return {str(amount): each for amount, each in figures.items()}


def _once(source: Path, target: Path) -> dict[str, float]:
    """Return the CPU seconds of the whole command and of its parts. "wall" is the command's elapsed time."""
    began, worked = time.perf_counter(), _worked()
    command = [sys.executable, "-m", "rocmprobe", "report", str(source), "-o", str(target)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    found = {"wall": time.perf_counter() - began, "command": _worked() - worked}
    worked = _worked()
    results = read_results(source)
    found["read"], worked = _worked() - worked, _worked()
    html.page(results)
    found["page"], worked = _worked() - worked, _worked()
    junit.document(reported(results), results)
    found["junit"] = _worked() - worked
    return found


def _worked() -> float:
    """Return the CPU seconds of this process and its children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def repeated(results: Results, amount: int) -> Results:
    """Return the results with ``amount`` outcomes. Their outcomes are repeated under new ids."""
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
