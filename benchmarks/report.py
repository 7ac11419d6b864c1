"""What `rocmprobe report` takes for runs of 100 to 6000 outcomes, and whether that grows in proportion: the
whole command as a process of its own, and reading, page and JUnit alone. Sizes take turns, so that their
ratios hold on a machine that does other work, too.

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
    """By number of outcomes: seconds of the processor (medians), bytes, and the seconds of an outcome over
    those of an outcome of the largest run."""
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
    """Seconds of the processor: the whole command ("command"), then its parts; "wall" is of the command."""
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
    """Seconds of the processor that this process and its children took."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def repeated(results: Results, amount: int) -> Results:
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
