"""Test that ``rocmprobe compare`` reports planted changes, and nothing if nothing changed.

The benchmark runs rocmprobe on this CPU again and again, and compares each run with the run before. Nothing
changed, so "no change" is the only correct result. Then it plants changes into copies of the results and
compares again: times of one setting that are 1.2 times as long, and a convolution that fails. The machine
must be idle. On a busy machine no time is reported as changed, so the planted slow-down is missed::

    python benchmarks/compare.py --comparisons 20 -o benchmarks/results/compare.json
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from figures import publish

SLOWER = 1.2
TIMES = ("fwd", "bwd_data", "bwd_weights", "fwd_bwd")
ENDS = ("", "_p10", "_p90", "_mean")
ASKED = (
    "--device",
    "cpu",
    "--only",
    "convolution",
    "--only",
    "throughput",
    "--only",
    "start-up",
    "--only",
    "memory",
)


def one_run(folder: Path, level: str) -> Path:
    command = [sys.executable, "-m", "rocmprobe", "run", *ASKED, "--level", level, "--out", str(folder)]
    subprocess.run(command, capture_output=True, check=True)
    return folder / "results.json"


def compared(old: Path, new: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "rocmprobe", "compare", str(old), str(new), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, json.loads(ended.stdout)


def planted(results: dict[str, Any], setting: str) -> tuple[dict[str, Any], str]:
    """Return a copy in which ``setting`` is slower and one of its convolutions fails, and the id of that
    case."""
    changed = copy.deepcopy(results)
    mine = [each for each in changed["outcomes"] if each["setting"] == setting]
    for outcome in mine:
        if outcome["check"] == "throughput":
            slow = {f"{name}{end}" for name in TIMES for end in ENDS} & outcome["timings"].keys()
            outcome["timings"].update({name: SLOWER * outcome["timings"][name] for name in slow})
    failing = next(each for each in mine if each["check"] == "convolution" and each["state"] == "pass")
    failing["state"] = "wrong"
    return changed, failing["id"]


def found(old: Path, new: Path, setting: str, scratch: Path) -> dict[str, bool]:
    """Return True or False for each planted change: True if it is reported.

    "failure" and "every_direction" also require that no other change of their kind is reported.
    """
    changed, failing = planted(json.loads(new.read_text("utf-8")), setting)
    scratch.write_text(json.dumps(changed), "utf-8")
    code, comparison = compared(old, scratch)
    slower = {
        (each["setting"], each["what"])
        for each in comparison["measurements"]["changed"]
        if each["told"] == "more"
    }
    return {
        "failure": code == 1 and [each["id"] for each in comparison["changed"]] == [failing],
        "slow_down": setting in {name for name, _ in slower},
        "every_direction": slower == {(setting, what) for what in ("all", *TIMES)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument("--level", default="quick")
    parser.add_argument("--settings", nargs="+", default=["default", "bypass"], help="where to plant")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        folder = Path(name)
        runs = [one_run(folder / f"run-{number}", options.level) for number in range(options.comparisons + 1)]
        pairs = list(zip(runs, runs[1:]))
        answers = [compared(*pair) for pair in pairs]
        plants = {
            where: [
                found(old, new, setting, folder / "planted.json")
                for setting in options.settings
                for old, new in (pairs if where == "next run" else [(run, run) for run in runs])
            ]
            for where in ("same run", "next run")
        }
    figures = {
        "comparisons": len(answers),
        "no_change": sum(answer["verdict"].startswith("no change") and code == 0 for code, answer in answers),
        "other_verdicts": [
            answer["verdict"] for _, answer in answers if not answer["verdict"].startswith("no change")
        ],
        "times_in_each": answers[0][1]["measurements"]["times"],
        "drift": [round(answer["measurements"]["drift"]["cpu"], 3) for _, answer in answers],
        "planted": {
            where: {"comparisons": len(rows), **{key: sum(each[key] for each in rows) for key in rows[0]}}
            for where, rows in plants.items()
        },
    }
    publish(figures, options.output)


if __name__ == "__main__":
    main()
